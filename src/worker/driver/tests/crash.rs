//! Workers that lose appends, die or are taken over while the outside remembers what they did: whatever happened, one key
//! carries one input, one result is published, and the next worker completes the turn.

use proptest::prelude::*;

use super::*;
use log::Fault;
use shapes::{NEW, calling, done};

/// Delivers the record to workers with these faults, then to one without.
async fn survive(shape: &Shape, faults: &[Fault]) {
    let context = format!("{faults:?}");
    let world = World::new(shape);
    for fault in faults {
        let before = world.facts();
        let delivered = Lossy::deliver(&world, *fault).await;
        let untroubled =
            |delivered: &Delivered| delivered.is_finished() || matches!(delivered, Delivered::Skipped);
        match &delivered {
            None => {}
            Some(Delivered::Halted(Halt::Journal(_))) => {}
            // The fault came too late to matter.
            Some(delivered) if untroubled(delivered) && world.facts().ends == 1 => {}
            Some(other) => panic!("{}, {context}: {other:?}", shape.name),
        }
        if world.facts().outputs == 0 {
            let results = world.outside.results();
            assert!(results.is_empty(), "{}, {context}: published before its events", shape.name);
        }
        assert!(world.facts().ends >= before.ends);
    }
    world.finish().await;
    assert!(!world.outside.results().is_empty(), "{}, {context}: no result", shape.name);
    let poisoned = shape.end == Err(code::POISON);
    assert_eq!(!world.outside.dead_letters().is_empty(), poisoned, "{}, {context}: dead letters", shape.name);
    world.check_whole(&context).await;
}

async fn appends(shape: &Shape) -> usize {
    World::finished(shape).await.log.events().len()
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_lose_everything_from_any_append_on() {
    for shape in shapes::all() {
        for first in 0..appends(&shape).await {
            survive(&shape, &[Fault::From(first)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_lose_any_one_append() {
    for shape in shapes::all() {
        for one in 0..appends(&shape).await {
            survive(&shape, &[Fault::Only(one)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_die_at_any_append() {
    for shape in shapes::all() {
        for last in 0..appends(&shape).await {
            survive(&shape, &[Fault::Death(last)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_workers_may_fail_one_after_the_other() {
    let names = ["no tools", "a tool that is tried again", "three replies", "poison"];
    for shape in shapes::all().into_iter().filter(|shape| names.contains(&shape.name)) {
        let appends = appends(&shape).await;
        for first in 0..appends {
            for second in 0..appends {
                survive(&shape, &[Fault::From(first), Fault::Death(second)]).await;
                survive(&shape, &[Fault::Only(first), Fault::From(second)]).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_partition_was_taken_over_at_any_append_starts_nothing_new_and_ends_nothing() {
    for shape in shapes::all() {
        let appends = appends(&shape).await;
        // The claim itself comes too early: then there is nobody to take over from.
        for at in 1..appends {
            let context = format!("{}, taken over at {at}", shape.name);
            let world = World::new(&shape);
            let delivered = Lossy::deliver(&world, Fault::Takeover(at)).await;
            assert!(
                matches!(delivered, Some(Delivered::Halted(Halt::Journal(_)))),
                "{context}: {delivered:?}"
            );
            let published = if at == appends - 1 { 2 } else { 1 };
            assert_eq!(world.outside.results().len(), published, "{context}: one, and one before turn:end");
            world.check_whole(&context).await;
            assert!(matches!(world.finish().await, Delivered::Skipped), "{context}");
        }
    }
}

/// The keys and inputs of the one call, over two workers, the first of which loses the reply that made it, alone or with
/// all that came after; and how the turn ends.
async fn runs_where_a_reply_is_lost(
    durable: bool,
    fault: fn(usize) -> Fault,
) -> (Vec<(String, serde_json::Value)>, Result<(), String>) {
    let shape = Shape::calling("one call", &[("echo", NEW)]);
    let mut world = World::new(&shape);
    world.durable = durable;
    let events = World::finished(&shape).await.log.events();
    let reply = events.iter().position(|event| event.kind == EventType::ModelReply).unwrap();
    let delivered = Lossy::deliver(&world, fault(reply)).await;
    assert!(matches!(delivered, Some(Delivered::Halted(Halt::Journal(_)))), "{delivered:?}");
    assert!(world.finish().await.is_finished());
    let end = world.result().error.map_or(Ok(()), |failure| Err(failure.code.into_owned()));
    (world.outside.runs().into_iter().map(|run| (run.key, run.arguments)).collect(), end)
}

#[tokio::test(start_paused = true)]
async fn only_without_step_boundary_durability_does_a_lost_reply_give_a_key_another_input() {
    for fault in [Fault::Only, Fault::From] {
        let (runs, end) = runs_where_a_reply_is_lost(true, fault).await;
        assert_eq!(runs.len(), 1, "nothing started before the reply was confirmed: {runs:?}");
        assert_eq!(end, Ok(()));
    }
    let (runs, end) = runs_where_a_reply_is_lost(false, Fault::From).await;
    assert_eq!((runs.len(), end), (2, Ok(())), "{runs:?}");
    assert_eq!(runs[0].0, runs[1].0, "one key");
    assert_ne!(runs[0].1, runs[1].1, "two inputs: the model was asked again, and said something else");
    // Where the call's start is on the log, the other input is refused.
    let (runs, end) = runs_where_a_reply_is_lost(false, Fault::Only).await;
    assert_eq!((runs.len(), end), (1, Err(code::REPLAY_INPUT_CHANGED.into())), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn without_step_boundary_durability_turns_end_all_the_same_and_what_is_recorded_is_not_done_again() {
    for shape in shapes::all() {
        let mut world = World::new(&shape);
        world.durable = false;
        assert!(world.finish().await.is_finished());
        world.check_whole("without a crash").await;
    }
    let shape = shapes::two_parallel_tools();
    for count in 1..appends(&shape).await {
        let mut world = World::cut(&shape, count).await;
        world.durable = false;
        world.finish().await;
        world.check_whole(&format!("after {count} records")).await;
    }
}

/// Replies of one to three calls each, of tools that fail or do not, and a last word.
fn any_turn() -> impl Strategy<Value = Shape> {
    const TOOLS: &[&str] = &["echo", "slow", "flaky", "broken", "panics", "nope", "strict", "huge"];
    let reply = prop::collection::vec(prop::sample::select(TOOLS), 1..4);
    prop::collection::vec(reply, 0..4).prop_map(|replies| {
        let calls = replies.iter().map(Vec::len).sum::<usize>();
        let used = (u32::try_from(replies.len() + 1).unwrap(), u32::try_from(calls).unwrap());
        let saying = |names: &Vec<&str>| calling(&names.iter().map(|name| (*name, NEW)).collect::<Vec<_>>());
        let script = replies.iter().map(saying).chain([done()]);
        Shape { max_tool_calls: 32, ..Shape::new("generated", script, Ok("done"), used) }
    })
}

fn any_fault() -> impl Strategy<Value = Fault> {
    (0..40usize, 0..3).prop_map(|(at, kind)| match kind {
        0 => Fault::From(at),
        1 => Fault::Only(at),
        _ => Fault::Death(at),
    })
}

proptest! {
    #[test]
    fn any_turn_survives_what_up_to_three_workers_lose(
        shape in any_turn(),
        faults in prop::collection::vec(any_fault(), 1..4),
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(survive(&shape, &faults));
    }
}
