//! What leaves a turn: results and dead letters.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;

use crate::config::Topics;
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
        let letters = last.dead_letter.iter().map(|why| self.letters(record, why));
        for mut forms in letters.chain(last.result.iter().map(|result| self.results(result))) {
            while let Some(form) = forms.pop_front() {
                match self.sink.send(form.outgoing()).await {
                    Err(Error::TooLarge { .. }) if !forms.is_empty() => {}
                    sent => {
                        sent?;
                        break;
                    }
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
        let mut forms: Vec<VecDeque<Owned>> = Vec::new();
        forms.extend(last.dead_letter.iter().map(|why| self.letters(record, why)));
        forms.extend(last.result.iter().map(|result| self.results(result)));
        let (partition, key, value) = end;
        let end = Owned {
            topic: self.topics.events.clone(),
            partition: Some(partition),
            key: Some(key.into_bytes()),
            value: Some(value),
            headers: Vec::new(),
        };
        loop {
            let records = forms.iter().filter_map(VecDeque::front).chain([&end]).cloned().collect();
            let error = match transactions.commit(records).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Error::TooLarge { topic, .. } = &error else {
                return Err(error);
            };
            let too_large =
                forms.iter_mut().find(|forms| forms.front().is_some_and(|form| form.topic == *topic));
            match too_large.filter(|forms| forms.len() > 1) {
                Some(forms) => drop(forms.pop_front()),
                None => return Err(error),
            }
        }
    }

    /// The forms of a result: as it is; where its topic does not take that, a failed one that says so.
    fn results(&self, result: &TurnResult) -> VecDeque<Owned> {
        let owned = |result: &TurnResult| Owned {
            topic: self.topics.results.clone(),
            key: Some(result.session_id.as_str().into()),
            value: serde_json::to_vec(result).ok(),
            ..Owned::default()
        };
        let whole = owned(result);
        let size = whole.value.as_ref().map_or(0, Vec::len);
        let failed = TurnResult {
            status: TurnStatus::Failed,
            output: None,
            error: Some(Failure::new(
                code::RECORD_TOO_LARGE,
                format!("the result of {size} bytes is larger than topic {} takes", self.topics.results),
            )),
            ..result.clone()
        };
        [whole, owned(&failed)].into()
    }

    /// The forms of a dead letter: the record as it was received, with the reason in its headers; where the topic
    /// does not take that, without the value, whose hash and size say what it was; where it still does not,
    /// without key and headers of its own. Topic, partition and offset say where all of it still is.
    fn letters(&self, record: &Record, why: &Failure) -> VecDeque<Owned> {
        let text = |name: &str, value: String| (name.to_owned(), Some(value.into_bytes()));
        let mut reason = vec![
            text(dead_letter::CODE, why.code.to_string()),
            text(dead_letter::MESSAGE, short(why).for_operator().to_owned()),
            text(dead_letter::TOPIC, self.topics.turns.clone()),
            text(dead_letter::PARTITION, record.partition.to_string()),
            text(dead_letter::OFFSET, record.offset.to_string()),
        ];
        reason.extend(record.timestamp.map(|at| text(dead_letter::TIMESTAMP, at.to_string())));
        let whole = Owned {
            topic: self.topics.dead_letters.clone(),
            partition: None,
            key: record.key.clone(),
            value: record.value.clone(),
            headers: [record.headers.clone(), reason.clone()].concat(),
        };
        if let Some(value) = &record.value {
            reason.push(text(dead_letter::VALUE_SHA256, Hash::of_bytes(value).to_string()));
            reason.push(text(dead_letter::VALUE_SIZE, value.len().to_string()));
        }
        let headers = [record.headers.clone(), reason.clone()].concat();
        let without_value = Owned { value: None, headers, ..whole.clone() };
        let least = Owned { key: None, value: None, headers: reason, ..whole.clone() };
        [whole, without_value, least].into()
    }
}
