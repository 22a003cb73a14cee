//! What users of the facade can name: a list of names for each module, how many there may be, and that examples use them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::sources::rust_files;

/// How many names the root of the facade may have: what one person can hold in mind.
const NAMES_IN_ROOT: usize = 60;

/// How many traits a user may see.
const TRAITS: usize = 12;

/// Names that no example writes: types that a call returns or takes, and whose example is at that call.
#[rustfmt::skip]
const WITHOUT_EXAMPLE: &[&str] = &[
    "AsyncHandler", "AttemptEvent", "By", "ClaimStyle", "ConnectFailure", "ConnectionSource", "DieselAsyncSession",
    "DryRun", "EnqueueExisting", "EntityHealth", "ErrorGroup", "ErrorReport", "EveryRow", "Finding",
    "InvalidSchedule", "InvalidWindow", "LeaseLost", "NoFilter", "Part", "Preview", "PreviewedRow",
    "Progress", "Redact", "Redriven", "Shutdown", "Tally", "TriggerMigration", "modes",
];

/// A name that users can write.
struct Public {
    /// The module, empty for the root.
    module: String,
    name: String,
    /// Whether the documentation hides it.
    is_hidden: bool,
    /// The features that it needs.
    gate: Option<String>,
}

static FACADE: LazyLock<Vec<Public>> = LazyLock::new(|| {
    let file = root().join("src/lib.rs");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut found = Vec::new();
    read(&file.items, "", false, &mut found);
    found
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(items: &[Item], module: &str, is_hidden: bool, found: &mut Vec<Public>) {
    for item in items {
        let (attributes, names) = match item {
            Item::Use(item) if is_public(&item.vis) => (&item.attrs, names_of(&item.tree)),
            Item::Mod(item) if is_public(&item.vis) => (&item.attrs, vec![item.ident.to_string()]),
            _ => continue,
        };
        let is_hidden = is_hidden || attributes.iter().any(|attribute| tokens(attribute) == "doc(hidden)");
        let gate = attributes.iter().map(tokens).find(|tokens| tokens.starts_with("cfg("));
        let public = |name| Public { module: module.to_owned(), name, is_hidden, gate: gate.clone() };
        found.extend(names.into_iter().map(public));
        if let Item::Mod(item) = item
            && let Some((_, inner)) = &item.content
        {
            read(inner, &item.ident.to_string(), is_hidden, found);
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn tokens(attribute: &Attribute) -> String {
    quote::ToTokens::to_token_stream(&attribute.meta).to_string().replace(' ', "")
}

fn names_of(tree: &UseTree) -> Vec<String> {
    match tree {
        UseTree::Path(path) => names_of(&path.tree),
        UseTree::Name(name) => vec![name.ident.to_string()],
        UseTree::Rename(rename) => vec![rename.rename.to_string()],
        UseTree::Group(group) => group.items.iter().flat_map(names_of).collect(),
        UseTree::Glob(_) => panic!("a star in src/lib.rs hides which names are public"),
    }
}

/// The names in the root that the documentation shows. A derive and its trait share one.
fn names_in_root() -> BTreeSet<&'static str> {
    FACADE.iter().filter(|public| public.module.is_empty() && !public.is_hidden).map(|public| &*public.name).collect()
}

/// The traits of the core.
fn traits() -> BTreeSet<String> {
    fn add(tokens: TokenStream, names: &mut BTreeSet<String>) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match (token, tokens.peek()) {
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "trait" => {
                    names.insert(name.to_string());
                }
                (TokenTree::Group(group), _) => add(group.stream(), names),
                _ => {}
            }
        }
    }
    let mut names = BTreeSet::new();
    for file in rust_files(&root().join("queue-core/src")).expect("the core's sources are readable") {
        let text = fs::read_to_string(&file).expect("a source is readable");
        add(text.parse().expect("a source has tokens"), &mut names);
    }
    names
}

#[test]
fn the_public_names_are_as_they_were_agreed() {
    let traits = traits();
    let mut text = String::new();
    let mut of_module: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for Public { module, name, is_hidden, gate } in FACADE.iter() {
        let kind = if traits.contains(name) { "trait " } else { "" };
        let gate = gate.as_ref().map(|gate| format!(" {gate}")).unwrap_or_default();
        let module = (*is_hidden, if module.is_empty() { "the root" } else { module });
        of_module.entry(module).or_default().insert(format!("{kind}{name}{gate}"));
    }
    for ((is_hidden, module), names) in of_module {
        let hidden = if is_hidden { ", hidden" } else { "" };
        text += &format!("# {module}{hidden}\n{}\n\n", names.into_iter().collect::<Vec<_>>().join("\n"));
    }
    insta::with_settings!({
        prepend_module_to_snapshot => false,
        omit_expression => true,
        description => "What users can name. To accept a change: INSTA_UPDATE=always cargo test --test rooms public_api",
    }, {
        insta::assert_snapshot!("public_api", text.trim_end());
    });
}

#[test]
fn the_root_can_be_held_in_mind() {
    let names = names_in_root();
    assert!(names.len() <= NAMES_IN_ROOT, "{} names: a module takes the rest of {names:?}", names.len());
}

#[test]
fn a_user_sees_few_traits() {
    let traits = traits();
    let shown = FACADE.iter().filter(|public| !public.is_hidden).map(|public| &public.name);
    let seen: BTreeSet<_> = shown.filter(|name| traits.contains(*name)).collect();
    assert!(seen.len() <= TRAITS, "{} traits: hide those that nobody has to know: {seen:?}", seen.len());
}

#[test]
fn examples_use_the_public_names() {
    let mut words = BTreeSet::new();
    let mut texts = Vec::new();
    for folder in ["queue-core/src", "src"] {
        for file in rust_files(&root().join(folder)).expect("the sources are readable") {
            let text = fs::read_to_string(&file).expect("a source is readable");
            let comments = text.lines().map(str::trim_start).filter_map(|line| {
                line.strip_prefix("///").or(line.strip_prefix("//!")).or(line.is_empty().then_some(""))
            });
            texts.push(comments.map(str::trim).collect::<Vec<_>>().join("\n"));
        }
    }
    let pages = fs::read_dir(root().join("docs")).expect("there is a folder of documents");
    let pages = pages.map(|page| page.expect("the folder of documents is readable").path());
    for page in pages.chain(["README.md", "queue-derive/docs/derive.md"].map(|page| root().join(page))) {
        if page.extension().is_some_and(|extension| extension == "md") {
            texts.push(fs::read_to_string(&page).expect("a document is readable"));
        }
    }
    for text in &texts {
        let blocks = text.split("\n```").skip(1).step_by(2);
        words.extend(blocks.flat_map(|block| block.split(|c: char| !c.is_alphanumeric() && c != '_')));
    }
    let wanted = FACADE.iter().filter(|public| !public.is_hidden && !matches!(&*public.module, "columns"));
    let wanted: BTreeSet<_> = wanted.map(|public| &*public.name).collect();
    let missing: Vec<_> =
        wanted.iter().filter(|name| !words.contains(**name) && !WITHOUT_EXAMPLE.contains(name)).collect();
    assert!(missing.is_empty(), "no example uses {missing:?}");
    let needless: Vec<_> =
        WITHOUT_EXAMPLE.iter().filter(|name| words.contains(**name) || !wanted.contains(**name)).collect();
    assert!(needless.is_empty(), "need no exception: {needless:?}");
}
