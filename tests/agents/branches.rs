//! Branches that run side by side: in which order they come to their steps is chance, and never gives one's key to another.

use turnmill::agent::StepEffect;
use turnmill::testing::every_crash;

use super::*;

/// Draw a number that was never drawn before, after so many turns of others.
#[turnmill::tool(read_only)]
async fn draw_after(ctx: &ToolContext, turns: u64) -> Result<u64, ToolError> {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    Ok(ctx.deps::<World>()?.next())
}

/// Two branches of two steps; the second ones have no ids, or are made of a value that has none.
fn branches(lengths: [u64; 2], value: bool) -> impl Agent {
    move |ctx: AgentContext| async move {
        let branch = |index: usize| {
            let ctx = ctx.clone();
            async move {
                let turns = json!({"turns": lengths[index]});
                let drawn: u64 = ctx.call(DrawAfter, turns).id(index.to_string()).await?.read()?;
                match value {
                    true => {
                        let chance = ctx.random().await? % 1000;
                        ctx.call(Pay, cents(chance)).id(index.to_string()).await?;
                    }
                    false => drop(ctx.call(Pay, cents(drawn)).await?),
                }
                Ok::<_, AgentError>(())
            }
        };
        let both = tokio::join!(branch(0), branch(1));
        both.0.and(both.1)?;
        Answer::Ok("both".into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_another_branch_takes_in_a_rerun_is_found_and_never_run_with_other_arguments() {
    let (mut done, mut found) = (0, 0);
    for first in 0..6 {
        for second in 0..6 {
            for value in [false, true] {
                // No key has two inputs, whatever comes of the turn.
                every_crash(
                    || app(branches([first, second], value)).tool(DrawAfter),
                    &go(),
                    |_, result| match result.status {
                        TurnStatus::Completed => done += 1,
                        _ => {
                            assert_eq!(code(result), "replay_input_changed");
                            found += 1;
                        }
                    },
                )
                .await;
            }
        }
    }
    assert!(done > found && found > 0, "{done} done, {found} found");
}

#[tokio::test(start_paused = true)]
async fn what_others_have_spent_is_spent_before_a_branch_comes_to_its_call() {
    async fn pays(ctx: AgentContext) -> Answer {
        let chain = async {
            for n in 0..4 {
                ctx.call(Pay, cents(n)).await?;
            }
            Answer::Ok("chain".into())
        };
        let late = async {
            ctx.step::<(), _>("wait", StepEffect::Pure, |_| async {
                tokio::time::sleep(std::time::Duration::from_secs(60)).await;
                Ok(())
            })
            .await?;
            ctx.call(Pay, cents(9)).id("late").await?;
            Answer::Ok("late".into())
        };
        let (chain, late) = tokio::join!(chain, late);
        Ok(format!("{chain:?} {late:?}"))
    }
    let mut turn = go();
    turn.budget = Some(serde_json::from_value(json!({"cost": "1.00"})).unwrap());
    for crashes in [false, true] {
        let mut kit = Kit::new(app(pays));
        if crashes {
            assert!(kit.crash_before(&turn, EventType::TurnOutput, None).await);
        }
        let result = kit.run(&turn).await;
        assert_eq!(
            (code(&result), ran(&kit).len(), result.usage.cost.to_string()),
            ("cost_limit", 4, "1.00".into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_what_is_no_step_is_chance_too() {
    async fn waits(ctx: AgentContext) -> Answer {
        let sleep = |ms| tokio::time::sleep(std::time::Duration::from_millis(ms));
        let early = async {
            sleep(10).await;
            ctx.call(Pay, cents(1000)).await
        };
        // In a rerun the first step of this one takes no time, and its second one comes before the other's.
        let late = async {
            ctx.call("sleep", json!({"ms": 8})).id("x").await?;
            sleep(5).await;
            ctx.call(Pay, cents(7)).await
        };
        let (early, late) = tokio::join!(early, late);
        early?;
        late?;
        Ok("both".into())
    }
    every_crash(
        || app(waits),
        &go(),
        |_, result| {
            let found = result.error.as_ref().is_some_and(|error| error.code == "replay_input_changed");
            assert!(found || result.status == TurnStatus::Completed, "{result:?}");
        },
    )
    .await;
}
