//! What a turn appends, and what of it is acknowledged and confirmed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::Halt;
use crate::journal::{self, Contents, Journal, Receipt};
use crate::record::StepEvent;

/// The appends of one run of a turn.
pub(in crate::worker) struct Writer {
    pub(in crate::worker) journal: Journal,
    /// The drain's time is over: nothing more is waited for.
    given_up: CancellationToken,
    /// Held while an event is handed over: what it says that it was made from is what was handed over before it.
    turn: tokio::sync::Mutex<()>,
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
    pending: Vec<(Weight, Receipt)>,
    /// Why one never will be.
    failed: Option<journal::Error>,
    first: Option<i64>,
    last: Option<i64>,
    last_content: Option<i64>,
    /// How many events that later ones may be made from were handed over.
    contents: Contents,
}

impl Appended {
    /// Takes in what was acknowledged meanwhile. Others may wait for the same: each leaves once, when it was heard of.
    ///
    /// # Errors
    /// Something has failed, now or before.
    fn take_in(&mut self) -> Result<(), Halt> {
        let Self { pending, failed, first, last, last_content, .. } = self;
        pending.retain(|(weight, receipt)| match receipt.now() {
            None => true,
            Some(Err(error)) => {
                failed.get_or_insert(error);
                false
            }
            Some(Ok(offset)) => {
                *first = Some(first.map_or(offset, |first| first.min(offset)));
                *last = (*last).max(Some(offset));
                if *weight == Weight::Content {
                    *last_content = (*last_content).max(Some(offset));
                }
                false
            }
        });
        failed.clone().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Writer {
    /// `first` is the offset of the turn's first event, where an earlier run has written it.
    pub(in crate::worker) fn new(journal: Journal, given_up: CancellationToken, first: Option<i64>) -> Self {
        let appended = Appended { first, ..Appended::default() };
        Self { journal, given_up, turn: tokio::sync::Mutex::default(), appended: Mutex::new(appended) }
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
        let _turn = self.turn.lock().await;
        self.hand_over(event, weight).await
    }

    /// Hands over what is made from everything that was handed over so far, and waits for none of that: where it never
    /// comes to the log, this does not count either (rule 13).
    ///
    /// # Errors
    /// Of that, something is known to have failed.
    pub(in crate::worker) async fn append_made(&self, event: &mut StepEvent) -> Result<(), Halt> {
        let _turn = self.turn.lock().await;
        event.made_from = {
            let mut appended = self.appended();
            appended.take_in()?;
            Some(appended.contents.count())
        };
        self.hand_over(event, Weight::Content).await
    }

    async fn hand_over(&self, event: &mut StepEvent, weight: Weight) -> Result<(), Halt> {
        let receipt = self.journal.append(event).await?;
        let mut appended = self.appended();
        appended.pending.push((weight, receipt));
        appended.contents.add(event);
        Ok(())
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
        for receipt in pending {
            receipt.acknowledged().await?;
        }
        self.appended().take_in()
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
