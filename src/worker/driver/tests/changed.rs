//! A rerun with other settings: what is recorded is never taken for something else, and never made up for.

use super::shapes::{NEW, calling, done};
use super::*;

const DEFINITION: &str = "the description or the schema of the tool has changed";

/// The turn has failed at this position because its input is another one; nothing was asked or run for it.
async fn fails_as_changed(world: &World, position: &str, what: &str, context: &str) {
    assert!(world.finish().await.is_finished(), "{context}");
    let result = world.result();
    let failure = result.error.unwrap_or_else(|| panic!("{context}: the turn went on: {:?}", result.output));
    assert_eq!(failure.code, code::REPLAY_INPUT_CHANGED, "{context}: {failure}");
    assert!(failure.message.starts_with(&format!("position {position}: ")), "{context}: {failure}");
    assert!(failure.message.contains(what), "{context}: {failure}");
    assert_eq!(world.outside.asked(), [""; 0], "{context}");
    assert_eq!(world.outside.keys_run(), [""; 0], "{context}");
    assert_eq!(world.facts().ends, 1, "{context}");
    assert!(matches!(world.finish().await, Delivered::Skipped), "{context}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_prompt_fails_a_turn_that_has_a_reply() {
    let shape = shapes::two_parallel_tools();
    let cuts = [
        (EventType::ToolStart, Some("m0.c0")),
        (EventType::ToolResult, Some("m0.c0")),
        (EventType::ModelReply, Some("m1")),
        (EventType::TurnOutput, None),
    ];
    for (kind, position) in cuts {
        let mut world = World::cut_before(&shape, kind, position).await;
        world.system = "You help!".into();
        fails_as_changed(&world, "m0", "another transcript", &format!("cut before {kind:?} {position:?}"))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_prompt_does_not_matter_where_nothing_is_recorded_or_everything_is() {
    let shape = shapes::two_parallel_tools();
    for (kind, position) in [(EventType::ModelReply, Some("m0")), (EventType::TurnEnd, None)] {
        let mut world = World::cut_before(&shape, kind, position).await;
        world.system = "You help!".into();
        world.finish().await;
        world.check(&world.result(), &format!("cut before {kind:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_fails_a_turn_whose_call_of_the_tool_is_recorded_or_has_started() {
    let shape = shapes::two_parallel_tools();
    let cuts = [
        // The second call has not even started, and does not.
        (EventType::ToolStart, Some("m0.c1"), "m0.c0"),
        (EventType::ToolResult, Some("m0.c0"), "m0.c0"),
        (EventType::ModelReply, Some("m1"), "m0.c0"),
        (EventType::TurnOutput, None, "m0.c0"),
    ];
    for (kind, position, changed) in cuts {
        let mut world = World::cut_before(&shape, kind, position).await;
        world.tools = vec![("echo", "Another tool."), ("slow", "A tool.")];
        fails_as_changed(&world, changed, DEFINITION, &format!("cut before {kind:?} {position:?}")).await;
    }
    let mut world = World::cut_before(&shape, EventType::ModelReply, Some("m1")).await;
    world.tools = vec![("echo", "A tool."), ("slow", "Another tool.")];
    fails_as_changed(&world, "m0.c1", DEFINITION, "the second call's tool").await;
}

#[tokio::test(start_paused = true)]
async fn a_recorded_call_of_a_tool_that_is_no_longer_offered_fails_the_turn() {
    let shape = shapes::two_parallel_tools();
    for (kind, position) in [(EventType::ToolResult, "m0.c0"), (EventType::ModelReply, "m1")] {
        let mut world = World::cut_before(&shape, kind, Some(position)).await;
        world.tools = vec![("echo", "A tool.")];
        fails_as_changed(
            &world,
            "m0.c1",
            "a call of slow is recorded there, and the tool is no longer offered",
            position,
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_call_of_an_unknown_tool_fails_the_turn_once_the_tool_is_offered() {
    let shape = Shape::calling("an unknown tool", &[("slow", NEW)]);
    let mut world = World::new(&shape);
    world.tools = vec![("echo", "A tool.")];
    world.finish().await;
    let events = world.log.events();
    assert!(events.iter().any(|event| event.error.as_ref().is_some_and(|e| e.code == code::UNKNOWN_TOOL)));
    world.log.truncate(events.iter().position(|event| event.kind == EventType::TurnOutput).unwrap());
    world.outside.forget();
    world.tools.push(("slow", "A tool."));
    fails_as_changed(&world, "m0.c0", "the tool was not offered then, and is now", "the tool appeared").await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_tool_that_the_turn_never_called_does_not_matter() {
    let shape = Shape::calling("one call", &[("echo", NEW)]);
    for (kind, position) in [(EventType::ToolResult, Some("m0.c0")), (EventType::TurnOutput, None)] {
        let mut world = World::cut_before(&shape, kind, position).await;
        world.tools = vec![("slow", "New here."), ("echo", "A tool."), ("broken", "New here too.")];
        world.finish().await;
        world.check(&world.result(), &format!("cut before {kind:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_started_runs_with_the_new_definition() {
    let mut world =
        World::cut_before(&shapes::two_parallel_tools(), EventType::ToolStart, Some("m0.c0")).await;
    world.tools = vec![("echo", "Another tool."), ("slow", "Another tool.")];
    world.finish().await;
    world.check(&world.result(), "nothing had started");
    assert_eq!(world.outside.keys_run().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_recorded_failure_of_the_model_is_not_mended_by_asking_again() {
    let shape = Shape::new(
        "a model that fails",
        [shapes::Say::Error("down <$N>".into())],
        Err(code::MODEL_ERROR),
        (0, 0),
    );
    let first = World::finished(&shape).await.result();
    let mut world = World::cut_before(&shape, EventType::TurnOutput, None).await;
    // This model would answer.
    world.shape.script = vec![done()];
    world.finish().await;
    assert_eq!(world.outside.asked(), [""; 0]);
    assert_eq!(world.result().error, first.error);
}

#[tokio::test(start_paused = true)]
async fn a_recorded_failure_of_a_tool_is_not_mended_by_running_it_again() {
    let shape = Shape::new("fatal", [calling(&[("fatal", NEW)])], Err(code::TOOL_FATAL), (1, 1));
    let world = World::cut_before(&shape, EventType::TurnOutput, None).await;
    world.finish().await;
    world.check(&world.result(), "recorded");
    assert_eq!(world.outside.keys_run(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_the_log_is_published_whatever_has_changed() {
    let shape = shapes::two_parallel_tools();
    let first = World::finished(&shape).await.result();
    for agent in ["a", "another"] {
        let mut world = World::cut_before(&shape, EventType::TurnEnd, None).await;
        world.system = "You help!".into();
        world.tools = vec![("echo", "Another tool.")];
        world.agent = agent;
        world.finish().await;
        let result = world.result();
        assert_eq!((result.status, result.output), (first.status, first.output.clone()), "agent {agent}");
        assert!(world.outside.dead_letters().is_empty(), "agent {agent}");
        assert_eq!(world.facts().ends, 1);
    }
}
