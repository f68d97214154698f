//! The README's test, run: a doctest leaves out what stands under `#[test]`. `tests/layout/` compares the two.

use serde_json::json;
use turnmill::testing::{Kit, calls, every_crash, says, turn};
use turnmill::{AgentSpec, App, ToolError};

/// Give the money for an order back.
#[turnmill::tool(writes)]
async fn refund(order_id: String) -> Result<String, ToolError> {
    Ok(format!("{order_id} is paid back"))
}

fn app() -> App {
    App::new().tool(Refund).agent(AgentSpec::new("support", "scripted").tools(["refund"]))
}

#[tokio::test(start_paused = true)] // hours of retries and timeouts take no time
async fn a_refund_has_one_key() {
    let turn = turn("support", "My money!", [calls([("refund", json!({"order_id": "A-7"}))]), says("Done.")]);
    let mut kit = Kit::new(app());
    assert_eq!(kit.run(&turn).await.output.as_deref(), Some("Done."));
    assert_eq!(kit.runs()[0].key, "session/turn/m0.c0");

    every_crash(app, &turn, |kit, result| {
        assert_eq!(result.output.as_deref(), Some("Done."));
        assert!(kit.runs().iter().all(|run| run.key == "session/turn/m0.c0"));
    })
    .await;
}
