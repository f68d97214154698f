//! Logs: to standard error, as text on a terminal and as JSON elsewhere.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// What is logged where `RUST_LOG` says nothing.
const DEFAULT: &str = "warn,turnmill=info";

/// Starts logging; `quiet` leaves information out where `RUST_LOG` says nothing, for commands whose
/// output is their answer. A program that has a subscriber of its own keeps it.
pub(crate) fn init(quiet: bool) {
    let default = if quiet { "warn" } else { DEFAULT };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let terminal = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // A second call in one process changes nothing.
    let _ = if terminal { builder.try_init() } else { builder.json().flatten_event(true).try_init() };
}
