//! `turnmill events`: read the journal.

use super::records::{self, Query};
use super::{Context, Error, Exit, timeline};

/// Print the steps of turns, from the events topic.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  turnmill events --turn t-1
  turnmill events --follow
  turnmill events --partition 3 --offset 17 --json

With --json each line is an event as it is on the topic. Exit code 3: the turn or session has no events.")]
pub(crate) struct Args {
    /// Only the events of this turn.
    #[arg(long, value_name = "ID")]
    turn: Option<String>,
    /// Only the events of this session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only this partition; `events` of a result names it.
    #[arg(long, value_name = "N")]
    partition: Option<i32>,
    /// Begin at this offset of the partition.
    #[arg(long, value_name = "N", requires = "partition")]
    offset: Option<i64>,
    /// Go on with new events until Ctrl-C.
    #[arg(long)]
    follow: bool,
}

/// Runs the command.
///
/// # Errors
/// The topic or the turn is not there, or no broker answers.
pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let Args { turn, session, partition, offset, follow } = args;
    let query = Query { turn, session, partition, offset, follow };
    let topic = &context.config.topics.events;
    records::run(context, topic, &query, timeline::event).await
}
