//! Whole conversations with a server of models that nobody here wrote, in both shapes; it drops some of the requests and hangs
//! up in the middle of others.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::support::Setup;

/// The server; killed when it is dropped.
struct Server {
    child: Child,
    origin: String,
}

impl Server {
    fn start() -> Self {
        let root = env!("CARGO_MANIFEST_DIR");
        let mut child = Command::new(format!("{root}/scripts/aimock"))
            .args(["--port", "0", "--strict", "--chunk-size", "5"])
            .args(["--chaos-drop", "0.1", "--chaos-disconnect", "0.1"])
            .args(["--fixtures", &format!("{root}/tests/fixtures/conversations/orders.json")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let origin = lines.find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
        // To its end: who writes to a pipe that nobody reads is killed.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, origin: origin.expect("it says where it listens") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn conversations_come_to_their_end_whatever_the_server_drops() {
    let server = Server::start();
    let provider = |name: &str, api: &str| {
        format!(
            "[[providers]]\nname = \"{name}\"\napi = \"{api}\"\nbase_url = \"{}/v1\"\napi_key = \"k\"\nmax_retries = 20\n\n\
             [[agents]]\nname = \"{name}\"\nmodel = \"{name}::m\"\ntools = [\"note\", \"ping\"]\n\n",
            server.origin
        )
    };
    let mill = Setup::ledger("conversations")
        .more(&(provider("claude", "anthropic") + &provider("gpt", "openai")))
        .ready();
    let _worker = mill.worker();
    let agents = ["claude", "gpt"];
    let turns: Vec<_> = (0..10)
        .flat_map(|n| agents.map(|agent| (format!("{agent}-{n}"), agent, n)))
        .map(|(id, agent, n)| json!({"session_id": id, "turn_id": id, "agent": agent, "input": format!("Where is order {n}?")}))
        .collect();
    mill.send(&turns);
    let results = mill.results(turns.len());
    let events = mill.events();
    for turn in &turns {
        let id = turn["turn_id"].as_str().unwrap();
        let result = results.iter().find(|result| result["turn_id"] == id).unwrap();
        assert_eq!(
            (&result["status"], &result["output"]),
            (&json!("completed"), &json!("It is on its way.")),
            "{result}"
        );
        assert_eq!(
            (&result["usage"]["model_calls"], &result["usage"]["tool_calls"]),
            (&json!(4), &json!(4)),
            "{result}"
        );
        assert_eq!(events.at(id, "m0")[0]["reply"]["text"], "I look it up.");
        for (position, code) in
            [("m0.c0", None), ("m0.c1", None), ("m1.c0", Some("invalid_arguments")), ("m2.c0", None)]
        {
            assert_eq!(events.result(id, position)["error"]["code"].as_str(), code, "{id} {position}");
        }
    }
    // Each call once, whatever was asked how often.
    assert_eq!(mill.ledger().len(), 3 * turns.len());
}
