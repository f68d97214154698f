//! `turnmill worker`: the consumer-group worker.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::program::Program;
use super::{Error, Exit};
use crate::worker;

/// Run the worker: join the group, run turns, publish results.
///
/// SIGTERM or Ctrl-C drains: running turns stop at their next step, running tools get until
/// worker.drain_timeout. A second signal exits at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs until a signal.
pub(crate) async fn run(_: Args, program: Program) -> Result<Exit, Error> {
    let agents = program.bind()?;
    let shutdown = CancellationToken::new();
    let signals = tokio::spawn(signals(shutdown.clone()));
    let options = worker::Options {
        config: program.loaded.config,
        registry: program.registry,
        deps: program.deps,
        agents,
    };
    let ended = worker::run(options, shutdown).await;
    signals.abort();
    ended.map(|()| Exit::Done).map_err(|error| failed(&error))
}

/// How a worker's failure looks to the shell.
pub(super) fn failed(error: &worker::Error) -> Error {
    match error {
        worker::Error::Topics(_) => {
            Error::new(Exit::Usage, format!("{error}\n`turnmill topics apply` creates and mends topics"))
        }
        worker::Error::Denied(_) | worker::Error::Client(_) => Error::new(Exit::Usage, error.to_string()),
        worker::Error::Stopped(why) if why.is_refusal() => Error::new(Exit::Refused, why.to_string()),
        worker::Error::Stopped(_) => Error::new(Exit::Failed, error.to_string()),
    }
}

/// The first signal drains, the second ends the process.
pub(super) async fn signals(shutdown: CancellationToken) {
    let (mut term, mut int) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(term), Ok(int)) => (term, int),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "signals cannot be caught: the worker will not drain");
            return;
        }
    };
    for first in [true, false] {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        };
        if first {
            tracing::info!(signal = name, "draining; a second signal ends the process at once");
            shutdown.cancel();
        }
    }
    tracing::warn!("second signal: ending at once; what was not finished comes again");
    std::process::exit(i32::from(Exit::Failed as u8));
}
