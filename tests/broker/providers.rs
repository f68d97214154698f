//! Models of providers: streamed by a server of the test, in both shapes, and run on the broker.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::support::{Mill, Setup, until};

const KEY: &str = "sk-planted-secret-91";

/// A model that plays what the user's message says, and has the last word once it has read the results.
struct ModelServer {
    origin: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl ModelServer {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let noted = Arc::clone(&requests);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || answer(&stream, &noted));
            }
        });
        Self { origin, requests }
    }

    /// What was asked of it by turns whose input has this text.
    fn asked(&self, of: &str) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.to_string().contains(of)).cloned().collect()
    }

    /// An agent of each shape.
    fn setup(&self, name: &str) -> Setup {
        let provider = |name: &str, api: &str| {
            format!(
                "[[providers]]\nname = \"{name}\"\napi = \"{api}\"\nbase_url = \"{}/{name}\"\napi_key = \"${{KEY}}\"\n\
                 max_retries = 2\n\n[[agents]]\nname = \"{name}\"\nmodel = \"{name}::m\"\ntools = [\"note\", \"ping\"]\n\n\
                 [[prices]]\nmodel = \"{name}::m\"\ninput = \"100\"\noutput = \"200\"\n\n",
                self.origin
            )
        };
        Setup::ledger(name).more(&(provider("claude", "anthropic") + &provider("gpt", "openai")))
    }
}

const AGENTS: [&str; 2] = ["claude", "gpt"];

