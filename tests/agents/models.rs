//! Questions to the model, and the loop.

use turnmill::testing::{calls, says};
use turnmill::turn::Message;

use super::*;

fn asks(text: &str) -> Vec<Message> {
    vec![Message::User { content: text.into() }]
}

#[tokio::test(start_paused = true)]
async fn code_asks_the_model_and_makes_its_calls() {
    let mut kit = Kit::new(app(|ctx: AgentContext| async move {
        assert_eq!((ctx.text().as_str(), ctx.system(), ctx.agent()), ("go", Some("You help."), "a"));
        let reply = ctx.ask(asks("How much?")).with_tools().await?;
        let mut paid = Vec::new();
        for call in &reply.calls {
            let arguments: Value = serde_json::from_str(&call.arguments)?;
            paid.push(ctx.call(call.name.as_str(), arguments).await?.read::<String>()?);
        }
        let last = ctx.ask(asks(&paid.join(", "))).await?;
        Answer::Ok(last.text.unwrap_or_default())
    }));
    let replies = [calls([("pay", cents(1)), ("pay", cents(2))]), says("Well.")];
    let turn = turn("a", "go", replies);
    assert!(kit.crash_before(&turn, EventType::ToolResult, Some("pay#1")).await);
    let result = kit.run(&turn).await;
    assert_eq!((output(&result), result.usage.model_calls, result.usage.tool_calls), ("Well.", 2, 2));
    let expected = ["m0 ok", "pay#0 begins", "pay#0 ok", "pay#1 begins", "pay#1 begins", "pay#1 ok", "m1 ok"];
    assert_eq!(steps(&kit), expected);
}

#[tokio::test(start_paused = true)]
async fn the_loop_runs_inside_code_and_goes_on_from_where_it_was() {
    let mut kit = Kit::new(app(|ctx: AgentContext| async move {
        let first = ctx.run_loop(ctx.input().to_vec()).await?;
        let mut messages = first.messages;
        // The instructions come anew.
        messages.remove(0);
        messages.extend(asks(&format!("You have said {}. Why?", first.output)));
        let second = ctx.run_loop(messages).await?;
        Answer::Ok(format!("{} {}", first.output, second.output))
    }));
    let replies = [calls([("pay", cents(1))]), says("One."), calls([("pay", cents(2))]), says("Two.")];
    let result = kit.run(&turn("a", "go", replies)).await;
    assert_eq!(output(&result), "One. Two.");
    assert_eq!(ran(&kit), ["m0.c0", "m2.c0"]);
    assert_eq!(at(&kit, "m2.c0")[0].cause.as_ref().unwrap().as_str(), "m2");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_an_error_that_code_can_go_on_with() {
    let mut kit = Kit::new(app(|ctx: AgentContext| async move {
        let failed = ctx.ask(asks("?")).await.unwrap_err();
        let again = ctx.run_loop(asks("?")).await.unwrap_err();
        Answer::Ok(format!("{} {}", failed.code, again.code))
    }));
    let replies = [json!({"error": "down"}), json!({"error": {"code": "overloaded", "message": "busy"}})];
    let turn = turn("a", "go", replies);
    assert!(kit.crash_before(&turn, EventType::TurnOutput, None).await);
    assert_eq!(output(&kit.run(&turn).await), "model_error overloaded");
    assert_eq!(steps(&kit), ["m0 model_error", "m1 overloaded"]);
}
