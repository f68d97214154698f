//! Calls that share results, on a clock that stands still until nothing else can happen.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tool::{
    Environment, Execution, Output, Registered, Registry, Spec, ToolContext, ToolError, execute,
};
use crate::turn::{Position, SessionId, TurnId, code};

/// A store that notes what it is asked, and can be gone.
#[derive(Default)]
struct Shelf {
    kept: Mutex<std::collections::HashMap<String, (String, Duration)>>,
    gone: AtomicBool,
    asked: AtomicU32,
}

#[async_trait]
impl Store for Shelf {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.ask()?;
        Ok(self.kept.lock().unwrap().get(key).map(|(value, _)| value.clone()))
    }

    async fn set(&self, key: &str, value: String, ttl: Duration) -> Result<(), StoreError> {
        self.ask()?;
        self.kept.lock().unwrap().insert(key.into(), (value, ttl));
        Ok(())
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.ask()?;
        self.kept.lock().unwrap().remove(key);
        Ok(())
    }
}

impl Shelf {
    fn ask(&self) -> Result<(), StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.gone.load(Ordering::SeqCst) {
            true => Err(StoreError("gone".into())),
            false => Ok(()),
        }
    }
}

/// A tool whose calls wait until they are let go, and the store that keeps its results.
struct World {
    tool: Arc<Registered>,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    shelf: Arc<Shelf>,
    environment: Environment,
}

const TTL: Duration = Duration::from_secs(60);

impl World {
    /// Its calls fail where their arguments say so.
    fn new() -> Self {
        let (runs, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let (count, open) = (Arc::clone(&runs), Arc::clone(&gate));
        let schema = json!({"type": "object", "properties": {"unit": {"default": "C"}}});
        let spec = Spec::new("weather", "A tool.", schema).cache_ttl(TTL).output(json!({"type": "object"}));
        let tool = spec.tool(move |_: ToolContext, arguments: Value| {
            let (count, open) = (Arc::clone(&count), Arc::clone(&open));
            async move {
                let run = count.fetch_add(1, Ordering::SeqCst) + 1;
                open.acquire().await?.forget();
                if arguments.get("fail").is_some() {
                    return Err(ToolError::retryable(format!("run {run} failed")));
                }
                Ok(json!({"run": run}))
            }
        });
        let mut registry = Registry::new();
        registry.register(Arc::new(tool)).unwrap();
        let shelf = Arc::new(Shelf::default());
        let cache = Cache::new(Arc::clone(&shelf) as Arc<dyn Store>);
        let environment = Environment { cache, ..Environment::new() };
        Self { tool: Arc::clone(registry.get("weather").unwrap()), runs, gate, shelf, environment }
    }

    fn context(&self, call: usize, cancelled: CancellationToken) -> ToolContext {
        let (session, turn) = (SessionId::new("s").unwrap(), TurnId::new("t").unwrap());
        ToolContext::builder(session, turn, &Position::call(0, call))
            .names("a", "weather")
            .cancelled(cancelled)
            .environment(self.environment.clone())
            .build()
    }

    fn call(&self, call: usize, arguments: Value) -> impl Future<Output = Execution> + Send + 'static {
        self.cancellable(call, arguments, CancellationToken::new())
    }

