//! The modules of some crates, read from their sources, and what the names in them mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, File, Item, ItemMacro, Meta, UseTree, Visibility};

use super::expand::expand;

/// The names that lead to a module or an item, its crate's name first.
pub(crate) type Names = Vec<String>;

pub(crate) struct Module {
    /// What the documentation includes is named from here.
    pub(crate) file: PathBuf,
    pub(crate) items: Vec<Item>,
    pub(crate) uses: Vec<Use>,
    /// The `cfg` of the module and of those around it.
    pub(crate) cfgs: Vec<Attribute>,
}

/// What a `use` brings into a module.
pub(crate) struct Use {
    /// As it is written.
    pub(crate) target: Names,
    /// The name that it has in the module; `*` for all.
    pub(crate) name: String,
    pub(crate) is_public: bool,
    pub(crate) attributes: Vec<Attribute>,
}

#[derive(Default)]
pub(crate) struct Crates {
    pub(crate) modules: BTreeMap<Names, Module>,
    /// By the names of the crate and of the macro.
    macros: BTreeMap<(String, String), ItemMacro>,
}

impl Crates {
    /// Reads a crate's folder `src`.
    pub(crate) fn read(&mut self, name: &str, src: &Path) -> Result<()> {
        let root = src.join("lib.rs");
        let file = parsed(&root)?;
        self.add(vec![name.to_owned()], &root, src, file.items, Vec::new())?;
        // A macro that is exported stands at the root, wherever it is written.
        let is_exported = |rules: &&ItemMacro| rules.attrs.iter().any(|it| it.path().is_ident("macro_export"));
        let macros = self.macros.iter().filter(|((of, _), _)| of == name).map(|(_, rules)| rules);
        let exported = macros.filter(is_exported).cloned().map(Item::Macro);
        self.modules.get_mut(&[name.to_owned()][..]).into_iter().for_each(|root| root.items.extend(exported.clone()));
        let own = self.modules.keys().filter(|names| names[0] == name).cloned().collect::<Vec<_>>();
        own.iter().try_for_each(|names| self.expand_macros(names))
    }

    /// Takes in a module and, from `folder`, those below it; those of tests are left out.
    fn add(&mut self, names: Names, file: &Path, folder: &Path, items: Vec<Item>, cfgs: Vec<Attribute>) -> Result<()> {
        let mut module = Module { file: file.to_owned(), items: Vec::new(), uses: Vec::new(), cfgs };
        for mut item in items {
            match &mut item {
                Item::Mod(child) if cfgs_of(&child.attrs).iter().any(is_for_tests) => continue,
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let below = folder.join(&name);
                    let cfgs = [&module.cfgs[..], &cfgs_of(&child.attrs)].concat();
                    let names = [&names[..], &[name]].concat();
                    match child.content.take() {
                        Some((_, items)) => self.add(names, file, &below, items, cfgs)?,
                        None => {
                            let beside = below.with_extension("rs");
                            let file = if beside.exists() { beside } else { below.join("mod.rs") };
                            self.add(names, &file, &below, parsed(&file)?.items, cfgs)?;
                        }
                    }
                }
                Item::Macro(rules) if rules.ident.is_some() => {
                    let name = names_of(&item).concat();
                    if let Item::Macro(rules) = item {
                        self.macros.insert((names[0].clone(), name), rules);
                    }
                    continue;
                }
                _ => {}
            }
            module.items.push(item);
        }
        module.take_uses();
        self.modules.insert(names, module);
        Ok(())
    }

    /// Adds what the crate's own macros write into a module; those of other crates write nothing that is public.
    fn expand_macros(&mut self, names: &Names) -> Result<()> {
        let Some(mut module) = self.modules.remove(names) else { return Ok(()) };
        for item in std::mem::take(&mut module.items) {
            let Item::Macro(ItemMacro { ident: None, mac, .. }) = &item else {
                module.items.push(item);
                continue;
            };
            let called = mac.path.segments.last().map_or_else(String::new, |name| name.ident.to_string());
            if let Some(rules) = self.macros.get(&(names[0].clone(), called.clone())) {
                let place = || format!("{}: {called}!", module.file.display());
                let tokens = expand(rules.mac.tokens.clone(), mac.tokens.clone()).with_context(place)?;
                module.items.extend(syn::parse2::<File>(tokens).with_context(place)?.items);
            }
        }
        self.modules.insert(names.clone(), module);
        Ok(())
    }

    /// The module and the name of the item that a path means where it stands in `module`; none of another crate's.
    pub(crate) fn resolve(&self, module: &[String], path: &[String]) -> Option<(Names, String)> {
        let (mut at, mut rest) = self.beginning(module, path)?;
        while let [name, after @ ..] = rest {
            let here = self.modules.get(&at)?;
            let inner = [&at[..], &rest[..1]].concat();
            if self.modules.contains_key(&inner) && !after.is_empty() {
                (at, rest) = (inner, after);
                continue;
            }
            if here.items.iter().any(|item| names_of(item).contains(name)) {
                return Some((at, name.clone()));
            }
            if let Some(brought) = here.uses.iter().find(|brought| brought.name == *name) {
                let is_foreign = brought.target.first() == Some(name);
                return if is_foreign { None } else { self.resolve(&at, &[&brought.target[..], after].concat()) };
            }
            let globs = here.uses.iter().filter(|brought| brought.name == "*" && self.is_ours(&brought.target));
            return globs.into_iter().find_map(|brought| self.resolve(&at, &[&brought.target[..], rest].concat()));
        }
        Some((at.clone(), String::new()))
    }

    /// The module in which a path begins, and what is left of the path.
    fn beginning<'a>(&self, module: &[String], path: &'a [String]) -> Option<(Names, &'a [String])> {
        match path.first()?.as_str() {
            "crate" => Some((module[..1].to_vec(), &path[1..])),
            "self" => Some((module.to_vec(), &path[1..])),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                Some((module[..module.len().checked_sub(ups)?].to_vec(), &path[ups..]))
            }
            _ if self.modules.contains_key(&path[..1]) => Some((path[..1].to_vec(), &path[1..])),
            _ => Some((module.to_vec(), path)),
        }
    }

    fn is_ours(&self, path: &[String]) -> bool {
        path.first().is_some_and(|first| ["crate", "self", "super"].contains(&first.as_str()))
            || self.modules.contains_key(&path[..1])
    }
}

