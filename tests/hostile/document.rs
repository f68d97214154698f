//! JSON documents that know what they mean: written with escapes, white space and keys that come twice, beside what a
//! canonical form of them must be. And edits, which make something else of a valid text.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What `serde_json` takes for a text of JSON inside the JSON when it reads a `Value`.
pub const RESERVED: &str = "$serde_json::private::RawValue";

/// A string: how it is written, and what it means; nothing where it is no Unicode text.
#[derive(Debug, Clone)]
pub struct Text {
    pub written: String,
    pub means: Option<String>,
}

#[derive(Debug, Clone)]
pub enum Document {
    /// A number or a word, which means what is written.
    Plain(String),
    Text(Text),
    Array(Vec<Document>),
    Object(Vec<(Text, Document)>),
    /// In so many arrays.
    Deep(usize, Box<Document>),
}

impl Document {
    /// The text, with the white space of this pattern between everything.
    pub fn write(&self, spaces: &[&str]) -> String {
        let mut out = String::new();
        let mut spaces = spaces.iter().cycle();
        self.write_to(&mut out, &mut || spaces.next().copied().unwrap_or_default());
        out
    }

    fn write_to<'a>(&self, out: &mut String, space: &mut impl FnMut() -> &'a str) {
        out.push_str(space());
        match self {
            Self::Plain(written) => out.push_str(written),
            Self::Text(text) => out.push_str(&text.written),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.write_to(out, space);
                }
                out.push_str(space());
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(space());
                    out.push_str(&key.written);
                    out.push_str(space());
                    out.push(':');
                    value.write_to(out, space);
                }
                out.push_str(space());
                out.push('}');
            }
            Self::Deep(levels, inner) => {
                out.push_str(&"[".repeat(*levels));
                inner.write_to(out, space);
                out.push_str(&"]".repeat(*levels));
            }
        }
        out.push_str(space());
    }

    /// The canonical form; nothing where a string in it is no Unicode text.
    pub fn canonical(&self) -> Option<String> {
        Some(match self {
            Self::Plain(written) => written.clone(),
            Self::Text(text) => quoted(text.means.as_deref()?),
            Self::Array(items) => {
                let items: Option<Vec<_>> = items.iter().map(Self::canonical).collect();
                format!("[{}]", items?.join(","))
            }
            Self::Object(members) => {
                let mut last = BTreeMap::new();
                for (key, value) in members {
                    last.insert(key.means.as_deref()?.chars().collect::<Vec<_>>(), value);
                }
                let member = |(key, value): (Vec<char>, &Self)| {
                    Some(format!("{}:{}", quoted(&String::from_iter(key)), value.canonical()?))
                };
                let members: Option<Vec<_>> = last.into_iter().map(member).collect();
                format!("{{{}}}", members?.join(","))
            }
            Self::Deep(levels, inner) => {
                format!("{}{}{}", "[".repeat(*levels), inner.canonical()?, "]".repeat(*levels))
            }
        })
    }

    /// How deeply it is nested.
    pub fn depth(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Text(_) => 0,
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(members) => 1 + members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            Self::Deep(levels, inner) => levels + inner.depth(),
        }
    }

    /// With the members of every object the other way round. Keys that come twice have lost all but the last, whose
    /// order would count.
    pub fn reversed(&self) -> Self {
        match self {
            Self::Array(items) => Self::Array(items.iter().map(Self::reversed).collect()),
            Self::Object(members) => {
                let mut reversed: Vec<(Text, Self)> = Vec::new();
                for (key, value) in members.iter().rev() {
                    if key.means.is_none() || reversed.iter().all(|(other, _)| other.means != key.means) {
                        reversed.push((key.clone(), value.reversed()));
                    }
                }
                Self::Object(reversed)
            }
            Self::Deep(levels, inner) => Self::Deep(*levels, Box::new(inner.reversed())),
            other => other.clone(),
        }
    }
}

/// As canonical JSON has it: nothing is escaped that need not be.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A key or a string that is written without a trick.
pub fn plain(text: &str) -> Text {
    Text { written: quoted(text), means: Some(text.into()) }
}

/// Parts of strings: how they are written and what they mean. No two that stand side by side are one character.
fn part() -> impl Strategy<Value = (String, Option<String>)> {
    let known = |written: &str, means: &str| (written.to_string(), Some(means.to_string()));
    let odd = vec![
        known("\\u0000", "\0"),
        known("\\u001F", "\u{1f}"),
        known("\\u0041", "A"),
        known("\\u005c", "\\"),
        known("\\u0022", "\""),
        known("\\/", "/"),
        known("\\b\\f\\n\\r\\t", "\u{8}\u{c}\n\r\t"),
        known("\\\"{[", "\"{["),
        known("\\\\", "\\"),
        known("\\ud83d\\ude00", "😀"),
        known("\\uFFFF", "\u{ffff}"),
        known("\u{7f}\u{2028}\u{feff}", "\u{7f}\u{2028}\u{feff}"),
        known("e\u{301}", "e\u{301}"),
        known("\u{10ffff}", "\u{10ffff}"),
        known(RESERVED, RESERVED),
        known("\\u0024serde_json::private::RawValue", RESERVED),
    ];
    let broken = ["\\udc00", "\\ud83dx", "\\ud800\\ud800-"].map(|written| (written.to_string(), None));
    prop_oneof![
        24 => "[ a-z0-9]{1,3}".prop_map(|text| (text.clone(), Some(text))),
        16 => select(odd),
        1 => select(broken.to_vec()),
    ]
}