fn answer(stream: &TcpStream, noted: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream);
    let lines: Vec<String> =
        reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let length = lines
        .iter()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let request: Value = serde_json::from_slice(&body).unwrap();
    let first = lines.first().cloned().unwrap_or_default();
    let claude = first.contains("/messages");
    let messages = request["messages"].as_array().unwrap().clone();
    let script: Value = messages.iter().find(|message| message["role"] == "user").map(plays).unwrap();
    let earlier = {
        let mut noted = noted.lock().unwrap();
        let earlier = noted.iter().filter(|other| **other == request).count();
        noted.push(request);
        earlier
    };
    let failing = script["fail"].as_array().and_then(|fail| fail.get(earlier));
    if let Some(status) = failing {
        let body = format!(r#"{{"error":{{"type":"x","message":"about {KEY}"}}}}"#);
        write!(&*stream, "HTTP/1.1 {status} X\r\nretry-after-ms: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        return;
    }
    let has_results = messages.len() > 1;
    let (calls, text, stop) = match has_results {
        true => (Vec::new(), "done", "stop"),
        false => (
            script["calls"].as_array().cloned().unwrap_or_default(),
            script["text"].as_str().unwrap_or_default(),
            script["stop"].as_str().unwrap_or("calls"),
        ),
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_c\r\nx-request-id: req_g\r\nconnection: close\r\n\r\n";
    let body = if claude { messages_stream(&calls, text, stop) } else { chunks(&calls, text, stop) };
    // Whoever has hung up has cancelled.
    let _ = write!(&*stream, "{head}{body}");
    if script["hang"] == true {
        let _ = (&*stream).flush();
        // Until the other side hangs up.
        let mut rest = Vec::new();
        let _ = reader.read_to_end(&mut rest);
        noted.lock().unwrap().push(json!({"hung up": script["hang_id"]}));
    }
}

/// What a message of the user's says, in either shape.
fn plays(message: &Value) -> Value {
    let text = message["content"].as_str().or_else(|| message["content"][0]["text"].as_str()).unwrap();
    serde_json::from_str(text).unwrap()
}

fn messages_stream(calls: &[Value], text: &str, stop: &str) -> String {
    let mut events = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}),
    ];
    if !text.is_empty() {
        events.push(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        );
        events.push(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        );
        events.push(json!({"type": "content_block_stop", "index": 0}));
    }
    for (index, call) in calls.iter().enumerate() {
        let start = json!({"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}});
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let arguments: Vec<char> = call["arguments"].as_str().unwrap_or_default().chars().collect();
        events.extend(arguments.chunks(300).map(|piece| {
            let piece: String = piece.iter().collect();
            json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": piece}})
        }));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    if stop != "never" {
        let reason = match stop {
            "calls" => "tool_use",
            "limit" => "max_tokens",
            _ => "end_turn",
        };
        events.push(
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
        );
        events.push(json!({"type": "message_stop"}));
    }
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

fn chunks(calls: &[Value], text: &str, stop: &str) -> String {
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut events = vec![chunk(json!({"role": "assistant", "content": text}))];
    for (index, call) in calls.iter().enumerate() {
        let start =
            json!({"index": index, "id": call["id"], "type": "function", "function": {"name": call["name"]}});
        events.push(chunk(json!({"tool_calls": [start]})));
        let arguments: Vec<char> = call["arguments"].as_str().unwrap_or_default().chars().collect();
        events.extend(arguments.chunks(300).map(|piece| {
            let piece: String = piece.iter().collect();
            chunk(json!({"tool_calls": [{"index": index, "id": "", "function": {"name": "", "arguments": piece}}]}))
        }));
    }
    let mut body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if stop != "never" {
        let reason = match stop {
            "calls" => "tool_calls",
            "limit" => "length",
            _ => "stop",
        };
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
        body += &format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
    }
    body
}

/// A turn of this agent whose model plays this.
fn turn(agent: &str, id: &str, script: &Value) -> Value {
    json!({"session_id": id, "turn_id": id, "agent": agent, "input": script.to_string()})
}

fn called(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "name": name, "arguments": arguments})
}

fn worker(mill: &Mill) -> super::support::process::Process {
    mill.spawn_with(&[("KEY".into(), KEY.into())], &["worker"])
}

#[test]
fn what_a_model_gets_wrong_is_told_to_it_and_the_turn_goes_on() {
    let server = ModelServer::open();
    let mill = server.setup("provider-cases").ready();
    let _worker = worker(&mill);
    let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let good = r#"{"text":"x"}"#;
    // Of each its name, the calls, why the model stopped, and the code of each call's result.
    type Case<'a> = (&'a str, Vec<Value>, &'a str, Vec<Option<&'a str>>);
    let malformed = |name, arguments| -> Case<'_> {
        (
            name,
            vec![called("x", "note", arguments), called("y", "note", good)],
            "calls",
            vec![Some("invalid_arguments"), None],
        )
    };
    let cases = [
        malformed("brace-quote", r#"{"{""#),
        malformed("brace", "{"),
        malformed("several", r#"{"text":"a"}{"text":"b"}"#),
        (
            "cut",
            vec![called("x", "note", r#"{"text": "a""#), called("y", "note", good)],
            "limit",
            vec![Some("reply_truncated"); 2],
        ),
        malformed("unterminated", r#"{"text": "a"#),
        (
            "nameless",
            vec![json!({"id": null, "name": "", "arguments": ""})],
            "calls",
            vec![Some("unknown_tool")],
        ),
        (
            "one-id",
            vec![called("x", "note", r#"{"text":"1"}"#), called("x", "note", r#"{"text":"2"}"#)],
            "calls",
            vec![None, None],
        ),
        ("nothing", vec![called("x", "ping", "")], "calls", vec![None]),
        ("null", vec![called("x", "ping", "null")], "calls", vec![None]),
        ("pair", vec![called("x", "note", r#"{"text":"\ud83d\ude00"}"#)], "calls", vec![None]),
        ("half", vec![called("x", "note", r#"{"text":"\udc00"}"#)], "calls", vec![Some("invalid_arguments")]),
        ("nul", vec![called("x", "note", r#"{"text":"a\u0000b"}"#)], "calls", vec![None]),
        malformed("deep", &deep),
        (
            "five",
            (0..5).map(|n| called(&format!("i{n}"), "note", &format!(r#"{{"text":"{n}"}}"#))).collect(),
            "calls",
            vec![None; 5],
        ),
        (
            "not-offered",
            vec![called("x", "echo", "{}"), called("y", "no such tool!", "{}")],
            "calls",
            vec![Some("unknown_tool"); 2],
        ),
    ];
    let mut turns = Vec::new();
    for agent in AGENTS {
        turns.extend(cases.iter().map(|(name, calls, stop, _)| {
            let id = format!("{agent}-{name}");
            turn(agent, &id, &json!({"id": id, "calls": calls, "stop": stop}))
        }));
    }
    mill.send(&turns);
    for result in mill.results(turns.len()) {
        assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("done")), "{result}");
    }
    let events = mill.events();
    for (agent, (name, calls, _, codes)) in
        AGENTS.iter().flat_map(|agent| cases.iter().map(move |case| (agent, case)))
    {
        let id = format!("{agent}-{name}");
        let reply = &events.at(&id, "m0")[0]["reply"];
        assert_eq!(reply["calls"].as_array().unwrap().len(), calls.len(), "{id}");
        for (index, (call, code)) in calls.iter().zip(codes).enumerate() {
            assert_eq!(reply["calls"][index]["arguments"], call["arguments"], "{id}");
            let result = events.result(&id, &format!("m0.c{index}"));
            assert_eq!(result["error"]["code"].as_str(), *code, "{id} {index}: {result}");
        }
        // The second request has each call with its own result, in their order.
        let asked = server.asked(&format!("{id}\\\""));
        assert_eq!(asked.len(), 2, "{id}");
        let (of_calls, of_results) = pairs(&asked[1]);
        assert_eq!(of_calls.len(), calls.len(), "{id}");
        assert_eq!(of_calls, of_results, "{id}");
        let mut once = of_calls.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), of_calls.len(), "{id}: ids are unique");
    }
}

/// The ids of the calls in a request, and those of the results.
fn pairs(request: &Value) -> (Vec<String>, Vec<String>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for message in request["messages"].as_array().unwrap() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            // As a server reads it.
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments.is_object(), "{arguments}");
            calls.push(call["id"].as_str().unwrap().to_owned());
        }
        results.extend(message["tool_call_id"].as_str().map(str::to_owned));
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_use" {
                assert!(block["input"].is_object(), "{block}");
                calls.push(block["id"].as_str().unwrap().to_owned());
            }
            results.extend(block["tool_use_id"].as_str().map(str::to_owned));
        }
    }
    (calls, results)
}

#[test]
fn a_reply_says_who_made_it_what_it_took_and_what_it_cost_and_no_secret() {
    let server = ModelServer::open();
    let mill = server.setup("provider-says").ready();
    let worker = worker(&mill);
    let script = |id: &str| json!({"id": id, "calls": [called("x", "ping", "")], "fail": [529, 500]});
    mill.send(&AGENTS.map(|agent| turn(agent, agent, &script(agent))));
    mill.send(
        &AGENTS.map(|agent| turn(agent, &format!("{agent}-locked-out"), &json!({"fail": [401, 401, 401]}))),
    );
    mill.send(
        &AGENTS.map(|agent| turn(agent, &format!("{agent}-cut"), &json!({"calls": [], "stop": "never"}))),
    );
    let results = mill.results(6);
    let events = mill.events();
    for (agent, request_id) in AGENTS.into_iter().zip(["req_c", "req_g"]) {
        let reply = &events.at(agent, "m0")[0]["reply"];
        // 10 tokens at 100 and 5 at 200, for a million each.
        let served =
            json!({"model": format!("{agent}::m"), "attempts": 3, "request_id": request_id, "cost": "0.002"});
        assert_eq!(reply["served"], served);
        let result = |id: &str| results.iter().find(|result| result["turn_id"] == id).unwrap();
        assert_eq!(result(agent)["usage"]["cost"], "0.004");
        let locked_out = result(&format!("{agent}-locked-out"));
        assert_eq!(
            (&locked_out["status"], &locked_out["error"]["code"]),
            (&json!("failed"), &json!("model_authentication"))
        );
        let cut = result(&format!("{agent}-cut"));
        assert_eq!(
            (&cut["status"], &cut["error"]["code"]),
            (&json!("failed"), &json!("model_stream")),
            "{cut}"
        );
    }
    assert_eq!(mill.records("dead_letters").len(), 0);
    let checked = mill.spawn_with(&[("KEY".into(), KEY.into())], &["check"]).wait();
    let mut written = vec![worker.log(), checked.stdout, checked.stderr];
    for topic in ["events", "results", "status"] {
        written.extend(mill.records(topic).iter().map(|record| record.json().to_string()));
    }
    assert!(written[0].contains("[secret]"), "the log says that something was taken out");
    for text in written {
        assert!(!text.contains(KEY), "{text}");
    }
}

#[test]
fn text_goes_to_the_status_topic_while_it_is_made() {
    let server = ModelServer::open();
    let mill = server.setup("provider-text").ready();
    mill.reconfigure("tools = [\"note\", \"ping\"]", "stream_text = true");
    let _worker = worker(&mill);
    for agent in AGENTS {
        let script =
            json!({"text": format!("from {agent}"), "stop": "never", "hang": true, "hang_id": agent});
        mill.send(&[turn(agent, agent, &script)]);
        // The reply is not whole, and never will be.
        let mut status = mill.reader("status");
        status.until("a text", |records| records.iter().any(|record| record.json()["turn_id"] == agent));
        let told =
            status.records.iter().map(|record| record.json()).find(|told| told["turn_id"] == agent).unwrap();
        for (field, value) in [
            ("type", json!("model:text")),
            ("session_id", json!(agent)),
            ("agent", json!(agent)),
            ("position", json!("m0")),
            ("idempotency_key", json!(format!("{agent}/{agent}/m0"))),
            ("attempt", json!(1)),
            ("text", json!(format!("from {agent}"))),
            ("tool", Value::Null),
        ] {
            assert_eq!(told[field], value, "{field}");
        }
        assert!(mill.events().at(agent, "m0").is_empty());
        mill.run(&["cancel", "--session", agent, agent]).expect(0);
        assert_eq!(mill.result(agent)["status"], "cancelled");
    }
}

#[test]
fn a_cancel_ends_the_request() {
    let server = ModelServer::open();
    let mill = server.setup("provider-cancel").ready();
    let _worker = worker(&mill);
    for agent in AGENTS {
        let id = format!("{agent}-hangs");
        mill.send(&[turn(agent, &id, &json!({"stop": "never", "hang": true, "hang_id": id}))]);
        until("the model to be asked", || (!server.asked(&id).is_empty()).then_some(()));
        mill.run(&["cancel", "--session", &id, &id]).expect(0);
        assert_eq!(mill.result(&id)["status"], "cancelled");
        until("the worker to hang up", || {
            let hung_up = json!({"hung up": id});
            server.requests.lock().unwrap().contains(&hung_up).then_some(())
        });
    }
}
