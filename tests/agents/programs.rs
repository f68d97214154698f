//! Programs that nobody has thought of: calls, steps, branches, tools that call tools with retries and timeouts, agents that
//! call agents, with and without a budget; and every crash of each.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use serde::{Deserialize, Serialize};
use turnmill::agent::StepEffect;
use turnmill::testing::every_crash;
use turnmill::tool::Decimal;

use super::*;

/// What a program does; a number is its id.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Does {
    Draw(u16),
    Pay(u16),
    Step(u16),
    Once(u16),
    Sleep(u64),
    Both(Vec<Does>, Vec<Does>),
    Nest { id: u16, fails: u32, hangs: bool, does: Vec<Does> },
    Agent(u16, Vec<Does>),
}

fn any_does() -> impl Strategy<Value = Vec<Does>> {
    let id = any::<u16>;
    let leaf = prop_oneof![
        id().prop_map(Does::Draw),
        id().prop_map(Does::Pay),
        id().prop_map(Does::Pay),
        id().prop_map(Does::Step),
        id().prop_map(Does::Once),
        (0..30_u64).prop_map(Does::Sleep),
    ];
    let deeper = move |inner: BoxedStrategy<Does>| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            (some(), some()).prop_map(|(a, b)| Does::Both(a, b)),
            (id(), 0..3_u32, any::<bool>(), some()).prop_map(|(id, fails, hangs, does)| Does::Nest {
                id,
                fails,
                hangs,
                does
            }),
            (id(), some()).prop_map(|(id, does)| Does::Agent(id, does)),
        ]
    };
    let one = leaf.prop_recursive(3, 12, 3, deeper);
    prop::collection::vec(one, 1..4)
}

type Playing<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Plays what an agent does, and comes to a number that is made of everything that it was told.
fn play<'a>(ctx: &'a AgentContext, does: &'a [Does], mut told: u64) -> Playing<'a, Result<u64, AgentError>> {
    Box::pin(async move {
        for what in does {
            told = told.wrapping_mul(31).wrapping_add(match what {
                Does::Draw(id) => ctx.call(Draw, json!({})).id(id.to_string()).await?.read()?,
                Does::Pay(id) => {
                    ctx.call(Pay, cents(told % 1_000_000)).id(id.to_string()).await?;
                    1
                }
                Does::Step(id) => {
                    let outside = ctx.deps::<World>()?.clone();
                    ctx.step(&id.to_string(), StepEffect::Read, |_| async move { Ok(outside.next()) }).await?
                }
                Does::Once(id) => {
                    let outside = ctx.deps::<World>()?.clone();
                    ctx.once(&id.to_string(), |_| async move { Ok(outside.next()) }).await.unwrap_or(7)
                }
                Does::Sleep(ms) => {
                    tokio::time::sleep(Duration::from_millis(*ms)).await;
                    2
                }
                Does::Both(one, two) => {
                    let (one, two) = tokio::join!(play(ctx, one, told), play(ctx, two, told));
                    one?.wrapping_add(two?)
                }
                Does::Nest { id, .. } => {
                    let call = ctx.call(Nest, json!({"what": what, "told": told % 1_000_000}));
                    call.id(id.to_string()).await.map_or(3, |output| output.read().unwrap())
                }
                Does::Agent(id, does) => {
                    let call = ctx.call_agent("sub", serde_json::to_string(does)?).id(id.to_string());
                    call.await.map_or(4, |text| text.parse().unwrap())
                }
            });
        }
        Ok(told % 1_000_000)
    })
}

fn play_inside<'a>(
    ctx: &'a ToolContext,
    does: &'a [Does],
    mut told: u64,
) -> Playing<'a, Result<u64, ToolError>> {
    Box::pin(async move {
        for what in does {
            told = told.wrapping_mul(31).wrapping_add(match what {
                Does::Draw(id) | Does::Step(id) | Does::Once(id) => {
                    ctx.call(Draw, json!({})).id(id.to_string()).await?.read()?
                }
                Does::Pay(id) => {
                    ctx.call(Pay, cents(told % 1_000_000)).id(id.to_string()).await?;
                    1
                }
                Does::Sleep(ms) => {
                    tokio::time::sleep(Duration::from_millis(*ms)).await;
                    2
                }
                Does::Both(one, two) => {
                    let (one, two) = tokio::join!(play_inside(ctx, one, told), play_inside(ctx, two, told));
                    one?.wrapping_add(two?)
                }
                Does::Agent(_, does) => play_inside(ctx, does, told).await?,
                Does::Nest { id, .. } => {
                    let call = ctx.call(Nest, json!({"what": what, "told": told % 1_000_000}));
                    call.id(id.to_string()).await.map_or(3, |output| output.read().unwrap())
                }
            });
        }
        Ok(told % 1_000_000)
    })
}

/// Plays what it is told, and fails at its first tries.
#[turnmill::tool(writes, retry = 3, timeout = "20ms")]
async fn nest(ctx: &ToolContext, what: Value, told: u64) -> Result<u64, ToolError> {
    let Does::Nest { fails, hangs, does, .. } = serde_json::from_value(what)? else { unreachable!() };
    let told = play_inside(ctx, &does, told).await?;
    if ctx.attempt() <= fails {
        if hangs {
            std::future::pending::<()>().await;
        }
        return Err(ToolError::retryable("again"));
    }
    Ok(told)
}

async fn player(ctx: AgentContext) -> Answer {
    let does: Vec<Does> = serde_json::from_str(&ctx.text())?;
    Ok(play(&ctx, &does, 0).await?.to_string())
}

fn program() -> App {
    let agent = |name: &str, calls: u32| {
        AgentSpec::new(name, "scripted").max_tool_calls(calls.try_into().unwrap()).code(player)
    };
    tools(&World::default()).tool(Nest).agent(agent("a", 10_000)).agent(agent("sub", 6))
}

/// What is used by the log: every call that has an event, and what those that have ended have cost.
fn used(kit: &Kit) -> (usize, Decimal) {
    let (mut calls, mut costs) = (HashSet::new(), HashMap::new());
    for event in kit.events() {
        let Some(position) = event.position else { continue };
        if matches!(event.kind, EventType::ToolStart | EventType::ToolResult) {
            calls.insert(position.clone());
        }
        if let Some(cost) = event.cost {
            costs.insert(position, cost);
        }
    }
    (calls.len(), costs.into_values().sum())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_program_survives_every_crash(does in any_does(), budget in prop::option::of(1..12_u32)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut turn = turn("a", &serde_json::to_string(&does).unwrap(), []);
        turn.budget = budget.map(|calls| serde_json::from_value(json!({"tool_calls": calls})).unwrap());
        let all = every_crash(program, &turn, |kit, result| {
            let usage = (result.usage.tool_calls as usize, result.usage.cost);
            assert_eq!(usage, used(kit), "{:?}", result.error);
        });
        let hour = Duration::from_secs(3600);
        runtime.block_on(async { tokio::time::timeout(hour, all).await }).expect("a turn hangs");
    }
}