    fn cancellable(
        &self,
        call: usize,
        arguments: Value,
        cancelled: CancellationToken,
    ) -> impl Future<Output = Execution> + Send + 'static {
        let (tool, context) = (Arc::clone(&self.tool), self.context(call, cancelled));
        async move { execute(&tool, &context, arguments, 1).await }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Until every call stands still.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn run_of(execution: &Execution) -> (u64, u32, bool) {
    let output: Value = serde_json::from_str(execution.result.as_ref().unwrap().as_json()).unwrap();
    (output["run"].as_u64().unwrap(), execution.attempts, execution.cache_hit)
}

#[tokio::test(start_paused = true)]
async fn a_call_with_the_same_arguments_does_not_run_the_tool_again() {
    let world = World::new();
    world.gate.add_permits(9);
    assert_eq!(run_of(&world.call(0, json!({"city": "Bern", "days": 2})).await), (1, 1, false));
    assert_eq!(run_of(&world.call(1, json!({"days": 2, "city": "Bern"})).await), (1, 0, true));
    assert_eq!(run_of(&world.call(2, json!({"unit": "C", "days": 2, "city": "Bern"})).await), (1, 0, true));
    assert_eq!(run_of(&world.call(3, json!({"city": "Basel", "days": 2})).await), (2, 1, false));
    let kept = world.shelf.kept.lock().unwrap();
    assert!(kept.values().all(|(_, ttl)| *ttl == TTL), "{kept:?}");
    assert!(kept.keys().all(|key| key.starts_with("result:weather:") && !key.contains("s/t")), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_at_one_time_run_the_tool_once() {
    let world = World::new();
    let calls: Vec<_> = (0..50).map(|n| tokio::spawn(world.call(n, json!({})))).collect();
    World::settle().await;
    assert_eq!(world.runs(), 1);
    world.gate.add_permits(1);
    let ended: Vec<_> = join_all(calls).await.into_iter().map(|ended| run_of(&ended.unwrap())).collect();
    assert_eq!(ended.iter().filter(|ended| **ended == (1, 1, false)).count(), 1);
    assert_eq!(ended.iter().filter(|ended| **ended == (1, 0, true)).count(), 49);
    assert!(world.environment.cache.0.flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_nobody_elses_and_is_not_kept() {
    let world = World::new();
    let calls: Vec<_> = (0..3).map(|n| tokio::spawn(world.call(n, json!({"fail": 1})))).collect();
    World::settle().await;
    assert_eq!(world.runs(), 1);
    world.gate.add_permits(1);
    World::settle().await;
    assert_eq!(world.runs(), 3, "whoever waited runs its own, and not one after the other");
    world.gate.add_permits(9);
    let mut texts: Vec<_> =
        join_all(calls).await.into_iter().map(|e| e.unwrap().result.unwrap_err().message).collect();
    texts.sort();
    assert_eq!(texts, ["run 1 failed", "run 2 failed", "run 3 failed"]);
    assert!(world.shelf.kept.lock().unwrap().is_empty());
    assert!(world.environment.cache.0.flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn where_the_call_that_runs_is_dropped_one_of_those_that_wait_runs() {
    let world = World::new();
    let first = tokio::spawn(world.call(0, json!({})));
    World::settle().await;
    let others: Vec<_> = (1..4).map(|n| tokio::spawn(world.call(n, json!({})))).collect();
    World::settle().await;
    first.abort();
    World::settle().await;
    assert_eq!(world.runs(), 2);
    world.gate.add_permits(1);
    let ended: Vec<_> = join_all(others).await.into_iter().map(|ended| run_of(&ended.unwrap())).collect();
    assert_eq!(ended.iter().filter(|(run, _, hit)| (*run, *hit) == (2, true)).count(), 2, "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_waits_no_longer_and_does_not_run() {
    let world = World::new();
    let first = tokio::spawn(world.call(0, json!({})));
    World::settle().await;
    let cancelled = CancellationToken::new();
    let second = tokio::spawn(world.cancellable(1, json!({}), cancelled.clone()));
    World::settle().await;
    cancelled.cancel();
    let second = second.await.unwrap();
    assert_eq!(second.result.unwrap_err().code, code::CANCELLED);
    assert_eq!((second.attempts, second.cache_hit, world.runs()), (0, false, 1));
    world.gate.add_permits(1);
    assert!(first.await.unwrap().result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn when_all_are_given_up_at_once_none_of_those_that_wait_runs() {
    for _ in 0..100 {
        let world = World::new();
        let cancelled = CancellationToken::new();
        let first = tokio::spawn(world.cancellable(0, json!({}), cancelled.clone()));
        World::settle().await;
        let others: Vec<_> =
            (1..9).map(|n| tokio::spawn(world.cancellable(n, json!({}), cancelled.clone()))).collect();
        World::settle().await;
        cancelled.cancel();
        first.abort();
        for other in others {
            assert_eq!(other.await.unwrap().result.unwrap_err().code, code::CANCELLED);
        }
        assert_eq!(world.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_store_every_call_runs_and_the_store_is_asked_once_for_each() {
    let world = World::new();
    world.gate.add_permits(9);
    world.call(0, json!({})).await;
    let errors = || metrics().cache_errors.with_label_values(&["get"]).get();
    world.shelf.gone.store(true, Ordering::SeqCst);
    let (asked, before) = (world.shelf.asked.load(Ordering::SeqCst), errors());
    assert_eq!(run_of(&world.call(1, json!({})).await), (2, 1, false));
    assert_eq!(run_of(&world.call(2, json!({})).await), (3, 1, false));
    assert_eq!(world.shelf.asked.load(Ordering::SeqCst) - asked, 2);
    assert!(errors() >= before + 2);
    world.shelf.gone.store(false, Ordering::SeqCst);
    assert_eq!(run_of(&world.call(3, json!({})).await), (1, 0, true));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_and_is_no_result_of_the_tool_is_none() {
    let world = World::new();
    world.gate.add_permits(9);
    world.call(0, json!({})).await;
    for (runs, broken) in [(2, "{"), (3, "null"), (4, "\"of another version\""), (5, "")] {
        world.shelf.kept.lock().unwrap().values_mut().for_each(|(value, _)| *value = broken.into());
        assert_eq!(run_of(&world.call(1, json!({})).await), (runs, 1, false), "{broken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_keeps_values_of_its_own_which_no_other_tool_sees() {
    let world = World::new();
    let cache = |tool: &str| {
        let (session, turn) = (SessionId::new("s").unwrap(), TurnId::new("t").unwrap());
        let context = ToolContext::builder(session, turn, &Position::call(0, 0)).names("a", tool);
        context.environment(world.environment.clone()).build().cache()
    };
    let (rates, other) = (cache("rates"), cache("rates2"));
    assert_eq!(rates.get::<Vec<u32>>("today").await, None);
    rates.set("today", &vec![1, 2], TTL).await.unwrap();
    assert_eq!(rates.get("today").await, Some(vec![1, 2]));
    assert_eq!(rates.get::<String>("today").await, None, "of another type");
    assert_eq!(other.get::<Vec<u32>>("today").await, None);
    assert_eq!(cache("rates").get("today").await, Some(vec![1, 2]));
    assert!(rates.set("today", &f64::NAN, TTL).await.is_err());
    rates.remove("today").await;
    assert_eq!(rates.get::<Vec<u32>>("today").await, None);
    world.shelf.gone.store(true, Ordering::SeqCst);
    rates.set("today", &vec![3], TTL).await.unwrap();
    assert_eq!(rates.get::<Vec<u32>>("today").await, None);
}

#[tokio::test]
async fn memory_forgets_when_the_time_is_over() {
    let memory = Memory::new(1000);
    memory.set("k", "v".into(), Duration::from_secs(3600)).await.unwrap();
    memory.set("k", "w".into(), Duration::from_millis(50)).await.unwrap();
    while memory.get("k").await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    memory.set("k", "x".into(), Duration::from_secs(3600)).await.unwrap();
    assert_eq!(memory.get("k").await.unwrap().as_deref(), Some("x"));
    assert_eq!(Output::from_json("[1, 2]").unwrap().as_json(), "[1,2]");
}
