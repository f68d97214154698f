//! Reading a topic and printing what is asked for of it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::print::{self, plain, warning};
use super::{Context, Error, Exit};
use crate::kafka::client::Isolation;
use crate::kafka::reader::{Reader, Record, Scope, Start, Stop};

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    /// Only of this session.
    pub session: Option<String>,
    /// Only of this turn.
    pub turn: Option<String>,
    /// Only of this partition.
    pub partition: Option<i32>,
    /// From this offset on.
    pub offset: Option<i64>,
    /// Go on with what is written later, until stopped.
    pub follow: bool,
}

impl Query {
    fn scope(&self) -> Scope {
        Scope {
            partition: self.partition,
            start: self.offset.map_or(Start::Beginning, Start::Offset),
            stop: if self.follow { Stop::Never } else { Stop::AtEnd },
            isolation: Isolation::ReadCommitted,
        }
    }

    fn wants(&self, ids: &Ids) -> bool {
        let fits = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        fits(&self.session, &ids.session_id) && fits(&self.turn, &ids.turn_id)
    }

    /// What was not found, where something certain was looked for.
    fn missed(&self, topic: &str) -> Option<Error> {
        let asked = [("turn", &self.turn), ("session", &self.session)];
        let asked: Vec<String> =
            asked.iter().filter_map(|(what, id)| Some(format!("{what} {}", plain(id.as_deref()?)))).collect();
        let partition = self.partition.map_or(String::new(), |p| format!(", partition {p}"));
        (!asked.is_empty()).then(|| {
            let what = asked.join(" of ");
            let text = format!(
                "nothing of {what} on topic {topic}{partition}: it may not have run yet, or be older \
                 than the topic's retention"
            );
            Error::new(Exit::NotFound, text)
        })
    }
}

/// The ids that results and events share, whatever else is in them.
#[derive(Debug, Default, Deserialize)]
struct Ids {
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    turn_id: Option<String>,
}

/// Prints what the query asks for of a topic whose values are `T`, one line each: `line` of it, or the
/// value as it is where JSON is asked for.
pub(super) async fn run<T: DeserializeOwned>(
    context: &Context,
    topic: &str,
    query: &Query,
    line: impl Fn(&T) -> String,
) -> Result<Exit, Error> {
    let mut reader = Reader::open(&context.config.kafka, topic, query.scope()).await?;
    let mut found = false;
    loop {
        let record = match query.follow {
            true => tokio::select! {
                record = reader.next() => record,
                _ = tokio::signal::ctrl_c() => return Ok(Exit::Done),
            },
            false => reader.next().await,
        };
        let Some(record) = record.transpose()? else {
            break;
        };
        let shown = match shown(context, query, &record, &line) {
            Ok(shown) => shown,
            Err(why) => {
                let Record { partition, offset, .. } = record;
                warning(format!("topic {topic}, partition {partition}, offset {offset}: {}", plain(&why)));
                continue;
            }
        };
        if let Some(text) = shown {
            found = true;
            print::line(text)?;
        }
    }
    match query.missed(topic) {
        Some(error) if !found => Err(error),
        _ => Ok(Exit::Done),
    }
}

/// What to print for a record, if anything; or why it cannot be read.
fn shown<T: DeserializeOwned>(
    context: &Context,
    query: &Query,
    record: &Record,
    line: &impl Fn(&T) -> String,
) -> Result<Option<String>, String> {
    let value = record.value.as_deref().ok_or("the record has no value")?;
    let ids: Ids = serde_json::from_slice(value).map_err(|e| format!("the value is not read: {e}"))?;
    if !query.wants(&ids) {
        return Ok(None);
    }
    if context.json {
        return one_line(value).map(Some).map_err(|e| format!("the value is not read: {e}"));
    }
    let decoded = serde_json::from_slice(value).map_err(|e| format!("the value is not read: {e}"))?;
    Ok(Some(line(&decoded)))
}

/// A JSON value as it is, on one line: outside of texts a line break is only white space, and inside
/// it is escaped.
fn one_line(value: &[u8]) -> Result<String, serde_json::Error> {
    let raw: &RawValue = serde_json::from_slice(value)?;
    Ok(raw.get().replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_passed_on_as_it_is_on_one_line() {
        let text = one_line(b" {\r\n \"n\": 1.0,\n \"t\": \"a\\nb\"}\n").unwrap();
        assert_eq!(text, r#"{   "n": 1.0,  "t": "a\nb"}"#);
        assert!(one_line(b"{").is_err());
    }

    #[test]
    fn a_query_picks_by_ids() {
        let ids =
            |session: &str, turn: &str| Ids { session_id: Some(session.into()), turn_id: Some(turn.into()) };
        let query = Query { turn: Some("t".into()), ..Query::default() };
        assert!(query.wants(&ids("a", "t")) && query.wants(&ids("b", "t")));
        assert!(!query.wants(&ids("a", "u")) && !query.wants(&Ids::default()));
        assert!(Query::default().wants(&Ids::default()));
        assert!(Query::default().missed("topic").is_none());
        assert_eq!(query.missed("topic").map(|error| error.exit), Some(Exit::NotFound));
    }
}
