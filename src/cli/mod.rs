//! What a user types: one file a command.
//!
//! | file | holds |
//! | --- | --- |
//! | `program` | settings, tools, models and agents, put together |
//! | `dev` | `turnmill dev`: everything in one process |
//! | `worker` | `turnmill worker` |
//! | `check` | `turnmill check` |
//! | `topics` | `turnmill topics apply`, `turnmill topics check` |
//! | `submit` | `turnmill submit`: produce a turn, wait for its result |
//! | `results` | `turnmill results` |
//! | `events` | `turnmill events` |
//! | `records` | reading a topic and printing what is asked for of it |
//! | `timeline` | how results and events look to a person |
//! | `cancel` | `turnmill cancel` |
//! | `print` | standard output: colour, one record a line, a reader that has gone |

mod cancel;
mod check;
mod dev;
mod events;
mod print;
mod program;
mod records;
mod reload;
mod results;
mod submit;
mod timeline;
mod topics;
mod worker;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::app::App;
use crate::config::{self, Config, ConfigError, Loaded};
use crate::kafka;
use crate::telemetry;
use program::Program;

/// A Kafka-driven agent worker: durable steps, one idempotency key per tool call, one result per turn.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 not found, 4 refused.")]
struct Cli {
    /// The configuration file [default: turnmill.toml, if it is there].
    #[arg(long, global = true, value_name = "FILE", env = "TURNMILL_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON, one value a line, instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::Args),
    Worker(worker::Args),
    Check(check::Args),
    Topics(topics::Args),
    Submit(submit::Args),
    Results(results::Args),
    Events(events::Args),
    Cancel(cancel::Args),
}

/// Runs the command of the process's arguments.
pub(crate) fn main(app: App) -> ExitCode {
    // Prints help, a version or what is wrong with the arguments, and ends with 0 or 2.
    let cli = Cli::parse();
    telemetry::init(match cli.command {
        Command::Worker(_) => telemetry::Default::Information,
        Command::Dev(_) => telemetry::Default::Errors,
        _ => telemetry::Default::Warnings,
    });
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no threads can be started: {error}");
            return Exit::Failed.into();
        }
    };
    let ended = runtime.block_on(run(cli, app));
    // A blocking tool that outlives the drain cannot be stopped; the process does not wait for it.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit.into(),
        // Whoever read the output has gone.
        Err(error) if error.message.is_empty() => error.exit.into(),
        Err(error) => {
            print::error(&error);
            error.exit.into()
        }
    }
}

async fn run(cli: Cli, app: App) -> Result<Exit, Error> {
    let Cli { config, json, command } = cli;
    let load = || config::load(config.as_deref(), config::environment());
    let context = |loaded: Loaded| Context { config: loaded.config, json };
    match command {
        // Without a file of its own, it brings everything it needs.
        Command::Dev(args) => dev::run(args, app, config.is_some().then(load).transpose()?, json).await,
        Command::Worker(args) => worker::run(args, Program::new(app, load()?)).await,
        Command::Check(args) => match config::look(config.as_deref(), config::environment()) {
            Ok((loaded, problems)) => {
                check::run(args, Some(&Program::new(app, loaded)), &problems, json).await
            }
            Err(error) => check::run(args, None, &error.problems, json).await,
        },
        Command::Topics(args) => topics::run(args, &context(load()?)).await,
        Command::Submit(args) => submit::run(args, &context(load()?)).await,
        Command::Results(args) => results::run(args, &context(load()?)).await,
        Command::Events(args) => events::run(args, &context(load()?)).await,
        Command::Cancel(args) => cancel::run(args, &context(load()?)).await,
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, format!("the configuration cannot be used:\n{error}"))
    }
}

/// What every command is given.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The settings.
    pub config: Config,
    /// Print JSON, one value a line, instead of text for people.
    pub json: bool,
}

/// How a command ends, for the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It did what it was asked.
    Done = 0,
    /// It failed, or what it waited for did.
    Failed = 1,
    /// It was asked for something that makes no sense, or the configuration makes none.
    Usage = 2,
    /// What it was asked about is not there.
    NotFound = 3,
    /// It refused.
    Refused = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed: what, where, why, and what to do about it. Without a text it ends quietly: whoever
/// read its output has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    /// What the shell is told.
    pub exit: Exit,
    /// What a person is told.
    pub message: String,
}

impl Error {
    /// An error with this text.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<kafka::error::Error> for Error {
    fn from(error: kafka::error::Error) -> Self {
        use kafka::error::Error as Kafka;
        let (exit, advice) = match &error {
            Kafka::Config(_) => (Exit::Usage, ""),
            Kafka::Unreachable { .. } => (
                Exit::Failed,
                "\ncheck that Kafka runs there, that kafka.brokers names it, and that kafka.properties has \
                 the security settings that it wants",
            ),
            Kafka::NoTopic { .. } => (
                Exit::NotFound,
                "\n`turnmill topics apply` creates the topics that [topics] of the configuration names",
            ),
            Kafka::NoPartition { .. } => (Exit::NotFound, ""),
            Kafka::Denied(_) | Kafka::Failed { .. } => (Exit::Failed, ""),
        };
        Self::new(exit, format!("{error}{advice}"))
    }
}
