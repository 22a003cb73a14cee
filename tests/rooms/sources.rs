//! The source files of a crate, and which of them imports from which.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// A module or an item by the names that lead to it from the crate's root.
type Names = Vec<String>;

/// One place at which a file names something of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) file: String,
    pub(crate) line: usize,
    /// What is named, from the crate's root.
    pub(crate) path: Names,
}

/// The files of a crate.
pub(crate) struct Sources {
    /// The file of each module.
    file_of: HashMap<Names, String>,
    /// The imports of each file that counts.
    imports: BTreeMap<String, Vec<Import>>,
    /// What a `use` gives a further name.
    renamed: HashMap<Names, Names>,
}

impl Sources {
    /// Reads a crate's folder `src`.
    pub(crate) fn read(src: &Path) -> Result<Self> {
        let mut sources = Sources { file_of: HashMap::new(), imports: BTreeMap::new(), renamed: HashMap::new() };
        let mut files = Vec::new();
        for path in rust_files(src)? {
            let file = path.strip_prefix(src)?.to_string_lossy().replace('\\', "/");
            let Some(module) = module_of(&file) else { continue };
            let text = fs::read_to_string(&path).with_context(|| file.clone())?;
            let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{file}: {error}"))?;
            sources.file_of.insert(module.clone(), file.clone());
            files.push((file, module, tokens));
        }
        for (file, module, tokens) in files {
            let mut reader = Reader {
                file: &file,
                children: children(&sources.file_of, &module),
                found: Vec::new(),
                stars: Vec::new(),
                renamed: Vec::new(),
            };
            reader.read(&tokens, &module);
            let Reader { found, renamed, stars, .. } = reader;
            ensure!(stars.is_empty(), "{file}:{}: a star hides what is handed on", stars[0]);
            sources.renamed.extend(renamed);
            sources.imports.insert(file, found);
        }
        Ok(sources)
    }

    pub(crate) fn files(&self) -> usize {
        self.imports.len()
    }

    /// The imports from one room into another, by both rooms' names.
    pub(crate) fn between_rooms(&self) -> BTreeMap<(String, String), Vec<Import>> {
        self.arrows(room_of, |_, _| true)
    }

    /// The imports from one file into another, by both files' names.
    pub(crate) fn between_files(&self) -> BTreeMap<(String, String), Vec<Import>> {
        self.arrows(|file| Some(file.to_owned()), |_, _| true)
    }

    /// The imports from one file of a room into another, by both files' names.
    pub(crate) fn within(&self, room: &str) -> BTreeMap<(String, String), Vec<Import>> {
        let shown = |file: &str| Some(file.strip_prefix(&format!("{room}/")).unwrap_or(file).to_owned());
        self.arrows(shown, |from, to| [from, to].iter().all(|file| room_of(file).as_deref() == Some(room)))
    }

    /// The names of the rooms.
    pub(crate) fn rooms(&self) -> HashSet<String> {
        self.imports.keys().filter_map(|file| room_of(file)).collect()
    }

    fn arrows(
        &self,
        name: impl Fn(&str) -> Option<String>,
        counts: impl Fn(&str, &str) -> bool,
    ) -> BTreeMap<(String, String), Vec<Import>> {
        let mut arrows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (file, imports) in &self.imports {
            for import in imports {
                let Some(target) = self.target(&import.path, &mut HashSet::new()) else { continue };
                if let (Some(from), Some(to), true) = (name(file), name(target), counts(file, target))
                    && from != to
                {
                    arrows.entry((from, to)).or_default().push(import.clone());
                }
            }
        }
        arrows
    }

    /// The file in which a name is defined.
    fn target(&self, path: &[String], seen: &mut HashSet<Names>) -> Option<&str> {
        for length in (0..=path.len()).rev() {
            let head = &path[..length];
            if let Some(file) = self.file_of.get(head) {
                return Some(file);
            }
            if let Some(original) = self.renamed.get(head)
                && seen.insert(head.to_vec())
            {
                return self.target(&[original, &path[length..]].concat(), seen);
            }
        }
        None
    }
}

/// The room of a file; the roof is in none.
fn room_of(file: &str) -> Option<String> {
    let room = file.split('/').next()?.trim_end_matches(".rs");
    (!is_roof(file)).then(|| room.to_owned())
}

fn is_roof(file: &str) -> bool {
    matches!(file, "lib.rs" | "main.rs")
}

/// The module whose source a file is; none of a file of tests.
fn module_of(file: &str) -> Option<Names> {
    if is_roof(file) {
        return Some(Vec::new());
    }
    let mut names: Names = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    match names.last()?.as_str() {
        "tests" => return None,
        "mod" => drop(names.pop()),
        _ => {}
    }
    Some(names)
}

/// The modules that are declared in a module and have files of their own.
fn children(file_of: &HashMap<Names, String>, module: &[String]) -> HashSet<String> {
    let is_child = |other: &&Names| other.len() == module.len() + 1 && other.starts_with(module);
    file_of.keys().filter(is_child).filter_map(|child| child.last().cloned()).collect()
}

pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Finds what a file names. Tokens rather than a syntax tree, because a path in a macro's arguments is an import too.
struct Reader<'a> {
    file: &'a str,
    children: HashSet<String>,
    found: Vec<Import>,
    /// The lines of `pub use` with a star.
    stars: Vec<usize>,
    renamed: Vec<(Names, Names)>,
}

impl Reader<'_> {
    fn read(&mut self, tokens: &TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at += match &tokens[at..] {
                [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] if hash.as_char() == '#' => {
                    if is_for_tests(attribute) { 2 + item_length(&tokens[at + 2..]) } else { 2 }
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(body), ..] if word == "mod" => {
                    let inner = [module, &[name.to_string()]].concat();
                    self.read(&body.stream(), &inner);
                    3
                }
                [TokenTree::Ident(word), TokenTree::Ident(_), ..] if word == "mod" => 2,
                [TokenTree::Ident(word), rest @ ..] if word == "use" => {
                    let length = rest.iter().take_while(|token| !is_punct(token, ';')).count();
                    let is_public = at > 0 && is_visibility(&tokens[..at]);
                    self.read_use(&rest[..length], module, is_public);
                    1 + length
                }
                [TokenTree::Group(group), ..] => {
                    self.read(&group.stream(), module);
                    1
                }
                [TokenTree::Ident(_), ..] => {
                    let after_path =
                        at >= 1 && is_punct(&tokens[at - 1], '.') || at >= 2 && is_colons(&tokens[at - 2..at]);
                    let (names, length) = path_at(&tokens[at..]);
                    let begins = names[0] == "crate"
                        || names[0] == "super"
                        || names[0] == "self"
                        || self.children.contains(&names[0]);
                    if names.len() > 1 && begins && !after_path {
                        self.add(&names, module, tokens[at].span().start().line);
                    }
                    length
                }
                _ => 1,
            };
        }
    }

    fn read_use(&mut self, tree: &[TokenTree], module: &[String], is_public: bool) {
        // A door only hands on; what else it imports counts.
        let hands_on = is_public && (self.file == "mod.rs" || self.file.ends_with("/mod.rs"));
        for (path, name) in leaves(tree, &[]) {
            let line = tree.first().map_or(0, |token| token.span().start().line);
            let Some(path) = self.absolute(&path, module) else { continue };
            if is_public && tree.last().is_some_and(|token| is_punct(token, '*')) {
                self.stars.push(line);
            }
            // Also one that is not public: a module below may import it from here.
            self.renamed.push(([module, &[name]].concat(), path.clone()));
            if !hands_on {
                self.found.push(Import { file: self.file.to_owned(), line, path });
            }
        }
    }

    fn add(&mut self, path: &[String], module: &[String], line: usize) {
        if let Some(path) = self.absolute(path, module) {
            self.found.push(Import { file: self.file.to_owned(), line, path });
        }
    }

    /// The names from the crate's root; none of another crate's.
    fn absolute(&self, path: &[String], module: &[String]) -> Option<Names> {
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let above = module.len().checked_sub(ups)?;
                Some([&module[..above], &path[ups..]].concat())
            }
            name if self.children.contains(name) => Some([module, path].concat()),
            _ => None,
        }
    }
}

/// The paths that a tree of `use` brings, and the names that they have then.
fn leaves(tree: &[TokenTree], before: &[String]) -> Vec<(Names, String)> {
    let mut path = before.to_vec();
    for (place, token) in tree.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "as" => {
                let name = tree.get(place + 1).map_or_else(String::new, ToString::to_string);
                return vec![(path, name)];
            }
            TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(list) => {
                let list: Vec<_> = list.stream().into_iter().collect();
                return list.split(|token| is_punct(token, ',')).flat_map(|tree| leaves(tree, &path)).collect();
            }
            // Of a star the module is known, which is enough for an arrow.
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    if path.len() == before.len() && tree.is_empty() { Vec::new() } else { vec![(path, name)] }
}

/// The names of the path that begins here, and how many tokens it has.
fn path_at(tokens: &[TokenTree]) -> (Names, usize) {
    let mut names = vec![tokens[0].to_string()];
    let mut length = 1;
    while let [_, _, TokenTree::Ident(name), ..] = &tokens[length..]
        && is_colons(&tokens[length..length + 2])
    {
        names.push(name.to_string());
        length += 3;
    }
    (names, length)
}

/// Whether these two are `::`; a type may stand behind a single colon.
fn is_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(first), TokenTree::Punct(second)]
        if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':')
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// Whether what stands before a `use` makes it public, be it in the crate only.
fn is_visibility(before: &[TokenTree]) -> bool {
    let is_pub = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "pub");
    match before {
        [.., word, TokenTree::Group(group)] => group.delimiter() == Delimiter::Parenthesis && is_pub(word),
        [.., word] => is_pub(word),
        [] => false,
    }
}

fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// How many tokens the item has that begins here.
fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| {
        is_punct(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    tokens.iter().position(ends).map_or(tokens.len(), |end| end + 1)
}
