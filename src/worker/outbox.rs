//! What leaves a turn: results and dead letters.

use std::sync::Arc;

use async_trait::async_trait;

use crate::config::Topics;
use crate::kafka::Header;
use crate::kafka::consumer::Record;
use crate::kafka::paced::Paced;
use crate::kafka::producer::{Error, Outgoing};
use crate::kafka::transactions::{Owned, Transactions};
use crate::record::{TurnResult, TurnStatus, dead_letter};
use crate::turn::{Failure, Hash, code};

/// How much of a reason is kept, in characters: it may quote what it is about, and both must fit a record.
const MAX_REASON: usize = 4000;

/// The failure with as much of its text as fits any record.
pub(super) fn short(failure: &Failure) -> Failure {
    let mut short = failure.clone();
    shorten(&mut short.message);
    if let Some(detail) = &mut short.detail {
        shorten(detail);
    }
    short
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_REASON) {
        let size = text.len();
        text.truncate(end);
        text.push_str(&format!(" .. ({size} bytes in all)"));
    }
}

/// Where records go out; acknowledged when it returns.
#[async_trait]
pub(super) trait Sink: Send + Sync + 'static {
    /// Sends a record and waits for its acknowledgement.
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error>;

    /// Why nothing can ever be sent again, if that is so.
    fn fatal(&self) -> Option<String> {
        None
    }
}

#[async_trait]
impl Sink for Paced {
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error> {
        Paced::send(self, record).await.map(drop)
    }

    fn fatal(&self) -> Option<String> {
        Paced::fatal(self)
    }
}

/// What a record ends with, beside its `turn:end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last<'a> {
    /// Why the record goes to the dead letters, if it does.
    pub dead_letter: Option<&'a Failure>,
    /// What is published, if anybody waits.
    pub result: Option<&'a TurnResult>,
}

/// Publishes results and dead letters.
pub(super) struct Outbox {
    sink: Arc<dyn Sink>,
    topics: Topics,
}

impl Outbox {
    /// Publishes to these topics.
    pub(super) fn new(sink: Arc<dyn Sink>, topics: &Topics) -> Self {
        Self { sink, topics: topics.clone() }
    }

    /// Why nothing can ever be published again, if that is so.
    pub(super) fn fatal(&self) -> Option<String> {
        self.sink.fatal()
    }

    /// Publishes what a record ends with, the dead letter first, each acknowledged before the next.
    ///
    /// # Errors
    /// Something is not on its topic; the worker must not go on as if it were.
    pub(super) async fn publish(&self, record: &Record, last: &Last<'_>) -> Result<(), Error> {
        for mut leaving in self.leaving(record, last) {
            while let Err(error) = self.sink.send(leaving.form.outgoing()).await {
                if !matches!(error, Error::TooLarge { .. }) || !leaving.shrink() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Publishes what a record ends with and its `turn:end` in one transaction (rule 25).
    ///
    /// # Errors
    /// Nothing of it is visible, or nobody knows.
    pub(super) async fn commit(
        &self,
        transactions: &Transactions,
        record: &Record,
        last: &Last<'_>,
        end: (i32, String, Vec<u8>),
    ) -> Result<(), Error> {
        let mut leaving: Vec<_> = self.leaving(record, last).collect();
        let (partition, key, value) = end;
        let end = Owned {
            topic: self.topics.events.clone(),
            partition: Some(partition),
            key: Some(key.into_bytes()),
            value: Some(value),
            headers: Vec::new(),
        };
        loop {
            let records = leaving.iter().map(|leaving| &leaving.form).chain([&end]).cloned().collect();
            let error = match transactions.commit(records).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Error::TooLarge { topic, .. } = &error else {
                return Err(error);
            };
            let too_large = leaving.iter_mut().find(|leaving| leaving.form.topic == *topic);
            if !too_large.is_some_and(Leaving::shrink) {
                return Err(error);
            }
        }
    }

    fn leaving<'a>(&'a self, record: &'a Record, last: &Last<'a>) -> impl Iterator<Item = Leaving<'a>> {
        let letter = last.dead_letter.map(|why| What::Letter(record, why));
        let result = last.result.map(What::Result);
        (letter.into_iter().chain(result)).map(|what| Leaving::new(&self.topics, what))
    }
}

/// What leaves.
enum What<'a> {
    /// A record goes to the dead letters, for this reason.
    Letter(&'a Record, &'a Failure),
    /// A result.
    Result(&'a TurnResult),
}

/// A record that leaves, in the largest of its forms that its topic may take. Of a dead letter: with its value; without
/// it, whose hash and size say what it was; without key and headers of its own either, because topic, partition and
/// offset say where all of it still is. Of a result: as it is; as a failed one that says so.
struct Leaving<'a> {
    topics: &'a Topics,
    what: What<'a>,
    form: Owned,
    /// How many forms were too large.
    refused: usize,
}

impl<'a> Leaving<'a> {
    fn new(topics: &'a Topics, what: What<'a>) -> Self {
        let form = match what {
            What::Letter(record, why) => letter(topics, record, why),
            What::Result(result) => whole(topics, result),
        };
        Self { topics, what, form, refused: 0 }
    }

    /// Its topic does not take it: the next smaller form, if there is one.
    fn shrink(&mut self) -> bool {
        self.refused += 1;
        match (&self.what, self.refused) {
            (What::Letter(..), 1) => {
                if let Some(value) = self.form.value.take() {
                    let headers = &mut self.form.headers;
                    headers.push(text(dead_letter::VALUE_SHA256, Hash::of_bytes(&value).to_string()));
                    headers.push(text(dead_letter::VALUE_SIZE, value.len().to_string()));
                }
            }
            (What::Letter(record, _), 2) => {
                self.form.key = None;
                self.form.headers.drain(..record.headers.len());
            }
            (What::Result(result), 1) => {
                let size = self.form.value.as_ref().map_or(0, Vec::len);
                self.form = whole(
                    self.topics,
                    &TurnResult {
                        status: TurnStatus::Failed,
                        output: None,
                        error: Some(Failure::new(
                            code::RECORD_TOO_LARGE,
                            format!(
                                "the result of {size} bytes is larger than topic {} takes",
                                self.topics.results
                            ),
                        )),
                        ..(*result).clone()
                    },
                );
            }
            _ => return false,
        }
        true
    }
}

/// A result as it is.
fn whole(topics: &Topics, result: &TurnResult) -> Owned {
    Owned {
        topic: topics.results.clone(),
        key: Some(result.session_id.as_str().into()),
        value: serde_json::to_vec(result).ok(),
        ..Owned::default()
    }
}

/// A dead letter: the record as it was received, with the reason in its headers.
fn letter(topics: &Topics, record: &Record, why: &Failure) -> Owned {
    let mut headers = record.headers.clone();
    headers.extend([
        text(dead_letter::CODE, why.code.to_string()),
        text(dead_letter::MESSAGE, short(why).for_operator().to_owned()),
        text(dead_letter::TOPIC, topics.turns.clone()),
        text(dead_letter::PARTITION, record.partition.to_string()),
        text(dead_letter::OFFSET, record.offset.to_string()),
    ]);
    headers.extend(record.timestamp.map(|at| text(dead_letter::TIMESTAMP, at.to_string())));
    Owned {
        topic: topics.dead_letters.clone(),
        partition: None,
        key: record.key.clone(),
        value: record.value.clone(),
        headers,
    }
}

fn text(name: &str, value: String) -> Header {
    (name.to_owned(), Some(value.into_bytes()))
}
