//! Standard output: colour only on a terminal, one record a line, and a quiet end when its reader goes.

use std::fmt;
use std::io::{ErrorKind, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::{Error, Exit};

/// The word `error`.
const ERROR: Style = AnsiColor::Red.on_default().bold();
/// The word `warning`.
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Prints a line. Colour is kept where standard output is a terminal that wants it.
///
/// # Errors
/// Its reader has gone: an error without a text. Or it cannot be written to.
pub(crate) fn line(line: impl fmt::Display) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::new(Exit::Done, ""),
        _ => Error::new(Exit::Failed, format!("standard output cannot be written to: {error}")),
    })
}

/// Prints a value as one line of JSON.
///
/// # Errors
/// As of [`line`].
pub(crate) fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value)
        .map_err(|e| Error::new(Exit::Failed, format!("the output is no JSON: {e}")))?;
    line(text)
}

/// Prints why a command failed to standard error.
pub(crate) fn error(text: impl fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{ERROR}error:{ERROR:#} {text}");
}

/// Prints a warning to standard error.
pub(crate) fn warning(text: impl fmt::Display) {
    // Nobody may be reading it; the command is not about its warnings.
    let _ = writeln!(anstream::stderr(), "{WARNING}warning:{WARNING:#} {text}");
}

/// Text of others as it may go to a terminal: what would move the cursor, change colours or turn the
/// direction of writing is escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => plain.push_str("\\n"),
            '\r' => plain.push_str("\\r"),
            '\t' => plain.push_str("\\t"),
            c if is_unsafe(c) => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    plain
}

/// As [`plain`], with its lines and tabs.
pub(crate) fn plain_lines(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_unsafe(c) && !matches!(c, '\n' | '\t') => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    plain
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_reaches_the_terminal_as_a_command() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\td\u{7f}"), "a\\u{1b}[2Jb\\nc\\td\\u{7f}");
        assert_eq!(plain("\u{202e}käse 🧀 \u{9b}"), "\\u{202e}käse 🧀 \\u{9b}");
        assert_eq!(plain_lines("a\n\tb\r\u{1b}"), "a\n\tb\\u{d}\\u{1b}");
    }
}
