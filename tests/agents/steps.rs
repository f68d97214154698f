//! Steps of an agent's own, and recorded values.

use std::time::{Duration, SystemTime};

use turnmill::agent::StepEffect;

use super::*;

/// Notes what it does, under its key.
async fn work(ctx: AgentContext) -> Answer {
    let outside = &ctx.deps::<World>()?.clone();
    let read: u64 = ctx.step("look", StepEffect::Read, |_| async { Ok(outside.next()) }).await?;
    let done: String = ctx
        .step("change", StepEffect::Write, |step| async move {
            outside.note(format!("{} {}: {read}", step.idempotency_key(), step.attempt()));
            Ok(format!("changed {read}"))
        })
        .await?;
    Ok(done)
}

#[tokio::test(start_paused = true)]
async fn a_step_runs_once_and_is_returned_after_a_crash() {
    let world = World::default();
    let mut kit = Kit::new(app_with(&world, work));
    assert!(kit.crash_before(&go(), EventType::TurnOutput, None).await);
    assert_eq!(output(&kit.run(&go()).await), "changed 0");
    assert_eq!(world.noted(), ["session/turn/step:change 1: 0"]);
    let expected = ["step:look begins", "step:look ok", "step:change begins", "step:change ok"];
    assert_eq!(steps(&kit), expected);
    let effects: Vec<_> = kit.events().into_iter().filter_map(|event| event.effect).collect();
    assert_eq!(effects, [StepEffect::Read, StepEffect::Read, StepEffect::Write, StepEffect::Write]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_had_begun_runs_again_under_its_key() {
    let world = World::default();
    let mut kit = Kit::new(app_with(&world, work));
    // The claim, the start of the turn, the two events of the step before, and its own start.
    assert!(kit.crash_after(&go(), 5).await);
    assert_eq!(output(&kit.run(&go()).await), "changed 0");
    let again = ["session/turn/step:change 1: 0", "session/turn/step:change 2: 0"];
    assert_eq!(world.noted(), again);
}

#[tokio::test(start_paused = true)]
async fn once_runs_at_most_once_and_returns_what_it_returned() {
    let world = World::default();
    let outside = world.clone();
    let app = || {
        let outside = outside.clone();
        app_with(&world, move |ctx: AgentContext| {
            let outside = outside.clone();
            async move {
                let greet = |text: &'static str| {
                    let outside = outside.clone();
                    ctx.once("greet", move |_| async move {
                        outside.note(text);
                        Ok(text.to_owned())
                    })
                };
                let first = greet("hello").await;
                let again = greet("hello again").await;
                assert_eq!(first, again);
                Answer::Ok(first?)
            }
        })
    };
    let mut kit = Kit::new(app());
    assert_eq!(output(&kit.run(&go()).await), "hello");
    assert_eq!(
        (world.noted(), steps(&kit)),
        (vec!["hello".into()], vec!["once:greet begins".into(), "once:greet ok".into()])
    );

    let mut kit = Kit::new(app());
    // The claim, the start of the turn, and that of the step.
    assert!(kit.crash_after(&go(), 3).await);
    assert_eq!(code(&kit.run(&go()).await), "unknown_outcome");
    assert_eq!(world.noted(), ["hello", "hello"], "the one before the crash");
    assert_eq!(steps(&kit), ["once:greet begins", "once:greet unknown_outcome"]);
    assert_eq!(at(&kit, "once:greet")[1].attempts, None, "it was not run");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_step_is_recorded_and_code_can_go_on_with_it() {
    let world = World::default();
    let outside = world.clone();
    let mut kit = Kit::new(app_with(&world, move |ctx: AgentContext| {
        let outside = outside.clone();
        async move {
            let outside = &outside;
            let failed = ctx
                .step::<u8, _>("x", StepEffect::Write, |_| async {
                    outside.note("tried");
                    Err(ToolError::permanent("db-3 is down").for_model("It is down."))
                })
                .await
                .unwrap_err();
            Answer::Ok(failed.to_string())
        }
    }));
    assert!(kit.crash_before(&go(), EventType::TurnOutput, None).await);
    assert_eq!(output(&kit.run(&go()).await), "step_error: the step at step:x: It is down.");
    assert_eq!(world.noted(), ["tried"]);
    assert_eq!(at(&kit, "step:x")[1].error.as_ref().unwrap().for_operator(), "db-3 is down");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_one_steps_own() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        for n in 0..2_u8 {
            let _ = ctx.step("x", StepEffect::Write, |_| async move { Ok(n) }).await;
        }
        Answer::Ok("not so".into())
    })
    .await;
    assert_eq!((code(&result), steps(&kit).len()), ("duplicate_step_id", 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_returned_is_what_is_recorded() {
    let (_, result) = run(|ctx: AgentContext| async move {
        let lost: f64 = ctx.step("x", StepEffect::Pure, |_| async { Ok(0.1_f32.into()) }).await?;
        let none = ctx.step::<f64, _>("nan", StepEffect::Pure, |_| async { Ok(f64::NAN) }).await.unwrap_err();
        Answer::Ok(format!("{lost} {}", none.code))
    })
    .await;
    assert_eq!(output(&result), "0.10000000149011612 invalid_result");
}

#[tokio::test(start_paused = true)]
async fn the_clock_and_chance_are_recorded() {
    async fn values(ctx: AgentContext) -> Answer {
        let (first, second) = (ctx.now().await?, ctx.now().await?);
        let unix = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let (chance, more) = (ctx.random().await?, ctx.random().await?);
        Ok(format!("{} {} {chance} {more} {}", unix(first), unix(second), ctx.uuid().await?))
    }
    let (mut first, second) = (Kit::new(app(values)), run(values).await);
    assert!(first.crash_before(&go(), EventType::TurnEnd, None).await);
    let before = first.results().pop().unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let mut again = Kit::new(app(values));
    assert!(again.crash_before(&go(), EventType::TurnOutput, None).await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let result = again.run(&go()).await;
    let told: Vec<_> = output(&result).split(' ').map(str::to_owned).collect();
    let recorded: Vec<_> = again
        .events()
        .iter()
        .filter(|event| event.kind == EventType::Step)
        .map(|event| event.output.as_ref().unwrap().get().trim_matches('"').to_owned())
        .collect();
    assert_eq!(told, recorded, "nothing was asked anew");
    assert_ne!(output(&result), output(&before));
    assert_ne!(output(&second.1), output(&before));
    assert_eq!(told[4].len(), 36);
    let lines = again.golden();
    let steps_of: Vec<_> = lines.lines().filter(|line| line.contains("/step:")).collect();
    assert_eq!(steps_of[0], "turn/step:now#0 step attempts 1", "the same lines in every run");
    let places = ["step:now#0 ok", "step:now#1 ok", "step:random#0 ok", "step:random#1 ok", "step:uuid#0 ok"];
    assert_eq!(steps(&again), places);
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_a_steps_own_code_goes_up() {
    let (_, result) = run(|ctx: AgentContext| async move {
        let own = ctx.clone();
        let failed = ctx.step::<u8, _>("x", StepEffect::Read, |step| async move {
            let _: &u8 = own.deps()?;
            step.http()?;
            Ok(1)
        });
        Answer::Ok(failed.await.unwrap_err().message)
    })
    .await;
    assert_eq!(
        output(&result),
        "the step at step:x: the agent needs deps of the type u8; give them to App::deps"
    );
}