pub fn text() -> impl Strategy<Value = Text> {
    // Short ones from few letters come twice in an object.
    let short = "[ab]".prop_map(|text| plain(&text));
    let parts = prop::collection::vec(part(), 0..4).prop_map(|parts| Text {
        written: format!("\"{}\"", parts.iter().map(|(written, _)| written.as_str()).collect::<String>()),
        means: parts.into_iter().map(|(_, means)| means).collect(),
    });
    prop_oneof![short, parts]
}

fn number() -> impl Strategy<Value = String> {
    let odd =
        ["0", "-0", "1", "1.0", "-0.0", "1e5", "1E+5", "1e-7", "0.1", "1e999", "-1e999", "1e-999", "5e-324"];
    let large = ["9007199254740993", "18446744073709551615", "18446744073709551616", "-9223372036854775809"];
    prop_oneof![
        select([odd.as_slice(), large.as_slice()].concat()).prop_map(String::from),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        (1..400_usize).prop_map(|digits| "7".repeat(digits)),
    ]
}

pub fn document() -> impl Strategy<Value = Document> {
    let leaf = prop_oneof![
        number().prop_map(Document::Plain),
        select(vec!["null", "true", "false"]).prop_map(|word| Document::Plain(word.into())),
        text().prop_map(Document::Text),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let levels = prop_oneof![4 => 1..5_usize, 1 => 115..135_usize];
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..5).prop_map(Document::Array),
            5 => prop::collection::vec((text(), inner.clone()), 0..5).prop_map(Document::Object),
            1 => (levels, inner).prop_map(|(levels, inner)| Document::Deep(levels, Box::new(inner))),
        ]
    })
}

/// An object: what most formats want at the top.
pub fn object() -> impl Strategy<Value = Document> {
    prop::collection::vec((text(), document()), 0..5).prop_map(Document::Object)
}

pub fn spaces() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(vec!["", "", " ", "\n", "\t\r\n  "]), 1..5)
}

/// One change to a text.
#[derive(Debug, Clone)]
pub enum Edit {
    Cut(Index, usize),
    Repeat(Index, usize, usize),
    Swap(Index, Index, usize),
    Insert(Index, Vec<u8>),
    Flip(Index, u8),
    Nest(&'static str, usize, &'static str),
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        // One after the end is a place too.
        let at = |index: &Index| index.index(bytes.len() + 1);
        let part = |from: usize, length: usize| from..(from + length).min(bytes.len());
        match self {
            Self::Cut(index, length) => {
                bytes.drain(part(at(index), *length));
            }
            Self::Repeat(index, length, times) => {
                let part = part(at(index), *length);
                let again = bytes[part.clone()].repeat(*times);
                bytes.splice(part.end..part.end, again);
            }
            Self::Swap(one, other, length) => {
                let (first, second) = (at(one).min(at(other)), at(one).max(at(other)));
                let (first, second) = (part(first, (*length).min(second - first)), part(second, *length));
                let moved = [&bytes[second.clone()], &bytes[first.end..second.start], &bytes[first.clone()]];
                let moved = moved.concat();
                bytes.splice(first.start..second.end, moved);
            }
            Self::Insert(index, more) => {
                let at = at(index);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Flip(index, bit) => {
                let at = at(index);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Nest(open, levels, close) => {
                *bytes = [open.repeat(*levels).as_bytes(), bytes, close.repeat(*levels).as_bytes()].concat();
            }
        }
    }
}

pub fn edited(text: String, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for edit in edits {
        edit.apply(&mut bytes);
    }
    bytes
}

/// Often none: what is written well is to be read too.
pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        "null",
        "-",
        "1e999",
        "\\ud800",
        "\\u0000",
        "\0",
        "\u{a0}",
        "\u{feff}",
        "{}",
        "[]",
        "\"\"",
        "\"a\":1,",
        "\"code\":\"x\",",
        "\"type\":\"claim\",",
        "//",
        "NaN",
    ];
    let words = words.map(|word| word.as_bytes().to_vec());
    let more = prop_oneof![
        4 => select(words.to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..3),
    ];
    let index = any::<Index>;
    let edit = prop_oneof![
        (index(), 1..12_usize).prop_map(|(at, length)| Edit::Cut(at, length)),
        (index(), 1..24_usize, 1..4_usize).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        (index(), index(), 1..12_usize).prop_map(|(one, other, length)| Edit::Swap(one, other, length)),
        (index(), more).prop_map(|(at, more)| Edit::Insert(at, more)),
        (index(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (select(vec![("[", "]"), ("{\"a\":", "}"), ("[", "")]), 1..140_usize)
            .prop_map(|((open, close), levels)| Edit::Nest(open, levels, close)),
    ];
    prop_oneof![
        1 => Just(Vec::new()),
        2 => prop::collection::vec(edit, 1..4),
    ]
}
