//! `turnmill submit`: produce a turn and, if asked, wait for its result.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use serde_json::json;

use super::print::{self, plain_lines};
use super::{Context, Error, Exit, timeline};
use crate::kafka::client::{self, Isolation};
use crate::kafka::producer::{self, Outgoing, Producer, Written};
use crate::kafka::reader::{Reader, Record, Scope, Start, Stop};
use crate::kafka::topics;
use crate::record::{Input, Turn, TurnResult, TurnStatus};
use crate::turn::{SessionId, TurnId};

/// Send a turn to the turns topic.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  turnmill submit --agent support --session s-1 --wait 'Where is order 7?'
  turnmill submit --agent support --session s-1 --turn-id t-1 - < question.txt

Sending a turn again under the same session and turn id is safe while the first waits or runs, and as long as \
the worker remembers it (docs/guarantees.md): it runs once. With --json the turn's id and \
where it is are printed, or with --wait its result, as it is on the topic. Exit code 1: the turn failed, or \
no result came in time.")]
pub(crate) struct Args {
    /// The agent that is to run it.
    #[arg(long, value_name = "NAME")]
    agent: String,
    /// The session: its turns run one after the other.
    #[arg(long, value_name = "ID")]
    session: String,
    /// The turn's id, unique in its session. [default: made from where the record is]
    #[arg(long, value_name = "ID")]
    turn_id: Option<String>,
    /// Wait for the result and print it.
    #[arg(long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// The tools on offer, instead of the agent's own.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// A text for the agent and its model, by name. May be given several times.
    #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// What the agent is asked; `-` reads it from standard input.
    text: String,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=TEXT")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the command.
///
/// # Errors
/// The turn makes no sense, a topic is not there, no broker answers, or no result came in time.
pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let (wait, timeout) = (args.wait, args.timeout);
    let turn = turn(args)?;
    let kafka = &context.config.kafka;
    // A producer of its own would take half a minute to notice either.
    topics::partitions(kafka, &context.config.topics.turns).await?;
    // Before the turn is sent, or its result might be there already.
    let results = match wait {
        true => Some(open_results(context, Start::End, Stop::Never).await?),
        false => None,
    };
    let sent = send(context, turn).await?;
    match results {
        None => {
            report(context, &sent)?;
            Ok(Exit::Done)
        }
        Some(results) => {
            if !context.json {
                report(context, &sent)?;
            }
            wait_for(results, &sent, timeout, context).await
        }
    }
}

/// A turn that is on the topic.
struct Sent {
    session: SessionId,
    turn: TurnId,
    /// The turn was sent under an id of its producer's.
    named: bool,
    at: Written,
}

impl Sent {
    /// The record, if it is the result of this turn.
    fn result(&self, record: Record) -> Option<TurnResult> {
        let result: TurnResult = serde_json::from_slice(&record.value.unwrap_or_default()).ok()?;
        (result.turn_id == self.turn && result.session_id == self.session).then_some(result)
    }
}

fn turn(args: Args) -> Result<Turn, Error> {
    let usage = |error: crate::turn::InvalidId| Error::new(Exit::Usage, error.to_string());
    let turn_id = args.turn_id.as_deref().map(TurnId::new).transpose().map_err(usage)?;
    let session_id = SessionId::new(&args.session).map_err(usage)?;
    Ok(Turn {
        budget: None,
        turn_id,
        session_id: Some(session_id),
        agent: args.agent,
        input: Input::Text(text(args.text)?),
        tools: args.tools,
        deadline_ms: None,
        metadata: args.metadata.into_iter().collect::<BTreeMap<_, _>>(),
    })
}

