//! Records that are no turn or not to be run, and a sink that is down.

use super::shapes::{NEW, calling, done};
use super::*;
use crate::record::dead_letter;
use crate::tool::Spec;

fn shape() -> Shape {
    Shape::calling("one call", &[("echo", NEW)])
}

/// A world whose record has this value.
fn given(turn: &str) -> World {
    World { turn: turn.into(), ..World::new(&shape()) }
}

/// The one dead letter: as received, with the reason and where it came from in headers of its own.
fn check_dead_letter(world: &World, code: &str) {
    let letters = world.outside.dead_letters();
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = &letters[0];
    assert_eq!(letter.key.as_deref(), Some(&b"key"[..]));
    assert_eq!(letter.value.as_ref(), Some(&world.turn));
    let header = |name: &str| {
        let found = letter.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_ref().map(|value| String::from_utf8(value.clone()).unwrap()))
    };
    assert_eq!(header("own"), Some(None), "its own headers stay");
    assert_eq!(header(dead_letter::CODE), Some(Some(code.into())));
    assert_eq!(header(dead_letter::TOPIC), Some(Some("agent.turns".into())));
    assert_eq!(header(dead_letter::PARTITION), Some(Some("0".into())));
    assert_eq!(header(dead_letter::OFFSET), Some(Some(world.offset.to_string())));
    assert_eq!(header(dead_letter::TIMESTAMP), Some(Some("4000000000000".into())));
    assert!(header(dead_letter::MESSAGE).flatten().is_some_and(|text| !text.is_empty()));
}

