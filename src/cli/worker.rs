//! `turnmill worker`: the consumer-group worker.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::program::Program;
use super::reload::Reload;
use super::{Error, Exit};
use crate::admin;
use crate::config::Loaded;
use crate::health::Health;
use crate::worker;
use crate::worker::switches::Switches;

/// Run the worker: join the group, run turns, publish results.
///
/// SIGTERM or Ctrl-C drains: running turns stop at their next step, running tools get until
/// worker.drain_timeout. A second signal exits at once. SIGHUP reads [switches] of the configuration again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs until a signal.
pub(crate) async fn run(_: Args, program: Program) -> Result<Exit, Error> {
    // First: until it is caught, it ends the process.
    let hangup = signal(SignalKind::hangup())
        .map_err(|e| Error::new(Exit::Failed, format!("SIGHUP cannot be caught: {e}")))?;
    let agents = program.bind()?;
    let health = Health::default();
    let admin = admin(&program.loaded, health.clone()).await?;
    let switches = Switches::new(&program.loaded.config.switches);
    let reload = Reload {
        file: program.loaded.file().map(Into::into),
        running: program.written,
        agents: agents.keys().cloned().collect(),
        registry: program.registry.clone(),
        switches: switches.clone(),
    };
    let reload = AbortOnDropHandle::new(tokio::spawn(reload.run(hangup)));
    let shutdown = CancellationToken::new();
    let signals = tokio::spawn(signals(shutdown.clone()));
    let options = worker::Options {
        config: program.loaded.config,
        registry: program.registry,
        deps: program.deps,
        cache: program.cache,
        agents,
        health,
        switches,
    };
    let ended = worker::run(options, shutdown).await;
    signals.abort();
    drop((admin, reload));
    ended.map(|()| Exit::Done).map_err(|error| failed(&error))
}

/// Starts the admin server. Where nobody asked for its address, a second worker of the machine goes without one.
async fn admin(loaded: &Loaded, health: Health) -> Result<Option<AbortOnDropHandle<()>>, Error> {
    match admin::bind(loaded.config.admin.listen).await {
        Ok(listener) => {
            if let Ok(listen) = listener.local_addr() {
                tracing::info!(%listen, "admin server: /metrics, /livez, /readyz");
            }
            Ok(Some(AbortOnDropHandle::new(tokio::spawn(admin::serve(listener, health)))))
        }
        Err(why) if loaded.is_set("admin.listen") => Err(Error::new(Exit::Usage, why)),
        Err(why) => {
            tracing::warn!(%why, "no admin server: give this worker an address of its own");
            Ok(None)
        }
    }
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
