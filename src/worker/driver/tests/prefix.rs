//! A crash after every record of the log: what is recorded is not done again, and the turn comes to the same.

use super::*;

/// The keys of the calls whose tools have to run, as a whole run starts them.
async fn keys_to_run(shape: &Shape) -> Vec<String> {
    World::finished(shape).await.facts().starts.into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_comes_to_its_end_with_one_result_and_one_turn_end() {
    for shape in shapes::all() {
        let world = World::new(&shape);
        assert!(world.finish().await.is_finished(), "{}", shape.name);
        world.check(&world.result(), "undisturbed");
        world.check_whole("undisturbed").await;
        let poisoned = shape.end == Err(code::POISON);
        assert_eq!(world.outside.dead_letters().len(), usize::from(poisoned), "{}", shape.name);
        assert!(
            matches!(world.finish().await, Delivered::Skipped),
            "{}: a redelivery is skipped",
            shape.name
        );
        assert_eq!(world.outside.results().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn from_every_prefix_of_the_log_a_rerun_comes_to_the_same_and_repeats_nothing_recorded() {
    for shape in shapes::all() {
        let first = World::finished(&shape).await;
        let length = first.log.events().len();
        let keys_to_run = keys_to_run(&shape).await;
        for count in 0..=length {
            let context = format!("{}, after {count} of {length} records", shape.name);
            let world = World::cut(&shape, count).await;
            let before = world.facts();
            let delivered = world.finish().await;
            if before.ends == 1 {
                assert!(matches!(delivered, Delivered::Skipped), "{context}");
                assert!(world.outside.sent().is_empty(), "{context}");
                continue;
            }
            assert!(delivered.is_finished(), "{context}: {delivered:?}");
            check_rerun(&world, &before, &keys_to_run, &context);
            let result = world.result();
            world.check(&result, &context);
            if before.outputs == 1 {
                let first = first.result();
                assert_eq!((result.output, result.error), (first.output, first.error), "{context}");
            }
            world.check_whole(&context).await;
        }
    }
}

/// What a rerun asked and ran, given what was recorded before.
fn check_rerun(world: &World, before: &Facts, keys_to_run: &[String], context: &str) {
    let due = |key: &str| !before.has(key) && before.outputs == 0;
    let after = world.facts();
    let asked = after.replies.iter().filter(|(position, _)| due(&format!("{KEY}/{position}")));
    let mut to_ask: Vec<_> = asked.map(|(_, reply)| reply.clone()).collect();
    let mut asked = world.outside.asked();
    to_ask.sort();
    asked.sort();
    assert_eq!(asked, to_ask, "{context}: the model is asked for what is not recorded");

    // What may run at most once has done so.
    let once = |key: &str| key.contains("/once:") && before.starts.contains_key(key);
    let to_run: Vec<_> = keys_to_run.iter().filter(|key| due(key) && !once(key)).collect();
    assert_eq!(world.outside.keys_run().iter().collect::<Vec<_>>(), to_run, "{context}: the tools that run");
    for key in to_run {
        let runs = world.outside.runs();
        let attempt = runs.iter().find(|run| run.key == *key).unwrap().attempt;
        let expected = before.starts.get(key).map_or(1, |started| started + 1);
        assert_eq!(attempt, expected, "{context}: the first attempt of {key}");
        let start = world.facts().starts[key];
        assert_eq!(start, expected, "{context}: the attempt on the log of {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_says_where_its_events_are() {
    let shape = shapes::two_parallel_tools();
    for count in 0..World::finished(&shape).await.log.events().len() {
        let world = World::cut(&shape, count).await;
        world.finish().await;
        let events = world.log.events();
        let first = events.iter().position(|event| event.turn_id.is_some()).unwrap();
        let last = events.iter().rposition(|event| event.kind != EventType::TurnEnd).unwrap();
        let span = world.result().events.unwrap();
        let found = (span.partition, span.first_offset, span.last_offset);
        assert_eq!(found, (0, i64::try_from(first).unwrap(), i64::try_from(last).unwrap()), "after {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interruption_of_the_rerun_changes_nothing_either() {
    for shape in [shapes::two_parallel_tools(), shapes::all().remove(9)] {
        let length = World::finished(&shape).await.log.events().len();
        for first in 0..length {
            let again = World::cut(&shape, first).await;
            again.finish().await;
            for second in first..again.log.events().len() {
                let world = World::cut(&shape, first).await;
                world.finish().await;
                world.log.truncate(second);
                world.outside.forget();
                let ended = world.facts().ends == 1;
                assert_eq!(world.finish().await.is_finished(), !ended);
                world.check_whole(&format!("after {first} and {second}")).await;
            }
        }
    }
}
