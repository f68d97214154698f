//! Drain: a turn that is stopped publishes nothing, ends nothing, and is completed by the next worker.

use std::time::Duration;

use super::shapes::{NEW, calling, done};
use super::*;

/// The model thinks for 5 ms, then `slow` runs for 50.
fn shape() -> Shape {
    Shape::new("slow", [calling(&[("slow", NEW)]), done()], Ok("done"), (2, 1))
}

/// Delivers the record and pulls `which` after so many milliseconds; nothing is published or ended by then.
async fn stopped_after(millis: u64, which: impl FnOnce(&Stop) -> CancellationToken) -> World {
    stopped_in(&shape(), millis, which).await
}

async fn stopped_in(shape: &Shape, millis: u64, which: impl FnOnce(&Stop) -> CancellationToken) -> World {
    let mut world = World::new(shape);
    let token = which(&world.stop);
    let timer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        token.cancel();
    });
    let delivered = world.finish().await;
    timer.await.unwrap();
    assert!(matches!(delivered, Delivered::Stopped), "{delivered:?}");
    assert!(world.outside.sent().is_empty());
    assert_eq!((world.facts().outputs, world.facts().ends), (0, 0));
    world.stop = Stop { boundary: CancellationToken::new(), now: CancellationToken::new() };
    world
}

/// These replies of the agent.
fn asks(replies: &[u32]) -> Vec<String> {
    replies.iter().map(|reply| format!("a {reply}")).collect()
}

/// The next worker completes the turn; what it asked and ran.
async fn complete(world: &World) -> (Vec<String>, Vec<u32>) {
    world.outside.forget();
    assert!(world.finish().await.is_finished());
    world.check_whole("after a stop").await;
    (world.outside.asked(), world.outside.runs().iter().map(|run| run.attempt).collect())
}

fn boundary(stop: &Stop) -> CancellationToken {
    stop.boundary.clone()
}

fn now(stop: &Stop) -> CancellationToken {
    stop.now.clone()
}

#[tokio::test(start_paused = true)]
async fn before_it_begins_a_turn_that_is_stopped_leaves_nothing_behind() {
    let mut world = World::new(&shape());
    world.stop.boundary.cancel();
    assert!(matches!(world.finish().await, Delivered::Stopped));
    let kinds: Vec<_> = world.log.events().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventType::Claim]);
    world.stop = Stop { boundary: CancellationToken::new(), now: CancellationToken::new() };
    assert_eq!(complete(&world).await, (asks(&[0, 1]), vec![1]));
}

#[tokio::test(start_paused = true)]
async fn at_a_boundary_while_the_model_thinks_its_reply_is_kept_and_no_tool_starts() {
    let world = stopped_after(2, boundary).await;
    assert_eq!((world.facts().said(), world.facts().starts.len()), (vec!["a 0"], 0));
    assert_eq!(complete(&world).await, (asks(&[1]), vec![1]));
}

#[tokio::test(start_paused = true)]
async fn at_a_boundary_while_a_tool_runs_its_result_is_kept_and_the_model_is_not_asked() {
    let world = stopped_after(20, boundary).await;
    assert_eq!((world.facts().results.len(), world.outside.asked()), (1, asks(&[0])));
    assert_eq!(complete(&world).await, (asks(&[1]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn at_a_boundary_in_its_last_reply_a_turn_ends() {
    let world = World::new(&shape());
    let token = world.stop.boundary.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(57)).await;
        token.cancel();
    });
    assert!(world.finish().await.is_finished());
    assert!(world.stop.boundary.is_cancelled());
    world.check_whole("stopped in the last reply").await;
}

#[tokio::test(start_paused = true)]
async fn now_while_the_model_thinks_it_is_asked_again_later() {
    let world = stopped_after(2, now).await;
    assert_eq!(world.facts().said(), [""; 0]);
    assert_eq!(complete(&world).await, (asks(&[0, 1]), vec![1]));
}

#[tokio::test(start_paused = true)]
async fn now_while_a_tool_runs_it_runs_again_later_under_the_same_key() {
    let world = stopped_after(20, now).await;
    let first = world.outside.runs();
    assert_eq!((world.facts().starts.len(), world.facts().results.len(), first.len()), (1, 0, 1));
    assert_eq!(complete(&world).await, (asks(&[1]), vec![2]));
    let second = world.outside.runs();
    assert_eq!((&first[0].key, &first[0].arguments), (&second[0].key, &second[0].arguments));
}

#[tokio::test(start_paused = true)]
async fn now_while_a_call_waits_for_its_retry_its_failure_is_no_result() {
    let waits = Shape::new("waits", [calling(&[("waits", NEW), ("slow", NEW)]), done()], Ok("done"), (2, 2));
    let world = stopped_in(&waits, 100, now).await;
    let results = world.facts().results;
    assert_eq!(results.len(), 1, "what had ended is kept: {results:?}");
    // The next worker's run fails too, and its retry is still there.
    assert_eq!(complete(&world).await, (asks(&[1]), vec![2, 3]));
    let result = world
        .log
        .events()
        .into_iter()
        .find(|event| event.kind == EventType::ToolResult && event.tool.as_deref() == Some("waits"));
    let result = result.unwrap();
    assert_eq!((result.status, result.attempts), (Some(Status::Ok), Some(3)));
}

#[tokio::test(start_paused = true)]
async fn at_a_boundary_code_that_waits_for_no_step_stops_and_goes_on_later() {
    let shape = shapes::in_code().into_iter().find(|shape| shape.name == "code that waits").unwrap();
    let world = World::new(&shape);
    let token = world.stop.boundary.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        token.cancel();
    });
    assert!(matches!(world.finish().await, Delivered::Stopped));
    let mut world = world;
    world.stop = Stop { boundary: CancellationToken::new(), now: CancellationToken::new() };
    assert!(world.finish().await.is_finished());
    world.check_whole("stopped while code waits").await;
    assert_eq!(world.outside.runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ends_because_it_is_given_up_has_no_answer() {
    let mut world = World::new(&shape());
    let now = world.stop.now.clone();
    world.shape.code = Some(Arc::new(move |ctx: crate::agent::AgentContext| {
        let now = now.clone();
        async move {
            // As a drain does, from another thread, while the code runs.
            now.cancel();
            match ctx.is_cancelled() {
                true => Err(crate::agent::AgentError::new("nobody waits")),
                false => Ok("not so".to_owned()),
            }
        }
    }));
    assert!(matches!(world.finish().await, Delivered::Stopped));
    assert_eq!(world.facts().outputs, 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_has_left_behind_does_not_keep_a_cancel_from_its_next_run() {
    let mut world = World::new(&shape());
    let left: Arc<std::sync::Mutex<Vec<crate::agent::AgentContext>>> = Arc::default();
    let keeps = Arc::clone(&left);
    world.shape.code = Some(Arc::new(move |ctx: crate::agent::AgentContext| {
        keeps.lock().unwrap().push(ctx);
        std::future::ready(Ok::<_, crate::agent::AgentError>("done".to_owned()))
    }));
    let shared = world.shared();
    assert!(deliver(&shared, world.log.clone(), 7, world.job(), &world.stop).await.is_finished());
    let next = shared.cancels.begin(&world.job().identity, CancellationToken::new());
    left.lock().unwrap().clear();
    shared.cancels.ask(serde_json::from_str(r#"{"type":"cancel","turn_id":"t-1"}"#).unwrap());
    assert!(next.token().is_cancelled());
}
