//! The public API as a file: an item and its parts by indented lines, in the order of the names.

use super::FACADE;
use super::crates::Crates;
use super::describe::Public;
use super::surface::surface;

#[test]
fn the_public_api_is_as_it_was_agreed() {
    let text = format!("{}\n# Hidden\n\n{}", listing(&FACADE, false), listing(&FACADE, true));
    insta::with_settings!({
        prepend_module_to_snapshot => false,
        omit_expression => true,
        description => "What users can name. To accept a change: INSTA_UPDATE=always cargo test --test rooms public_api",
    }, {
        insta::assert_snapshot!("public_api", text);
    });
}

/// The lines of what is shown, or of what is hidden: bounds and the derive's code name it.
fn listing(items: &[Public], hidden: bool) -> String {
    let mut text = String::new();
    for item in items {
        let parts: Vec<_> = item.parts.iter().filter(|part| (item.is_hidden || part.is_hidden) == hidden).collect();
        if item.is_hidden != hidden && (parts.is_empty() || !hidden) {
            continue;
        }
        text += &format!("{}\n", item.line);
        let mut header = None;
        for part in parts {
            if part.within != header {
                header.clone_from(&part.within);
                text += &header.iter().map(|header| format!("    {header}\n")).collect::<String>();
            }
            let indent = if header.is_some() { "        " } else { "    " };
            text += &format!("{indent}{}\n", part.line);
        }
    }
    text
}

/// What a made-up crate offers.
fn listed(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in files {
        std::fs::write(folder.path().join(file), text).expect("a file in a temporary directory");
    }
    let mut crates = Crates::default();
    crates.read("made_up", folder.path()).expect("the made-up crate is readable");
    listing(&surface(&crates, "made_up"), false)
}

#[test]
fn what_users_can_name_is_listed_wherever_it_stands() {
    let lib = "
        mod room;
        use self::room::Unseen;
        pub use crate::room::{Answer, Ask, Thing as Renamed};
        pub use other::Thing;";
    let room = "
        use std::fmt;
        #[derive(Debug, Clone)]
        pub struct Thing<T> { pub size: Option<T>, weight: u8 }
        impl<T: Ord> Thing<T> {
            pub fn go<'a>(mut self, to: &'a str,) -> Vec<&'a [u8; 2]> where T: 'static, {}
            fn stay(&self) {}
        }
        impl<T> fmt::Display for Thing<T> {}
        trait Inner {}
        impl<T> Inner for Thing<T> {}
        pub enum Answer { Yes(u8), No { why: String } }
        pub trait Ask: Send {
            type Item: ?Sized;
            const DEPTH: u8 = 1;
            fn ask(&self);
            fn tell() -> u8 { 1 }
        }
        impl<T: fmt::Debug> Ask for T {}
        pub struct Unseen;";
    let expected = "enum Answer
    Yes(u8)
    No { why: String }
trait Ask: Send
    type Item: ?Sized
    const DEPTH: u8 { .. }
    fn ask(&self)
    fn tell() -> u8 { .. }
    impl<T: fmt::Debug> Ask for T
#[derive(Clone, Debug)] struct Renamed<T> { .. }
    size: Option<T>
    impl<T> fmt::Display for Thing<T>
    impl<T: Ord> Thing<T>
        fn go<'a>(self, to: &'a str) -> Vec<&'a [u8; 2]> where T: 'static
use other::Thing as Thing
";
    assert_eq!(listed(&[("lib.rs", lib), ("room.rs", room)]), expected);
}

#[test]
fn what_a_macro_writes_is_listed() {
    let lib = "
        macro_rules! kinds {
            ($($(#[$doc:meta])* $kind:ident: $of:ty = $text:expr),*) => {$(
                $(#[$doc])*
                pub enum $kind {}
                impl Kind<$of> for $kind { const TEXT: &'static str = $text; }
            )*};
        }
        kinds! {
            /// One.
            One: Vec<u8> = 1,
            Two: u8 = 2
        }
        pub trait Kind<T> {}";
    let expected = "trait Kind<T>
enum One
    impl Kind<Vec<u8>> for One
enum Two
    impl Kind<u8> for Two
";
    assert_eq!(listed(&[("lib.rs", lib)]), expected);
}

#[test]
fn what_is_hidden_or_for_tests_is_not_listed() {
    let lib = "
        #[doc(hidden)] pub mod internals { pub struct Inner; }
        #[doc(hidden)] pub fn helper() {}
        #[cfg(test)] mod tests { pub struct Test; }
        #[cfg(test)] mod missing;
        pub struct Seen;
        impl Seen { #[doc(hidden)] pub fn look(&self) {} }
        #[doc(hidden)] pub trait Look {}
        impl Look for Seen {}";
    assert_eq!(listed(&[("lib.rs", lib)]), "struct Seen\n");
}
