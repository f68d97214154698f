//! The end of a record: what is published, and in which order.

use super::*;

impl Run {
    /// Records what the turn answers, then publishes it.
    pub(super) async fn answer(
        self,
        answer: Result<String, Failure>,
        usage: ResultUsage,
    ) -> Result<Done, Halt> {
        let mut answer = answer;
        let mut event = self.event(EventType::TurnOutput);
        event.usage = Some(usage);
        fill_answer(&mut event, &answer);
        match self.writer.append_made(&mut event).await {
            Err(Halt::Journal(journal::Error::TooLarge { size, max })) => {
                answer = Err(Failure::new(
                    code::RECORD_TOO_LARGE,
                    format!("the answer makes an event of {size} bytes; the events topic takes {max}"),
                ));
                fill_answer(&mut event, &answer);
                self.writer.append_made(&mut event).await?;
            }
            appended => appended?,
        }
        self.publish(answer, usage).await
    }

    /// Publishes what the turn answers. A poisoned turn's record goes to the dead letters too.
    pub(super) async fn publish(
        self,
        answer: Result<String, Failure>,
        usage: ResultUsage,
    ) -> Result<Done, Halt> {
        // Before the result is made: it says where the events are.
        self.writer.confirm().await?;
        let result = self.result(&answer, usage);
        let mut end = self.event(EventType::TurnEnd);
        end.input_offset = Some(self.record.offset);
        end.input_hash = Some(self.identity.input.clone());
        end.turn_status = Some(result.status);
        end.status = Some(if answer.is_ok() { Status::Ok } else { Status::Error });
        end.error = answer.as_ref().err().map(short);
        let dead_letter = answer.as_ref().err().filter(|failure| failure.code == code::POISON);
        let last = Last { dead_letter, result: Some(&result) };
        let last = self.end(&last, end).await?;
        self.count(result.status);
        match &result.error {
            // A line for each would be most of what a busy worker writes, and a good part of what it does.
            None => tracing::debug!(status = result.status.as_str(), "turn ended"),
            Some(error) => {
                tracing::info!(status = result.status.as_str(), code = error.code.as_ref(), "turn ended")
            }
        }
        Ok(Done::Ended(Some(End { input: self.identity.input, input_offset: self.record.offset }), last))
    }

    /// The record goes to the dead letters; where somebody waits for a turn of its id, a failed result says
    /// so. Where nothing of the turn is recorded, its end is recorded under an id made from its offset, so that the
    /// turn id stays free for a record that mends it; a turn that has steps has ended, or its keys could carry
    /// other inputs.
    pub(super) async fn bury(self, failure: &Failure, answer: bool) -> Result<Done, Halt> {
        let failure = &short(failure);
        tracing::warn!(
            topic = self.shared.turns_topic,
            code = %failure.code,
            error = failure.for_operator(),
            "dead letter"
        );
        self.writer.confirm().await?;
        let result = answer.then(|| self.result(&Err(failure.clone()), ResultUsage::default()));
        let last = Last { dead_letter: Some(failure), result: result.as_ref() };
        let Record { partition, offset, .. } = self.record;
        let mut end = self.event(EventType::TurnEnd);
        if !self.has_steps {
            end.turn_id = Some(TurnId::of_record(&self.shared.turns_topic, partition, offset));
        }
        end.input_offset = Some(offset);
        end.input_hash = Some(self.identity.input.clone());
        end.turn_status = Some(TurnStatus::DeadLetter);
        end.status = Some(Status::Error);
        end.error = Some(failure.clone());
        let last = self.end(&last, end).await?;
        self.count(TurnStatus::DeadLetter);
        let end = self.has_steps.then_some(End { input: self.identity.input, input_offset: offset });
        Ok(Done::Ended(end, last))
    }

    fn count(&self, status: TurnStatus) {
        let (metrics, agent) = (metrics(), self.agent_label());
        metrics.turns.with_label_values(&[agent, status.as_str()]).inc();
        metrics.turn_duration.with_label_values(&[agent]).observe(self.begun.elapsed().as_secs_f64());
        if let Some(sent) = self.record.timestamp {
            let took = u64::try_from((self.shared.clock)().saturating_sub(sent)).unwrap_or(0);
            let took = Duration::from_millis(took).as_secs_f64();
            metrics.turn_end_to_end.with_label_values(&[agent]).observe(took);
        }
    }

    /// All events are confirmed; now what is published, then `turn:end` (rule 16), or all of it in one transaction
    /// (rule 25).
    async fn end(&self, last: &Last<'_>, mut end: Box<StepEvent>) -> Result<LastEvent, Halt> {
        let outbox = &self.shared.outbox;
        let journal = &self.writer.journal;
        let appended = if let Some(transactions) = &self.transactions {
            let end = journal.record(&mut end)?;
            outbox.commit(transactions, &self.record, last, end).await?;
            None
        } else {
            outbox.publish(&self.record, last).await?;
            Some((journal.clone(), journal.append(&mut end).await?))
        };
        if let Some(failure) = last.dead_letter {
            metrics().dead_letters.with_label_values(&[failure.code.as_ref()]).inc();
        }
        Ok(LastEvent { appended, given_up: self.stop.now.clone() })
    }

    fn result(&self, answer: &Result<String, Failure>, usage: ResultUsage) -> TurnResult {
        let span = self.writer.span();
        TurnResult {
            turn_id: self.identity.turn.clone(),
            session_id: self.identity.session.clone(),
            agent: self.agent.clone(),
            status: turn_status(answer),
            output: answer.as_ref().ok().cloned(),
            error: answer.as_ref().err().cloned().map(Failure::without_detail),
            usage,
            events: span.map(|(first_offset, last_offset)| EventSpan {
                partition: self.writer.journal.partition(),
                first_offset,
                last_offset,
            }),
        }
    }
}

fn fill_answer(event: &mut StepEvent, answer: &Result<String, Failure>) {
    event.status = Some(if answer.is_ok() { Status::Ok } else { Status::Error });
    event.turn_status = Some(turn_status(answer));
    event.output = answer.as_ref().ok().and_then(|text| serde_json::value::to_raw_value(text).ok());
    event.error = answer.as_ref().err().cloned();
}

fn turn_status(answer: &Result<String, Failure>) -> TurnStatus {
    match answer {
        Ok(_) => TurnStatus::Completed,
        Err(failure) if failure.code == code::CANCELLED => TurnStatus::Cancelled,
        Err(_) => TurnStatus::Failed,
    }
}
