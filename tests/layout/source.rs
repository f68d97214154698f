//! What a source file mentions, outside its tests: paths, as the compiler would read them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path in a file: `tokio::time::sleep`, or `crate::worker` however it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    pub file: PathBuf,
    pub line: usize,
    pub path: Vec<String>,
}

/// Everything that the sources under `root` mention outside `#[cfg(test)]`, with paths from the crate's root.
pub fn mentions(root: &Path) -> Vec<Mention> {
    let mut files = Vec::new();
    collect(root, &mut files);
    let sources: Vec<_> = (files.into_iter())
        .map(|file| {
            let text = std::fs::read_to_string(root.join(&file)).unwrap();
            let mut source = Source::new(&file);
            source.read(&text);
            source
        })
        .collect();
    let tests: HashSet<_> = sources.iter().flat_map(|source| source.tests.clone()).collect();
    (sources.into_iter())
        .filter(|source| !tests.iter().any(|test| source.module.starts_with(test)))
        .flat_map(|source| source.mentions)
        .collect()
}

fn collect(root: &Path, files: &mut Vec<PathBuf>) {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
}

/// One file that is read.
pub struct Source {
    file: PathBuf,
    /// The module that the file is, from the crate's root.
    module: Vec<String>,
    /// Modules that are tests, whatever file they are in.
    tests: Vec<Vec<String>>,
    pub mentions: Vec<Mention>,
}

impl Source {
    /// A file, by its path from `src`.
    pub fn new(file: &Path) -> Self {
        let mut module: Vec<String> =
            file.with_extension("").iter().map(|part| part.to_str().unwrap().into()).collect();
        if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            module.pop();
        }
        Self { file: file.into(), module, tests: Vec::new(), mentions: Vec::new() }
    }

    pub fn read(&mut self, text: &str) {
        let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{}: {e}", self.file.display()));
        let module = self.module.clone();
        self.block(tokens, &module);
    }

    /// The tokens of a block whose module is `module`.
    fn block(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if is_test_attribute(&tokens, at) {
                at = self.skip_test(&tokens, at, module);
                continue;
            }
            match token {
                TokenTree::Group(group) => {
                    self.block(group.stream(), &inline_module(&tokens, at, module));
                    at += 1;
                }
                TokenTree::Ident(_) => at = self.path(&tokens, at, module, &[]),
                _ => at += 1,
            }
        }
    }

    /// Reads the path that begins at `at`, behind what stands before its braces; returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, module: &[String], before: &[String]) -> usize {
        let mut path = before.to_vec();
        let line = tokens[at].span().start().line;
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            path.push(ident.to_string());
            if !(is_punct(tokens, at + 1, ':') && is_punct(tokens, at + 2, ':')) {
                at += 1;
                break;
            }
            at += 3;
            if let Some(TokenTree::Group(group)) = tokens.get(at)
                && group.delimiter() == Delimiter::Brace
            {
                self.tree(group.stream(), module, &path);
                return at + 1;
            }
        }
        self.mentions.push(Mention { file: self.file.clone(), line, path: resolve(&path, module) });
        at
    }

    /// The braces of a `use`.
    fn tree(&mut self, tokens: TokenStream, module: &[String], before: &[String]) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(_) => at = self.path(&tokens, at, module, before),
                _ => at += 1,
            }
        }
    }

    /// Skips the item under `#[cfg(test)]`; a module in a file of its own is noted.
    fn skip_test(&mut self, tokens: &[TokenTree], mut at: usize, module: &[String]) -> usize {
        at += 2;
        let mut name = None;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(ident) if ident == "mod" => {
                    name = tokens.get(at + 1).map(ToString::to_string)
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    self.tests.extend(name.map(|name| [module, &[name]].concat()));
                    return at + 1;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return at + 1,
                _ => {}
            }
            at += 1;
        }
        at
    }
}

/// `crate`, `self`, `super` and the crate's own name, from the crate's root: all as `crate::..`.
fn resolve(path: &[String], module: &[String]) -> Vec<String> {
    let mut rest = path;
    let mut base = match rest.first().map(String::as_str) {
        Some("crate" | "turnmill") => Vec::new(),
        Some("self" | "super") => module.to_vec(),
        _ => return path.to_vec(),
    };
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "super" => drop(base.pop()),
            "self" | "crate" | "turnmill" => {}
            _ => break,
        }
        rest = others;
    }
    [&["crate".to_owned()], base.as_slice(), rest].concat()
}

fn is_punct(tokens: &[TokenTree], at: usize, char: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

/// Whether `#[cfg(test)]` begins here.
fn is_test_attribute(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, '#')
        && matches!(tokens.get(at + 1), Some(TokenTree::Group(group))
            if group.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// The module that a group at `at` is: the one around it, or one deeper after `mod NAME`.
fn inline_module(tokens: &[TokenTree], at: usize, module: &[String]) -> Vec<String> {
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
    match (before(2), before(1)) {
        (Some(TokenTree::Ident(word)), Some(TokenTree::Ident(name))) if word == "mod" => {
            [module, &[name.to_string()]].concat()
        }
        _ => module.to_vec(),
    }
}
