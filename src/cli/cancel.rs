//! `turnmill cancel`: ask the workers to cancel a turn.

use super::{Context, Error, Exit, print};
use crate::kafka::client;
use crate::kafka::producer::{Outgoing, Producer};
use crate::kafka::topics;
use crate::record::Control;
use crate::turn::{SessionId, TurnId};

/// Asks the workers to cancel a turn, through the control topic.
///
/// A turn that runs is cancelled at its next step boundary, and its tools are told; one that waits, or is still
/// to come, when its time comes. Its result has the status "cancelled". A finished turn stays as it is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The turn's id.
    #[arg(value_name = "TURN")]
    turn: String,
    /// Its session; without it, the turn of this id in any session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// An id is none, or no broker answers.
pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let usage = |e: crate::turn::InvalidId| Error::new(Exit::Usage, e.to_string());
    let turn_id = TurnId::new(&args.turn).map_err(usage)?;
    let session_id = args.session.as_deref().map(SessionId::new).transpose().map_err(usage)?;
    let topic = &context.config.topics.control;
    // A producer of its own would take half a minute to notice that it is not there.
    topics::partitions(&context.config.kafka, topic).await?;
    let failed = |e: String| Error::new(Exit::Failed, format!("the cancel could not be sent: {e}"));
    let control = Control::Cancel { turn_id: turn_id.clone(), session_id };
    let value = serde_json::to_vec(&control).map_err(|e| failed(e.to_string()))?;
    let producer = Producer::new(&client::producer(&context.config.kafka), "control")
        .map_err(|e| Error::new(Exit::Usage, client::explain(&e)))?;
    let record = Outgoing {
        topic,
        key: Some(turn_id.as_str().as_bytes()),
        value: Some(&value),
        ..Outgoing::default()
    };
    let sent = producer.send(record).await.map_err(|e| failed(e.to_string()))?;
    sent.wait().await.map_err(|e| failed(e.to_string()))?;
    if context.json {
        print::json(&control)?;
    } else {
        print::line(format!("asked the workers to cancel turn {turn_id}"))?;
    }
    Ok(Exit::Done)
}
