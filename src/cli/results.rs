//! `turnmill results`: read what came of turns.

use super::records::{self, Query};
use super::{Context, Error, Exit, timeline};

/// Print the results of turns, from the results topic.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  turnmill results --session s-1
  turnmill results --follow --json | jq .output

With --json each line is a result as it is on the topic. Exit code 3: the turn or session has no result.")]
pub(crate) struct Args {
    /// Only the results of this session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only the results of this turn.
    #[arg(long, value_name = "ID")]
    turn: Option<String>,
    /// Go on with new results until Ctrl-C.
    #[arg(long)]
    follow: bool,
}

/// Runs the command.
///
/// # Errors
/// The topic or the result is not there, or no broker answers.
pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let Args { session, turn, follow } = args;
    let query = Query { session, turn, follow, ..Query::default() };
    let topic = &context.config.topics.results;
    records::run(context, topic, &query, timeline::result).await
}
