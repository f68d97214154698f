//! What tools tell of themselves while they run.

use serde_json::json;

use super::admin::{admin, metric};
use super::support::{Setup, one_call, until};

#[test]
fn a_tool_tells_how_it_is_getting_on_while_it_runs() {
    let mill = Setup::ledger("status").ready();
    let _worker = mill.worker();
    mill.send(&[one_call(
        "s",
        "t",
        "tell",
        json!({"lines": ["one", "zwei ü", "x".repeat(20_000)], "file": "go on"}),
    )]);
    // The call is not over.
    mill.reader("status").until("three lines of status", |records| records.len() >= 3);
    assert!(mill.events().at("t", "m0.c0").iter().all(|event| event["type"] == "tool:start"));
    std::fs::write(mill.path().join("go on"), "").unwrap();
    assert_eq!(mill.result("t")["status"], "completed");

    let records = mill.records("status");
    assert!(records.iter().all(|record| record.key.as_deref() == Some(b"s")));
    let status: Vec<_> = records.iter().map(|record| record.json()).collect();
    assert_eq!(status[0]["text"], "one");
    assert_eq!(status[1]["text"], "zwei ü");
    assert_eq!(status[2]["text"].as_str().unwrap().len(), 16 << 10);
    for status in status {
        assert_eq!(status["type"], "tool:status");
        assert_eq!(status["turn_id"], "t");
        assert_eq!(status["session_id"], "s");
        assert_eq!(status["agent"], "support");
        assert_eq!(status["tool"], "tell");
        assert_eq!(status["position"], "m0.c0");
        assert_eq!(status["idempotency_key"], "s/t/m0.c0");
        assert_eq!(status["attempt"], 1);
        assert!(status["at_ms"].as_i64().unwrap() > 1_700_000_000_000);
    }
}

#[test]
fn status_that_cannot_be_sent_stops_no_turn() {
    let mill = Setup::ledger("no-status").ready();
    let worker = mill.ready_worker();
    mill.cluster.delete_topic(&mill.topic("status"));
    std::fs::write(mill.path().join("go on"), "").unwrap();
    let lines: Vec<_> = (0..20_000).map(|n| n.to_string()).collect();
    mill.send(&[one_call("s", "t", "tell", json!({"lines": lines, "file": "go on"}))]);
    assert_eq!(mill.result("t")["status"], "completed");
    mill.wait_until_committed();
    // Those that found no room at once, and soon those that waited for the topic.
    let address = admin(&worker);
    until("20,000 lost lines of status", || {
        (metric(&address, "turnmill_status_dropped_total") == Some(20_000.0)).then_some(())
    });
    worker.terminate().expect(0);
}