fn text(given: String) -> Result<String, Error> {
    if given != "-" {
        return Ok(given);
    }
    let mut text = String::new();
    (std::io::stdin().read_to_string(&mut text))
        .map_err(|e| Error::new(Exit::Usage, format!("the text cannot be read from standard input: {e}")))?;
    // The line's end is the shell's, not the question's.
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

async fn open_results(context: &Context, start: Start, stop: Stop) -> Result<Reader, Error> {
    let scope = Scope { partition: None, start, stop, isolation: Isolation::ReadCommitted };
    Ok(Reader::open(&context.config.kafka, &context.config.topics.results, scope).await?)
}

async fn send(context: &Context, turn: Turn) -> Result<Sent, Error> {
    let topic = &context.config.topics.turns;
    let failed = |why: String| Error::new(Exit::Failed, format!("the turn was not sent: {why}"));
    let value = serde_json::to_vec(&turn).map_err(|e| failed(e.to_string()))?;
    let Turn { session_id: Some(session), turn_id, .. } = turn else {
        return Err(failed("it has no session".into()));
    };
    let producer = Producer::new(&client::producer(&context.config.kafka), "turns")
        .map_err(|e| Error::new(Exit::Usage, client::explain(&e)))?;
    let record = Outgoing {
        topic,
        key: Some(session.as_str().as_bytes()),
        value: Some(&value),
        ..Outgoing::default()
    };
    let written = match producer.send(record).await {
        Ok(receipt) => receipt.wait().await,
        Err(error) => Err(error),
    };
    let at = written.map_err(|error| match error {
        producer::Error::TooLarge { .. } => {
            Error::new(Exit::Usage, format!("the turn was not sent: {error}"))
        }
        other => failed(other.to_string()),
    })?;
    let named = turn_id.is_some();
    let turn = turn_id.unwrap_or_else(|| TurnId::of_record(topic, at.partition, at.offset));
    Ok(Sent { session, turn, named, at })
}

fn report(context: &Context, sent: &Sent) -> Result<(), Error> {
    let Sent { session, turn, at, .. } = sent;
    match context.json {
        true => print::json(&json!({
            "turn_id": turn,
            "session_id": session,
            "partition": at.partition,
            "offset": at.offset,
        })),
        false => print::line(format_args!("turn {turn}  partition {}  offset {}", at.partition, at.offset)),
    }
}

async fn wait_for(
    mut results: Reader,
    sent: &Sent,
    timeout: Duration,
    context: &Context,
) -> Result<Exit, Error> {
    let limit = tokio::time::sleep(timeout);
    tokio::pin!(limit);
    loop {
        let next = tokio::select! {
            next = results.next() => next,
            () = &mut limit => break,
        };
        let Some(record) = next.transpose()? else {
            return Err(Error::new(Exit::Failed, "the results topic ended"));
        };
        if let Some(result) = sent.result(record) {
            return show(&result, context);
        }
    }
    // A turn that had ended before is not run again, and has no second result. An id that was made from the record
    // cannot have been sent before.
    let earlier = if sent.named { earlier(sent, context).await? } else { None };
    match earlier {
        Some(result) => {
            print::warning("the turn was sent before and has ended; this is its result");
            show(&result, context)
        }
        None => Err(late(sent, timeout, context)),
    }
}

async fn earlier(sent: &Sent, context: &Context) -> Result<Option<TurnResult>, Error> {
    let mut results = open_results(context, Start::Beginning, Stop::AtEnd).await?;
    let mut found = None;
    while let Some(record) = results.next().await {
        found = sent.result(record?).or(found);
    }
    Ok(found)
}

fn show(result: &TurnResult, context: &Context) -> Result<Exit, Error> {
    match context.json {
        true => print::json(result)?,
        false => show_text(result)?,
    }
    Ok(if result.status == TurnStatus::Completed { Exit::Done } else { Exit::Failed })
}

fn show_text(result: &TurnResult) -> Result<(), Error> {
    print::line(format_args!("{}  {}", result.status.as_str(), timeline::usage(result)))?;
    if let Some(error) = &result.error {
        print::line(plain_lines(&timeline::failure(error)))?;
    }
    match &result.output {
        Some(output) => print::line(plain_lines(output)),
        None => Ok(()),
    }
}

fn late(sent: &Sent, timeout: Duration, context: &Context) -> Error {
    let Sent { session, turn, at, .. } = sent;
    let topic = &context.config.topics.turns;
    let message = format!(
        "no result of turn {turn} of session {session} within {}: the turn is still on topic {topic}, partition \
         {}, offset {}, and runs when a worker gets to it\n`turnmill results --turn {turn} --follow` waits \
         for it; if none comes, check that a worker runs, and the dead letters",
        humantime::format_duration(timeout),
        at.partition,
        at.offset
    );
    Error::new(Exit::Failed, message)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        let start = ["submit", "--agent", "a", "--session", "s"];
        Cli::try_parse_from(start.iter().chain(line)).map(|cli| cli.args)
    }

    #[test]
    fn the_line_becomes_a_turn() {
        let line = ["--tools", "x,y", "--metadata", "k=a=b", "--metadata", "l=", "--turn-id", "t", "hi"];
        let turn = turn(parse(&line).unwrap()).unwrap();
        assert_eq!(
            serde_json::to_string(&turn).unwrap(),
            r#"{"turn_id":"t","session_id":"s","agent":"a","input":"hi","tools":["x","y"],"metadata":{"k":"a=b","l":""}}"#
        );
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse(&["--metadata", "k", "hi"]).is_err());
        assert!(parse(&["--timeout", "soon", "hi"]).is_err());
        let bad = turn(parse(&["--turn-id", "a b", "hi"]).unwrap()).unwrap_err();
        assert_eq!(bad.exit, Exit::Usage);
        assert_eq!(text(parse(&["-5"]).map_or("-5".into(), |args| args.text)).unwrap(), "-5");
    }
}
