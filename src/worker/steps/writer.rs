//! What a turn appends, and what of it is acknowledged and confirmed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio_util::sync::CancellationToken;

use super::Halt;
use crate::journal::{Contents, Journal, Receipt, TurnLog};
use crate::record::StepEvent;

/// The appends of one run of a turn.
pub(in crate::worker) struct Writer {
    pub(in crate::worker) journal: Journal,
    /// The drain's time is over: nothing more is waited for.
    given_up: CancellationToken,
    appended: Mutex<Appended>,
}

/// What an event is to those that come after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Weight {
    /// Later steps may be made from it.
    Content,
    /// Nothing is made from it: a start.
    Note,
}

#[derive(Default)]
struct Appended {
    /// Appends that are not acknowledged yet.
    pending: Vec<(Weight, Shared<Receipt>)>,
    first: Option<i64>,
    last: Option<i64>,
    last_content: Option<i64>,
    /// How many records of the turn that later ones may be made from were handed over, in earlier runs too.
    contents: Contents,
}

impl Writer {
    /// What earlier runs of the turn have written is in its `log`.
    pub(in crate::worker) fn new(journal: Journal, given_up: CancellationToken, log: &TurnLog) -> Self {
        let appended = Appended { first: log.first_offset, contents: log.contents, ..Appended::default() };
        Self { journal, given_up, appended: Mutex::new(appended) }
    }

    fn appended(&self) -> MutexGuard<'_, Appended> {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offsets of the turn's first and last event that are acknowledged.
    pub(in crate::worker) fn span(&self) -> Option<(i64, i64)> {
        let appended = self.appended();
        appended.first.zip(appended.last)
    }

    /// Hands an event over.
    pub(in crate::worker) async fn append(&self, event: &mut StepEvent, weight: Weight) -> Result<(), Halt> {
        let receipt = self.journal.append(event).await?;
        let mut appended = self.appended();
        appended.pending.push((weight, receipt.shared()));
        // Not before it was handed over: what another branch hands over meanwhile may come first.
        appended.contents.add(event);
        Ok(())
    }

    /// Hands over what is made from everything that was handed over so far, and waits for none of that: where it never
    /// comes to the log, this does not count either (rule 13).
    pub(in crate::worker) async fn append_made(&self, event: &mut StepEvent) -> Result<(), Halt> {
        event.made_from = Some(self.appended().contents.count());
        self.append(event, Weight::Content).await
    }

    /// Waits until everything appended so far is acknowledged.
    pub(in crate::worker) async fn settle(&self) -> Result<(), Halt> {
        self.settle_all(|_| true).await
    }

    async fn settle_all(&self, which: impl Fn(Weight) -> bool) -> Result<(), Halt> {
        let pending: Vec<_> = (self.appended().pending.iter())
            .filter(|(weight, _)| which(*weight))
            .map(|(_, receipt)| receipt.clone())
            .collect();
        if pending.is_empty() {
            return Ok(());
        }
        for receipt in pending {
            receipt.await?;
        }
        let mut appended = self.appended();
        let Appended { pending, first, last, last_content, .. } = &mut *appended;
        // Others may wait for the same ones: each leaves once, when it was heard of.
        pending.retain(|(weight, receipt)| {
            let Some(Ok(offset)) = receipt.peek() else { return true };
            *first = Some(first.map_or(*offset, |first| first.min(*offset)));
            *last = (*last).max(Some(*offset));
            if *weight == Weight::Content {
                *last_content = (*last_content).max(Some(*offset));
            }
            false
        });
        Ok(())
    }

    /// Waits until everything appended so far is confirmed: what lies before a confirmed event is valid too.
    pub(in crate::worker) async fn confirm(&self) -> Result<(), Halt> {
        self.settle().await?;
        let last = self.appended().last;
        self.confirmed(last).await
    }

    /// As [`Self::confirm`], of that alone which steps may be made from.
    pub(in crate::worker) async fn confirm_content(&self) -> Result<(), Halt> {
        self.settle_content().await?;
        let last = self.appended().last_content;
        self.confirmed(last).await
    }

    /// As [`Self::settle`], of that alone which steps may be made from.
    pub(in crate::worker) async fn settle_content(&self) -> Result<(), Halt> {
        self.settle_all(|weight| weight == Weight::Content).await
    }

    /// A tail that brings nothing must not hold a drain up: nothing is finished then.
    async fn confirmed(&self, offset: Option<i64>) -> Result<(), Halt> {
        let Some(offset) = offset else { return Ok(()) };
        tokio::select! {
            biased;
            confirmed = self.journal.confirmed(offset) => Ok(confirmed?),
            () = self.given_up.cancelled() => Err(Halt::GivenUp),
        }
    }
}
