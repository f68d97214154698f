//! Logs: to standard error, as text on a terminal and as JSON elsewhere.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How much is logged where `RUST_LOG` says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// Information too: the log is what the command is watched by.
    Information,
    /// Warnings: the command's output is its answer.
    Warnings,
    /// Errors: the command's output tells what a warning would.
    Errors,
}

/// Starts logging. A program that has a subscriber of its own keeps it.
pub(crate) fn init(default: Default) {
    let default = match default {
        Default::Information => "warn,turnmill=info",
        Default::Warnings => "warn",
        Default::Errors => "error",
    };
    let given = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty());
    let filter = EnvFilter::try_new(given.as_deref().unwrap_or(default)).unwrap_or_else(|error| {
        eprintln!("warning: RUST_LOG is ignored: {error}");
        EnvFilter::new(default)
    });
    let terminal = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // A second call in one process changes nothing.
    let _ = if terminal { builder.try_init() } else { builder.json().flatten_event(true).try_init() };
}
