//! What is turned off while the worker runs: agents and tools.

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{Switches as Settings, WhenOff};

/// What is turned off now, for everything that asks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Switches(Arc<watch::Sender<Settings>>);

impl Switches {
    /// As the configuration has it.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(Arc::new(watch::Sender::new(settings.clone())))
    }

    /// From now on. Turns that run go on, and what they call next is what is meant.
    pub(crate) fn set(&self, settings: Settings) {
        self.0.send_replace(settings);
    }

    /// Hears of every change.
    pub(super) fn changes(&self) -> watch::Receiver<Settings> {
        self.0.subscribe()
    }

    /// What becomes of an agent's turns, if it is turned off.
    pub(super) fn agent(&self, name: &str) -> Option<WhenOff> {
        self.0.borrow().agents.get(name).copied()
    }

    /// Whether a tool is turned off.
    pub(super) fn tool_is_off(&self, name: &str) -> bool {
        self.0.borrow().tools.iter().any(|off| off == name)
    }
}
