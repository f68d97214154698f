//! Which turns are to be cancelled, and which of them run.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::kafka::client::Isolation;
use crate::kafka::error::Error;
use crate::kafka::reader::{Reader, Scope, Start, Stop};
use crate::record::{Control, Identity};
use crate::retry::Backoff;
use crate::turn::{SessionId, TurnId, code};

/// How many cancels are remembered for turns that are still to come; the oldest are forgotten.
const REMEMBERED: usize = 100_000;

type Asked = (Option<SessionId>, TurnId);

/// What the control topic asks for. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Cancels {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    asked: HashSet<Asked>,
    order: VecDeque<Asked>,
    running: HashMap<(SessionId, TurnId), CancellationToken>,
}

/// A turn that runs; while this lives, a cancel reaches it.
pub(super) struct Running {
    cancels: Cancels,
    turn: (SessionId, TurnId),
    token: CancellationToken,
}

impl Cancels {
    /// A turn is to be cancelled.
    pub(super) fn ask(&self, control: Control) {
        let Control::Cancel { turn_id, session_id } = control;
        let mut state = self.state();
        for ((session, turn), token) in &state.running {
            if *turn == turn_id && session_id.as_ref().is_none_or(|asked| asked == session) {
                tracing::info!(%session, %turn, code = code::CANCELLED, "cancelled while it runs");
                token.cancel();
            }
        }
        let asked = (session_id, turn_id);
        if state.asked.insert(asked.clone()) {
            state.order.push_back(asked);
        }
        while state.order.len() > REMEMBERED {
            if let Some(oldest) = state.order.pop_front() {
                state.asked.remove(&oldest);
            }
        }
    }

    /// A turn begins to run; its token is cancelled at once if that was asked for before.
    pub(super) fn begin(&self, identity: &Identity, token: CancellationToken) -> Running {
        let turn = (identity.session.clone(), identity.turn.clone());
        let mut state = self.state();
        let asked = |session: Option<SessionId>| state.asked.contains(&(session, turn.1.clone()));
        if asked(None) || asked(Some(turn.0.clone())) {
            token.cancel();
        }
        state.running.insert(turn.clone(), token.clone());
        Running { cancels: self.clone(), turn, token }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the control topic as it is now, whole: what is asked for is known before the first turn runs. Tries
    /// again while no broker answers.
    ///
    /// # Errors
    /// The topic cannot be read, and no later try will go better.
    pub(super) async fn read(&self, config: &Config) -> Result<(), Error> {
        let mut backoff = Backoff::forever();
        loop {
            match self.read_once(config).await {
                Err(error @ Error::Unreachable { .. }) => tracing::warn!(%error, "reading the control topic"),
                read => return read,
            }
            backoff.wait().await;
        }
    }

    async fn read_once(&self, config: &Config) -> Result<(), Error> {
        let mut records = open(config, Stop::AtEnd).await?;
        while let Some(record) = records.next().await {
            self.take(&record?.value.unwrap_or_default());
        }
        Ok(())
    }

    /// Reads the control topic for as long as it is polled. It begins at its beginning again, which changes
    /// nothing: a cancel that is heard twice is one.
    pub(super) async fn follow(&self, config: &Config) -> Infallible {
        let mut backoff = Backoff::forever();
        loop {
            match open(config, Stop::Never).await {
                Ok(mut records) => {
                    backoff = Backoff::forever();
                    while let Some(record) = records.next().await {
                        match record {
                            Ok(record) => self.take(&record.value.unwrap_or_default()),
                            Err(error) => tracing::warn!(%error, "reading the control topic"),
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "the control topic cannot be read, trying again"),
            }
            backoff.wait().await;
        }
    }

    fn take(&self, value: &[u8]) {
        match serde_json::from_slice(value) {
            Ok(control) => self.ask(control),
            Err(error) => tracing::warn!(%error, "a record of the control topic cannot be read, skipped"),
        }
    }
}

async fn open(config: &Config, stop: Stop) -> Result<Reader, Error> {
    let scope = Scope { partition: None, start: Start::Beginning, stop, isolation: Isolation::ReadCommitted };
    Reader::open(&config.kafka, &config.topics.control, scope).await
}

impl Running {
    /// Cancelled when the turn is.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancels.state().running.remove(&self.turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::Hash;

    fn identity(session: &str, turn: &str) -> Identity {
        Identity {
            session: SessionId::new(session).unwrap(),
            turn: TurnId::new(turn).unwrap(),
            input: Hash::of_bytes(b""),
        }
    }

    fn cancel(json: &str) -> Control {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_cancel_reaches_what_runs_and_what_is_still_to_come() {
        let cancels = Cancels::default();
        let begin = |session, turn| cancels.begin(&identity(session, turn), CancellationToken::new());
        let (running, other) = (begin("s", "t"), begin("s2", "t"));
        cancels.ask(cancel(r#"{"type":"cancel","turn_id":"t","session_id":"s"}"#));
        assert!(running.token().is_cancelled() && !other.token().is_cancelled());
        drop(running);
        assert!(begin("s", "t").token().is_cancelled(), "redelivered");
        assert!(!begin("s3", "t").token().is_cancelled());
        cancels.ask(cancel(r#"{"type":"cancel","turn_id":"t"}"#));
        assert!(other.token().is_cancelled() && begin("s3", "t").token().is_cancelled());
    }
}
