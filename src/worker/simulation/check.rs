//! What must hold of a whole history, from everything that was ever on the logs.

use std::collections::{BTreeSet, HashMap};

use super::log::Of;
use super::world::World;
use crate::journal::Contents;
use crate::record::{EventType, StepEvent};

/// # Errors
/// A promise that was broken.
pub(super) fn whole(world: &World) -> Result<(), String> {
    let accepted = accepted(world);
    contents(&accepted)?;
    ends(world, &accepted)?;
    calls(world, &accepted)?;
    made_from(&accepted)?;
    results(world, &accepted)
}

/// The events that count, by the letter of rules 2, 13 and 26, with all claims known.
pub(super) fn accepted(world: &World) -> Vec<(usize, StepEvent)> {
    let records = world.events.records.iter().enumerate();
    let claims: BTreeSet<i64> = records
        .clone()
        .filter(|(_, record)| record.key.starts_with("claim@"))
        .map(|(offset, _)| offset as i64)
        .collect();
    let counts = |(offset, record): (usize, &super::log::Rec)| {
        if matches!(record.of, Of::Open | Of::Aborted) {
            return None;
        }
        let event: StepEvent = serde_json::from_slice(&record.value).ok()?;
        let fence = event.fence?;
        let between = claims.range(fence + 1..offset as i64).next().is_some();
        (record.of == Of::Committed || !between).then_some((offset, event))
    };
    let mut contents: HashMap<String, Contents> = HashMap::new();
    let whole = |(_, event): &(usize, StepEvent)| contents.entry(name(event)).or_default().admit(event);
    records.filter_map(counts).filter(whole).collect()
}

fn name(event: &StepEvent) -> String {
    let text = |id: Option<&str>| id.unwrap_or_default().to_owned();
    let session = text(event.session_id.as_ref().map(|id| id.as_str()));
    format!("{session}/{}", text(event.turn_id.as_ref().map(|id| id.as_str())))
}

/// A position never has two contents, and nothing runs once it has one.
fn contents(accepted: &[(usize, StepEvent)]) -> Result<(), String> {
    let mut contents: HashMap<String, usize> = HashMap::new();
    for (offset, event) in accepted {
        let Some(key) = event.idempotency_key.as_ref().map(ToString::to_string) else {
            continue;
        };
        if let Some(first) = contents.get(&key) {
            let kind = event.kind.as_str();
            return Err(format!("{key} has a content at {first}, and a {kind} follows at {offset}"));
        }
        if event.is_content() {
            contents.insert(key, *offset);
        }
    }
    Ok(())
}

/// Every turn answers once and ends once.
fn ends(world: &World, accepted: &[(usize, StepEvent)]) -> Result<(), String> {
    for kind in [EventType::TurnOutput, EventType::TurnEnd] {
        let mut count: HashMap<String, u32> = HashMap::new();
        for (_, event) in accepted.iter().filter(|(_, event)| event.kind == kind) {
            *count.entry(name(event)).or_default() += 1;
        }
        let sent: BTreeSet<String> =
            world.turns.iter().map(|sent| format!("{}/{}", sent.session, sent.turn)).collect();
        if let Some(other) = count.keys().find(|turn| !sent.contains(*turn)) {
            return Err(format!("{other} has a {}, and was never sent", kind.as_str()));
        }
        for turn in sent {
            match count.get(&turn) {
                Some(1) => {}
                other => return Err(format!("{turn} has {} of {}", other.unwrap_or(&0), kind.as_str())),
            }
        }
    }
    Ok(())
}

/// What ran is what the record says.
fn calls(world: &World, accepted: &[(usize, StepEvent)]) -> Result<(), String> {
    let results = accepted.iter().filter(|(_, event)| event.kind == EventType::ToolResult);
    let recorded: HashMap<String, String> = results
        .filter_map(|(_, event)| {
            let arguments = event.arguments.as_ref().map(|raw| raw.get().to_owned()).unwrap_or_default();
            Some((event.idempotency_key.as_ref()?.to_string(), arguments))
        })
        .collect();
    let is_step = |event: &StepEvent| event.kind == EventType::Step && event.status.is_some();
    let steps: BTreeSet<String> = (accepted.iter())
        .filter(|(_, event)| is_step(event))
        .filter_map(|(_, event)| event.idempotency_key.as_ref().map(ToString::to_string))
        .collect();
    for (key, (arguments, _)) in &world.ran {
        match recorded.get(key) {
            None if steps.contains(key) => {}
            Some(recorded) if recorded == arguments => {}
            other => return Err(format!("{key} ran with {arguments}, and the record says {other:?}")),
        }
    }
    Ok(())
}

/// Whoever ended a turn went by what counts, and by all of it: as many replies and results as the answer was made from.
fn made_from(accepted: &[(usize, StepEvent)]) -> Result<(), String> {
    let mut used: HashMap<String, (u32, u32)> = HashMap::new();
    for (_, event) in accepted {
        let (replies, results) = used.entry(name(event)).or_default();
        match event.kind {
            // A reply that failed ends the turn, and is not counted.
            EventType::ModelReply if event.error.is_none() => *replies += 1,
            EventType::ToolResult => *results += 1,
            _ => {}
        }
    }
    for (offset, event) in accepted.iter().filter(|(_, event)| event.kind == EventType::TurnOutput) {
        let usage = event.usage.unwrap_or_default();
        let (said, turn) = ((usage.model_calls, usage.tool_calls), name(event));
        if used.get(&turn) != Some(&said) {
            return Err(format!(
                "{turn} was made from {said:?} by {offset}, and on the log are {:?}",
                used.get(&turn)
            ));
        }
    }
    Ok(())
}

/// Every result of a turn is what was recorded, the first ones of a session come in order, and in exactly-once mode
/// there is one.
fn results(world: &World, accepted: &[(usize, StepEvent)]) -> Result<(), String> {
    let mut answers: HashMap<String, String> = HashMap::new();
    for (_, event) in accepted.iter().filter(|(_, event)| event.kind == EventType::TurnOutput) {
        let output = event.output.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        answers.insert(name(event), output.unwrap_or_else(|| format!("{:?}", event.error.as_ref())));
    }
    let mut first: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut seen: HashMap<String, u32> = HashMap::new();
    for result in &world.results {
        let turn = format!("{}/{}", result.session, result.turn);
        let recorded = answers.get(&turn);
        if recorded != Some(&result.answer) {
            return Err(format!("{turn} answers {}, and the record says {recorded:?}", result.answer));
        }
        let count = seen.entry(turn).or_default();
        *count += 1;
        if *count == 1 {
            first.entry(&result.session).or_default().push(&result.turn);
        } else if world.exactly_once {
            return Err(format!("{}/{} has two results", result.session, result.turn));
        }
    }
    let mut order: HashMap<&str, Vec<&str>> = HashMap::new();
    for sent in &world.turns {
        let session = order.entry(&sent.session).or_default();
        if !session.contains(&sent.turn.as_str()) {
            session.push(&sent.turn);
        }
    }
    if first != order {
        return Err(format!("the first results come in the order {first:?}, and the turns in {order:?}"));
    }
    Ok(())
}