impl Module {
    fn take_uses(&mut self) {
        for item in &self.items {
            if let Item::Use(item) = item {
                let is_public = matches!(item.vis, Visibility::Public(_));
                for (target, name) in leaves(&item.tree, &[]) {
                    self.uses.push(Use { target, name, is_public, attributes: item.attrs.clone() });
                }
            }
        }
        self.items.retain(|item| !matches!(item, Item::Use(_)));
    }
}

/// The names of an item: a derive has that of its function, too.
pub(crate) fn names_of(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => {
            let derive = item.attrs.iter().find(|attribute| attribute.path().is_ident("proc_macro_derive"));
            let name = derive.and_then(|derive| match &derive.meta {
                Meta::List(list) => list.tokens.clone().into_iter().next(),
                _ => None,
            });
            return name.map(|name| name.to_string()).into_iter().chain([item.sig.ident.to_string()]).collect();
        }
        Item::Macro(ItemMacro { ident: Some(ident), .. }) => ident,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return Vec::new(),
    };
    vec![ident.to_string()]
}

pub(crate) fn cfgs_of(attributes: &[Attribute]) -> Vec<Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect()
}

fn is_for_tests(cfg: &Attribute) -> bool {
    let Meta::List(list) = &cfg.meta else { return false };
    let text = list.tokens.to_string().replace(' ', "");
    text == "test" || text.starts_with("all(test,")
}

fn parsed(path: &Path) -> Result<File> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    syn::parse_file(&text).with_context(|| path.display().to_string())
}

/// The paths that a tree of `use` brings, and the names that they have then.
fn leaves(tree: &UseTree, before: &[String]) -> Vec<(Names, String)> {
    let with = |name: &syn::Ident| match name.to_string() {
        name if name == "self" && !before.is_empty() => before.to_vec(),
        name => [before, &[name]].concat(),
    };
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &with(&path.ident)),
        UseTree::Name(name) => {
            let path = with(&name.ident);
            let name = path.last().cloned().unwrap_or_default();
            vec![(path, name)]
        }
        UseTree::Rename(name) => vec![(with(&name.ident), name.rename.to_string())],
        UseTree::Glob(_) => vec![(before.to_vec(), "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, before)).collect(),
    }
}
