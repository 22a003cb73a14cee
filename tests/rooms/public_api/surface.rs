//! What users of a crate can name, by following its public names.

use std::collections::{BTreeMap, HashSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, Path, Type, Visibility};

use super::crates::{Crates, Module, Names, names_of};
use super::describe::{
    Part, Public, attributes_of, described, described_elsewhere, is_hidden, part_of_impl, parts_of_impl,
};

/// What the project's own tests look into; nobody else is promised anything about it.
const NOBODYS: &str = "internals";

/// The crate whose macros write names into users' code, hidden ones too.
const DERIVE: &str = "queue_derive";

/// What a path of public names leads to.
struct Reached {
    name: String,
    /// As the last `use` has it.
    target: Names,
    /// The module and the name of the item; none of another crate's.
    place: Option<(Names, String)>,
    /// The attributes of that `use`.
    attributes: Vec<Attribute>,
    is_hidden: bool,
}

/// Lists what a crate offers, in the order of the names. Of what is hidden in an item only that counts which the derive writes.
pub(crate) fn surface(crates: &Crates, name: &str) -> Vec<Public> {
    let mut reached = Vec::new();
    reach(crates, &[name.to_owned()], "", false, &mut reached);
    reached.sort_by(|one, other| one.name.cmp(&other.name));
    let mut impls = impls_of(crates, &reached);
    let derived = words_of(crates, DERIVE);
    let is_written = |part: &Part| part.name.as_ref().is_some_and(|name| derived.contains(name));
    let mut all = Vec::new();
    for Reached { name, target, place, attributes, is_hidden } in reached {
        let Some((names, original)) = place else {
            all.push(described_elsewhere(&name, &target, &attributes, is_hidden));
            continue;
        };
        let module = &crates.modules[&names];
        for item in module.items.iter().filter(|item| is_exported(item) && names_of(item).contains(&original)) {
            let mut public = described(module, item, &name, &attributes);
            public.is_hidden |= is_hidden;
            if is_type_or_trait(item) {
                public.parts.extend(impls.remove(&(names.clone(), original.clone())).unwrap_or_default());
            }
            public.parts.retain(|part| public.is_hidden || !part.is_hidden || is_written(part));
            all.push(public);
        }
    }
    all
}

/// Follows the public names of a module.
fn reach(crates: &Crates, module: &[String], prefix: &str, is_hidden: bool, reached: &mut Vec<Reached>) {
    let here = &crates.modules[module];
    let mut found = Vec::new();
    for item in here.items.iter().filter(|item| is_exported(item)) {
        for name in names_of(item).into_iter().take(1) {
            let place = Some((module.to_vec(), name.clone()));
            found.push(Reached { target: vec![name.clone()], name, place, attributes: Vec::new(), is_hidden });
        }
    }
    // A `use` that is hidden does not hide: rustdoc shows the item in the crate that hands all of this one on.
    for brought in here.uses.iter().filter(|brought| brought.is_public) {
        match crates.resolve(module, &brought.target) {
            Some((names, last)) if brought.name == "*" => {
                let inner = if last.is_empty() { names } else { [names, vec![last]].concat() };
                reach(crates, &inner, prefix, is_hidden, reached);
            }
            place => found.push(Reached {
                name: brought.name.clone(),
                target: brought.target.clone(),
                place,
                attributes: brought.attributes.clone(),
                is_hidden,
            }),
        }
    }
    for mut one in found.into_iter().filter(|one| one.name != NOBODYS) {
        one.is_hidden |= one.place.as_ref().is_some_and(|(module, name)| is_hidden_in(&crates.modules[module], name));
        let name = format!("{prefix}{}", one.name);
        let inner = one.place.clone().map(|(module, name)| [module, vec![name]].concat());
        if let Some(inner) = inner.filter(|inner| crates.modules.contains_key(inner)) {
            reach(crates, &inner, &format!("{name}::"), one.is_hidden, reached);
        }
        reached.push(Reached { name, ..one });
    }
}

/// Whether the item of this name says itself that it is hidden.
fn is_hidden_in(module: &Module, name: &String) -> bool {
    let mut items = module.items.iter().filter(|item| is_exported(item) && names_of(item).contains(name));
    items.any(|item| is_hidden(attributes_of(item)))
}

/// What the impls add to the public types and traits. An impl stands with its type, or with its trait where the type is any.
/// It does not count if the type or the trait is one of ours that nobody can name.
fn impls_of(crates: &Crates, reached: &[Reached]) -> BTreeMap<(Names, String), Vec<Part>> {
    let public: BTreeMap<_, _> = reached.iter().filter_map(|one| Some((one.place.clone()?, one.is_hidden))).collect();
    let mut found: BTreeMap<_, Vec<Part>> = BTreeMap::new();
    for (names, module) in &crates.modules {
        for item in &module.items {
            let Item::Impl(item) = item else { continue };
            let of_type = path_of(&item.self_ty).and_then(|path| crates.resolve(names, &names_in(path)));
            let of_trait = item.trait_.as_ref().and_then(|(_, path, _)| crates.resolve(names, &names_in(path)));
            let ours: Vec<_> = [&of_type, &of_trait].into_iter().flatten().map(|named| public.get(named)).collect();
            let is_unnamed = ours.contains(&None);
            let is_hidden = ours.into_iter().flatten().any(|is_hidden| *is_hidden);
            let Some(owner) = of_type.or(of_trait).filter(|_| !is_unnamed) else { continue };
            let mut parts =
                if item.trait_.is_some() { vec![part_of_impl(module, item)] } else { parts_of_impl(module, item) };
            parts.iter_mut().for_each(|part| part.is_hidden |= is_hidden);
            found.entry(owner).or_default().extend(parts);
        }
    }
    for parts in found.values_mut() {
        parts.sort_by(|one, other| (&one.within, &one.line).cmp(&(&other.within, &other.line)));
        parts.dedup_by(|one, other| (&one.within, &one.line) == (&other.within, &other.line));
    }
    found
}

/// The path of a type, also behind references.
fn path_of(of: &Type) -> Option<&Path> {
    match of {
        Type::Path(path) if path.qself.is_none() => Some(&path.path),
        Type::Reference(reference) => path_of(&reference.elem),
        _ => None,
    }
}

fn names_in(path: &Path) -> Names {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Every word in a crate's sources.
fn words_of(crates: &Crates, name: &str) -> HashSet<String> {
    fn add(tokens: TokenStream, words: &mut HashSet<String>) {
        for token in tokens {
            match token {
                TokenTree::Ident(word) => drop(words.insert(word.to_string())),
                TokenTree::Group(group) => add(group.stream(), words),
                _ => {}
            }
        }
    }
    let mut words = HashSet::new();
    let modules = crates.modules.iter().filter(|(names, _)| names[0] == name);
    modules.flat_map(|(_, module)| &module.items).for_each(|item| add(item.to_token_stream(), &mut words));
    words
}

fn is_type_or_trait(item: &Item) -> bool {
    matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Trait(_) | Item::Union(_))
}

fn is_exported(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Macro(item) => return item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")),
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
}
