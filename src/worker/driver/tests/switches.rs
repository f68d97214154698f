//! Agents and tools that are turned off: what has not begun does not, and what has is not taken for nothing.

use super::*;
use crate::config::{Switches as Settings, WhenOff};

fn tool_off(world: &mut World, tool: &str) {
    world.off = Settings { tools: vec![tool.into()], ..Settings::default() };
}

fn result_code(world: &World, position: &str) -> Option<String> {
    let events = world.log.events();
    let at = |event: &&StepEvent| {
        event.kind == EventType::ToolResult && event.position.as_ref().is_some_and(|p| p.as_str() == position)
    };
    events.iter().find(at)?.error.as_ref().map(|error| error.code.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_tool_that_is_off_runs_nothing_and_the_turn_goes_on() {
    let mut world = World::new(&shapes::two_parallel_tools());
    tool_off(&mut world, "slow");
    world.finish().await;
    world.check(&world.result(), "one tool is off");
    assert_eq!(world.outside.keys_run(), [format!("{KEY}/m0.c0")]);
    assert_eq!(result_code(&world, "m0.c1").as_deref(), Some(code::TOOL_DISABLED));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_had_started_is_not_answered_as_if_nothing_had_run() {
    let shape = shapes::two_parallel_tools();
    let mut world = World::cut_before(&shape, EventType::ToolResult, Some("m0.c0")).await;
    tool_off(&mut world, "echo");
    world.finish().await;
    world.check(&world.result(), "the tool went off after its start");
    assert_eq!(world.outside.keys_run(), [format!("{KEY}/m0.c1")]);
    assert_eq!(result_code(&world, "m0.c0").as_deref(), Some(code::UNKNOWN_OUTCOME));
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_an_agent_that_is_off_is_refused_unless_it_has_steps() {
    let shape = shapes::two_parallel_tools();
    let refuse = || Settings { agents: [("a".to_owned(), WhenOff::Refuse)].into(), ..Settings::default() };
    let mut world = World::new(&shape);
    world.off = refuse();
    assert!(world.finish().await.is_finished());
    assert_eq!(
        world.result().error.map(|error| error.code.to_string()).as_deref(),
        Some(code::AGENT_DISABLED)
    );
    assert_eq!((world.outside.asked(), world.outside.keys_run()), (vec![], vec![]));

    let mut world = World::cut_before(&shape, EventType::ToolStart, Some("m0.c0")).await;
    world.off = refuse();
    world.finish().await;
    world.check(&world.result(), "it had a reply");
}
