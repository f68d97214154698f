//! What may use what: the folders of `src` keep to their layers, and codes and metrics to their pages.

mod pages;
mod source;

use std::collections::BTreeSet;
use std::path::Path;

use source::{Mention, Source, mentions};

/// What the files under a folder may use.
struct Rule {
    folder: &'static str,
    /// Of this crate: these folders; everything where there are none.
    only: &'static [&'static str],
    never: &'static [&'static str],
}

/// No I/O, no clock, no randomness, no threads.
const IMPURE: &[&str] = &[
    "tokio",
    "tokio_util",
    "futures_util",
    "rdkafka",
    "reqwest",
    "tracing",
    "rand",
    "uuid",
    "getrandom",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::thread",
    "std::fs",
    "std::net",
    "std::env",
    "std::io",
    "std::process",
];

/// What wires everything, and is used by nothing below it.
const ABOVE: &[&str] = &["crate::worker", "crate::cli", "crate::app"];

const RULES: &[Rule] = &[
    Rule { folder: "turn", only: &["turn"], never: IMPURE },
    Rule { folder: "record", only: &["turn", "record"], never: IMPURE },
    Rule { folder: "tool", only: &["turn", "tool", "http", "metrics", "retry"], never: ABOVE },
    Rule { folder: "agent", only: &["turn", "tool", "agent", "config"], never: ABOVE },
    Rule { folder: "model", only: &[], never: ABOVE },
    Rule { folder: "journal", only: &[], never: ABOVE },
    Rule { folder: "kafka", only: &[], never: ABOVE },
];

impl Rule {
    fn forbids(&self, mention: &Mention) -> bool {
        let outside = match mention.path.as_slice() {
            [root, folder, ..] if root == "crate" => {
                !self.only.is_empty() && !self.only.contains(&folder.as_str())
            }
            _ => false,
        };
        outside || self.never.iter().any(|path| is_under(mention, path))
    }
}

fn src() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn is_under(mention: &Mention, path: &str) -> bool {
    let wanted: Vec<_> = path.split("::").collect();
    mention.path.len() >= wanted.len() && mention.path.iter().zip(&wanted).all(|(have, want)| have == want)
}

fn broken<'a>(mentions: &'a [Mention], rule: &'a Rule) -> impl Iterator<Item = String> + 'a {
    (mentions.iter())
        .filter(|mention| mention.file.starts_with(rule.folder))
        .filter(|mention| rule.forbids(mention))
        .map(|m| {
            format!(
                "src/{}:{}: src/{}/ must not use {}",
                m.file.display(),
                m.line,
                rule.folder,
                m.path.join("::")
            )
        })
}

#[test]
fn every_folder_keeps_to_its_layer() {
    let mentions = mentions(&src());
    for rule in RULES {
        assert!(src().join(rule.folder).is_dir(), "there is no folder src/{}", rule.folder);
    }
    let broken: Vec<_> = RULES.iter().flat_map(|rule| broken(&mentions, rule)).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn only_the_kafka_folder_uses_rdkafka() {
    let broken: Vec<_> = (mentions(&src()).iter())
        .filter(|m| is_under(m, "rdkafka") && !m.file.starts_with("kafka"))
        .map(|m| format!("src/{}:{}: only src/kafka/ may use rdkafka", m.file.display(), m.line))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn a_broken_rule_is_found_however_it_is_written() {
    let found = |text: &str| {
        let mut source = Source::new(Path::new("turn/engine.rs"));
        source.read(text);
        broken(&source.mentions, &RULES[0]).collect::<Vec<_>>()
    };
    for text in [
        "\nuse tokio::time;",
        "\nfn f() { let x = tokio::spawn(async {}); }",
        "\nfn f() { tokio::select! { _ = a => {} } }",
        "\nuse std::{fmt, time::{Duration, Instant}};",
        "\nuse std::thread::{self, JoinHandle};",
        "\nuse crate::{turn::Hash, worker::driver};",
        "\nuse super::super::worker;",
        "\nuse turnmill::kafka::producer;",
        "\nmod inner { fn f() { super::super::super::cli::main() } }",
        "\nmacro_rules! m { () => { rand::random() } }",
        "\nfn f(at: ::std::time::SystemTime) {}",
        "\n#[cfg(not(test))] use uuid::Uuid;",
        "\n#[derive(Debug)] struct S(std::fs::File);",
    ] {
        let broken = found(text);
        let at = |problem: &String| problem.starts_with("src/turn/engine.rs:2: ");
        assert!(!broken.is_empty() && broken.iter().all(at), "{text}: {broken:?}");
    }
    for text in [
        "// tokio::spawn",
        "/// Uses [`tokio::spawn`] and std::time::Instant.\nfn f() { \"tokio::spawn\"; }",
        "use std::time::Duration; use crate::turn::Hash; use super::Hash; use super::super::turn::Hash;",
        "#[cfg(test)] mod tests { use tokio::time; }",
        "#[cfg(test)] #[allow(unused)] use tokio::time;\nuse std::fmt;",
        "fn f(worker: u8, tokio_like: u8) { worker::<u8>(); }",
    ] {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}

#[test]
fn a_test_in_a_file_of_its_own_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("turn/mod.rs", "mod engine; #[cfg(test)] pub(crate) mod memory;");
    write("turn/engine.rs", "#[cfg(test)]\nmod tests;\nuse tokio::a;");
    write("turn/engine/tests.rs", "mod more; use tokio::b;");
    write("turn/engine/tests/more.rs", "use tokio::c;");
    write("turn/memory.rs", "use tokio::d;");
    let found: Vec<_> = mentions(root.path()).into_iter().filter(|m| is_under(m, "tokio")).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].file.as_path(), found[0].line), (Path::new("turn/engine.rs"), 3));
}

#[test]
fn every_code_has_an_entry_in_the_page_of_errors_and_every_entry_a_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let is_code =
        |heading: &&str| heading.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let headings: Vec<&str> = (text.lines())
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.trim().trim_matches('`'))
        .filter(is_code)
        .collect();
    let entries: BTreeSet<&str> = headings.iter().copied().collect();
    let codes: BTreeSet<&str> = turnmill::turn::code::ALL.iter().copied().collect();
    let missing: Vec<_> = codes.difference(&entries).collect();
    let unknown: Vec<_> = entries.difference(&codes).collect();
    assert!(missing.is_empty(), "docs/errors.md has no entry `## CODE` for {missing:?}");
    assert!(
        unknown.is_empty(),
        "docs/errors.md has entries that are no code of turn::code::ALL: {unknown:?}"
    );
    assert_eq!(headings.len(), entries.len(), "docs/errors.md has a code twice");
}

#[test]
fn no_code_is_there_twice() {
    let codes: BTreeSet<&str> = turnmill::turn::code::ALL.iter().copied().collect();
    assert_eq!(codes.len(), turnmill::turn::code::ALL.len());
}

#[test]
fn every_metric_has_a_row_in_the_page_of_operations_and_every_row_a_metric() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |file: &str, before: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let after = text.split(before).skip(1);
        after.map(|rest| rest.split(['"', '`']).next().unwrap().to_owned()).collect()
    };
    let made = names("src/metrics.rs", "\"turnmill_");
    let told = names("docs/operations.md", "\n| `turnmill_");
    let told: BTreeSet<String> =
        told.into_iter().map(|name| name.split('{').next().unwrap().to_owned()).collect();
    assert!(made.len() > 30, "{made:?}");
    assert_eq!(made, told);
}
