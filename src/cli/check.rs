//! `turnmill check`: everything that is wrong, at once.

use serde_json::json;

use super::program::Program;
use super::{Error, Exit, print};
use crate::config::Problem;
use crate::kafka::{self, topics};
use crate::worker::bind::Bound;

/// Check configuration, agents, tools, refusals and topics; report all problems at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ask no broker: leave the topics out.
    #[arg(long)]
    offline: bool,
}

/// What was found, by kind.
#[derive(Default)]
struct Findings {
    configuration: Vec<String>,
    refusals: Vec<String>,
    topics: Vec<String>,
    permissions: Vec<String>,
    brokers: Vec<String>,
}

/// Looks at everything and prints what it found. `problems` is what the settings have wrong that the program
/// was put together without; there is no program where nothing was left of them.
pub(crate) async fn run(
    args: Args,
    program: Option<&Program>,
    problems: &[Problem],
    json: bool,
) -> Result<Exit, Error> {
    let mut found = Findings::default();
    found.configuration.extend(problems.iter().map(ToString::to_string));
    let mut summary = String::new();
    if let Some(program) = program {
        let Bound { agents, problems, refusals } = program.look();
        found.configuration.extend(problems.iter().map(ToString::to_string));
        found.refusals.extend(refusals.iter().map(ToString::to_string));
        summary = format!("{} agents, {} tools", agents.len(), program.registry.iter().count());
        if !args.offline {
            look_at_topics(program, &mut found).await;
        }
    }
    let exit = found.exit();
    if json {
        print::json(&json!({
            "ok": exit == Exit::Done,
            "configuration": found.configuration,
            "refusals": found.refusals,
            "topics": found.topics,
            "permissions": found.permissions,
            "brokers": found.brokers,
        }))?;
        return Ok(exit);
    }
    let kinds = [
        ("configuration", &found.configuration),
        ("refused", &found.refusals),
        ("topics", &found.topics),
        ("permissions", &found.permissions),
        ("brokers", &found.brokers),
    ];
    for (kind, lines) in kinds {
        for line in lines {
            print::line(format!("{kind}: {line}"))?;
        }
    }
    if exit == Exit::Done {
        print::line(format!("everything is right: {summary}"))?;
    }
    Ok(exit)
}

async fn look_at_topics(program: &Program, found: &mut Findings) {
    match topics::check_for_worker(&program.loaded.config).await {
        Ok(report) => {
            found.topics.extend(report.problems);
            found.permissions.extend(report.denied.iter().map(ToString::to_string));
            for unknown in report.unknown {
                tracing::warn!("{unknown}");
            }
        }
        Err(error @ kafka::error::Error::Config(_)) => found.configuration.push(error.to_string()),
        Err(error) => found.brokers.push(error.to_string()),
    }
}

impl Findings {
    /// Configuration before refusals before the brokers: what has to be mended first.
    fn exit(&self) -> Exit {
        if ![&self.configuration, &self.topics, &self.permissions].into_iter().all(Vec::is_empty) {
            Exit::Usage
        } else if !self.refusals.is_empty() {
            Exit::Refused
        } else if !self.brokers.is_empty() {
            Exit::Failed
        } else {
            Exit::Done
        }
    }
}
