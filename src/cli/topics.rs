//! `turnmill topics`: create and check the topics.

use serde_json::json;

use super::print::{self, warning};
use super::{Context, Error, Exit};
use crate::kafka::topics::{self, Report, Wish, count};

/// Create and check the topics.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Create missing topics, widen the events topic to the turns topic, mend the events topic's settings.
    ///
    /// What is right is left alone: a second run does nothing. Settings of other topics are never changed.
    /// Exit code 2: something is wrong that is not mended here; it is listed.
    Apply(Apply),
    /// Check that the topics are there and have what the guarantees rest on.
    ///
    /// Exit code 2: they do not; all problems are listed.
    Check,
}

#[derive(Debug, Clone, clap::Args)]
struct Apply {
    /// Partitions of new topics, and what turns and events are widened to; never fewer than there are. [default:
    /// as many as there are, else 12]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    partitions: Option<u32>,
    /// Replicas of new topics; -1 is the brokers' default. With 3 or more, two of them must have a record before
    /// it counts as written.
    #[arg(
        long,
        value_name = "N",
        default_value_t = -1,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=i64::from(i16::MAX))
    )]
    replication_factor: i32,
}

/// Runs the command.
///
/// # Errors
/// No broker answers, or they refuse.
pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    match args.command {
        Command::Apply(args) => apply(&args, context).await,
        Command::Check => check(context).await,
    }
}

async fn apply(args: &Apply, context: &Context) -> Result<Exit, Error> {
    let wish = Wish { partitions: args.partitions, replication: args.replication_factor };
    let done = topics::apply(&context.config, wish).await?;
    if context.json {
        print::json(&json!({
            "actions": done.actions,
            "problems": done.problems,
            "unknown": done.unknown,
        }))?;
        return Ok(exit(&done.problems));
    }
    if done.actions.is_empty() {
        print::line("nothing to do")?;
    }
    for action in &done.actions {
        print::line(action)?;
    }
    complain(&done.problems, &done.unknown)?;
    Ok(exit(&done.problems))
}

async fn check(context: &Context) -> Result<Exit, Error> {
    let Report { topics, problems, unknown, .. } = topics::check(&context.config).await?;
    if context.json {
        let topics: Vec<_> = topics
            .iter()
            .map(|(plan, found)| {
                json!({
                    "name": plan.name,
                    "role": plan.role.as_str(),
                    "partitions": found.as_ref().map(|found| found.partitions),
                })
            })
            .collect();
        print::json(&json!({"topics": topics, "problems": problems, "unknown": unknown}))?;
        return Ok(exit(&problems));
    }
    for (plan, found) in &topics {
        let found = found.as_ref().map_or("missing".into(), |found| count(found.partitions));
        print::line(format_args!("topic {} ({}): {found}", plan.name, plan.role.as_str()))?;
    }
    complain(&problems, &unknown)?;
    if problems.is_empty() {
        print::line("all right")?;
    } else {
        warning("`turnmill topics apply` creates topics and mends the events topic");
    }
    Ok(exit(&problems))
}

fn complain(problems: &[String], unknown: &[String]) -> Result<(), Error> {
    for problem in problems {
        print::line(format_args!("problem: {problem}"))?;
    }
    for text in unknown {
        warning(text);
    }
    Ok(())
}

fn exit(problems: &[String]) -> Exit {
    if problems.is_empty() { Exit::Done } else { Exit::Usage }
}