/// The last event: the end of a record, not of a turn.
fn check_buried(world: &World) {
    let events = world.log.events();
    let end = events.last().unwrap();
    assert_eq!((end.kind, end.turn_status), (EventType::TurnEnd, Some(TurnStatus::DeadLetter)));
    assert_eq!(end.turn_id.as_ref().unwrap().as_str(), format!("agent.turns:0:{}", world.offset));
    assert_eq!(end.input_offset, Some(world.offset));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_no_turn_is_a_dead_letter_and_answers_who_waits() {
    let cases = [
        ("{", code::INVALID_JSON, None),
        (r#"{"agent":"a","input":"x","turn_id":"a b"}"#, code::INVALID_TURN, None),
        (r#"{"agent":"a","turn_id":"t-1","session_id":"s/1"}"#, code::INVALID_TURN, Some("t-1")),
        (r#"{"agent":"b","turn_id":"t-1","session_id":"s/1","input":"x"}"#, code::UNKNOWN_AGENT, Some("t-1")),
        (r#"{"agent":"b","input":"x"}"#, code::UNKNOWN_AGENT, Some("agent.turns:0:7")),
    ];
    for (turn, code, answered) in cases {
        let world = given(turn);
        let delivered = world.finish().await;
        assert!(matches!(delivered, Delivered::Finished(None)), "{turn}: {delivered:?}");
        check_dead_letter(&world, code);
        check_buried(&world);
        let results = world.outside.results();
        let ids: Vec<_> = results.iter().map(|result| result.turn_id.as_str()).collect();
        assert_eq!(ids, answered.into_iter().collect::<Vec<_>>(), "{turn}");
        for result in results {
            assert_eq!((result.status, result.error.unwrap().code.as_ref()), (TurnStatus::Failed, code));
            assert!(result.events.is_none(), "{turn}");
        }
        assert!(matches!(world.finish().await, Delivered::Skipped), "{turn}: it is not buried twice");
        assert_eq!(world.outside.dead_letters().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_turn_id_of_a_dead_letter_stays_free_for_the_record_that_mends_it() {
    let mut world = given(&TURN.replace(r#""agent":"a""#, r#""agent":"b""#));
    world.finish().await;
    assert_eq!(world.result().error.unwrap().code, code::UNKNOWN_AGENT);
    world.outside.forget();
    (world.turn, world.offset) = (TURN.into(), 8);
    assert!(matches!(world.finish().await, Delivered::Finished(Some(_))));
    world.check(&world.result(), "mended");
}

#[tokio::test(start_paused = true)]
async fn a_finished_turns_id_with_another_input_is_a_dead_letter_without_a_result() {
    let mut world = World::finished(&shape()).await;
    world.outside.forget();
    (world.turn, world.offset) = (TURN.replace("go", "stop").into(), 8);
    assert!(matches!(world.finish().await, Delivered::Finished(None)));
    check_dead_letter(&world, code::TURN_ID_REUSED);
    check_buried(&world);
    assert!(world.outside.results().is_empty(), "the id has its result");
    assert!(matches!(world.finish().await, Delivered::Skipped));
    // The first record is still known to have ended.
    (world.turn, world.offset) = (TURN.into(), 7);
    assert!(matches!(world.finish().await, Delivered::Skipped));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_a_turn_must_not_name_fails_it_before_anything_runs() {
    for tools in [r#"["nope"]"#, r#"["echo","nope"]"#] {
        let world = given(&TURN.replace(r#""input""#, &format!(r#""tools":{tools},"input""#)));
        world.finish().await;
        assert_eq!(world.result().error.unwrap().code, code::TOOL_REGISTRATION_ERROR, "{tools}");
        assert_eq!((world.outside.asked(), world.outside.runs().len()), (vec![], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_names_its_tools_is_offered_no_others() {
    let mut world = given(&TURN.replace(r#""input""#, r#""tools":["slow"],"input""#));
    world.tools = vec![("echo", "A tool."), ("slow", "A tool.")];
    world.finish().await;
    let events = world.log.events();
    let refused = events.iter().find(|event| event.kind == EventType::ToolResult).unwrap();
    assert_eq!(refused.error.as_ref().unwrap().message, "unknown tool 'echo'; available: slow");
    assert_eq!(world.outside.runs().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_an_acknowledged_result_a_turn_does_not_end_and_the_same_answer_is_published_later() {
    let world = World::new(&shape());
    world.outside.break_sink(true);
    let delivered = world.deliver(world.log.clone()).await;
    assert!(matches!(delivered, Delivered::Halted(Halt::Outbox(_))), "{delivered:?}");
    assert_eq!((world.facts().outputs, world.facts().ends), (1, 0));
    let recorded = world.log.events().pop().unwrap().output.unwrap();

    world.outside.forget();
    assert!(world.finish().await.is_finished());
    assert_eq!(serde_json::to_string(&world.result().output).unwrap(), recorded.get());
    assert_eq!((world.outside.asked(), world.outside.runs().len()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn without_an_acknowledged_dead_letter_nothing_ends() {
    let poison = Shape::new("poison", [calling(&[("poison", NEW)])], Err(code::POISON), (1, 1));
    for world in [World::new(&poison), given("{"), given(r#"{"agent":"b","input":"x"}"#)] {
        world.outside.break_sink(true);
        let delivered = world.deliver(world.log.clone()).await;
        assert!(matches!(delivered, Delivered::Halted(Halt::Outbox(_))), "{delivered:?}");
        assert_eq!((world.outside.results().len(), world.facts().ends), (0, 0));
        world.outside.break_sink(false);
        assert!(world.finish().await.is_finished());
        assert_eq!((world.outside.dead_letters().len(), world.facts().ends), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_model_is_told_comes_from_the_log_on_a_rerun() {
    let shape = Shape::new(
        "two rounds",
        [calling(&[("echo", NEW)]), calling(&[("broken", NEW)]), done()],
        Ok("done"),
        (3, 2),
    );
    let transcript = |world: &World| world.outside.last_transcript();
    let undisturbed = World::finished(&shape).await;
    let first = transcript(&undisturbed);
    assert_eq!(first.len(), 6);
    let world = World::cut_before(&shape, EventType::ModelReply, Some("m2")).await;
    world.finish().await;
    assert_eq!(transcript(&world), first);
    assert_eq!(world.outside.asked(), ["a 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_of_the_tools_in_their_order_and_a_tool_who_called_it() {
    let shape = shapes::two_parallel_tools();
    let mut world = World::new(&shape);
    world.tools = vec![("slow", "A tool."), ("broken", "A tool."), ("echo", "A tool.")];
    world.finish().await;
    assert_eq!(world.outside.offered(), ["slow", "broken", "echo"]);
    let told =
        ("s/1".to_owned(), "t-1".to_owned(), "a".to_owned(), Some("m0".to_owned()), Spec::DEFAULT_TIMEOUT);
    let runs = world.outside.runs();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run.told, told, "{}", run.key);
    }
}
