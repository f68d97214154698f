//! Tools that are HTTP endpoints: declared in the configuration, called by a model, served by the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::support::{Setup, call, calls, text, turn};

/// A server that notes each request, and answers as its path says.
struct Shop {
    origin: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

#[derive(Clone)]
struct Request {
    /// Method, path and query.
    line: String,
    key: String,
    authorization: String,
    body: String,
}

impl Shop {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let noted = Arc::clone(&requests);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let request = read(&stream);
                let mut noted = noted.lock().unwrap();
                let again = noted.iter().any(|other| other.key == request.key);
                let (status, body) = match request.line.as_str() {
                    line if line.contains("/orders/none") => ("404 Not Found", r#"{"why":"no such order"}"#),
                    line if line.starts_with("POST") && !again => ("503 Service Unavailable", ""),
                    _ => ("200 OK", r#"{"total": 9007199254740993, "currency": "EUR"}"#),
                };
                noted.push(request);
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close");
                write!(&stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            }
        });
        Self { origin, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Its tools, and nothing more of the agent's.
    fn setup(&self, name: &str) -> Setup {
        let origin = &self.origin;
        let tools = format!(
            r#"
[[http_tools]]
name = "get_order"
description = "Find an order by its id."
method = "GET"
url = "{origin}/orders/{{order_id}}"
headers = {{ Authorization = "Bearer ${{SHOP_TOKEN}}" }}
read_only = true
[http_tools.parameters]
type = "object"
required = ["order_id"]
properties.order_id = {{ type = "string" }}
properties.expand = {{ type = "array" }}

[[http_tools]]
name = "add_order"
description = "Add an order."
method = "POST"
url = "{origin}/orders"
retry = 3
parameters = '{{"type": "object", "properties": {{"count": {{"type": "integer"}}}}}}'
"#
        );
        Setup::stock(name).agent(r#"tools = ["*_order"]"#).more(&tools)
    }
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
    let line = lines.next().unwrap();
    let headers: Vec<String> = lines.collect();
    let header = |name: &str| {
        let named = headers.iter().filter_map(|line| line.split_once(": "));
        named
            .filter(|(other, _)| *other == name)
            .map(|(_, value)| value.to_owned())
            .next()
            .unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or_default()];
    reader.read_exact(&mut body).unwrap();
    Request {
        line: line.trim_end_matches(" HTTP/1.1").into(),
        key: header("idempotency-key"),
        authorization: header("authorization"),
        body: String::from_utf8(body).unwrap(),
    }
}

#[test]
fn a_model_calls_an_endpoint_and_reads_its_answer() {
    let shop = Shop::open();
    let mill = shop.setup("http").ready();
    let _worker = mill.spawn_with(&[("SHOP_TOKEN".into(), "t-7351".into())], &["worker"]);
    let orders = [
        call("get_order", json!({"order_id": "a/7", "expand": ["items", "tax"]})),
        call("get_order", json!({"order_id": "none"})),
        call("get_order", json!({"order_id": ".."})),
        call("add_order", json!({"count": 3})),
    ];
    mill.send(&[turn("s", "t", &[calls(&orders), text("done")])]);
    let result = mill.result("t");
    assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("done")));

    let events = mill.events();
    let order = json!({"total": 9_007_199_254_740_993_u64, "currency": "EUR"});
    assert_eq!(events.result("t", "m0.c0")["output"], order);
    assert_eq!(events.result("t", "m0.c3")["output"], order);
    assert_eq!(events.result("t", "m0.c3")["attempts"], 2);
    let error = |position: &str| events.result("t", position)["error"].clone();
    assert_eq!(error("m0.c1")["code"], "tool_error");
    assert_eq!(error("m0.c1")["message"], r#"HTTP 404 Not Found: {"why":"no such order"}"#);
    let detail = error("m0.c1")["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with(&format!("GET {}/orders/none: HTTP 404", shop.origin)), "{detail}");
    assert_eq!(error("m0.c2")["code"], "invalid_arguments");

    let mut requests: Vec<_> = shop.requests().into_iter().map(|r| (r.key, r.line, r.body)).collect();
    requests.sort_unstable();
    let expected = [
        ("s/t/m0.c0", "GET /orders/a%2F7?expand=items&expand=tax", ""),
        ("s/t/m0.c1", "GET /orders/none", ""),
        ("s/t/m0.c3", "POST /orders", r#"{"count":3}"#),
        ("s/t/m0.c3", "POST /orders", r#"{"count":3}"#),
    ];
    let expected = expected.map(|(key, line, body)| (key.to_owned(), line.to_owned(), body.to_owned()));
    assert_eq!(requests, expected);
    assert!(shop.requests().iter().any(|request| request.authorization == "Bearer t-7351"));
    let mut written = mill.records("events").into_iter().chain(mill.records("results"));
    assert!(written.all(|record| !record.json().to_string().contains("7351")), "the token is on the log");
}

#[test]
fn what_is_wrong_with_an_endpoint_stops_the_worker() {
    let mill = Shop::open().setup("http-wrong").ready();
    let names_it = "turnmill.toml:";
    let unset = "http_tools[0].headers.Authorization: the environment variable SHOP_TOKEN is not set";
    for (args, code) in [(["worker"].as_slice(), 2), (&["check", "--offline"], 2), (&["topics", "check"], 0)]
    {
        let ended = mill.run(args).expect(code);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(said.contains(unset) && said.contains(names_it), code == 2, "{args:?}: {said}");
    }

    mill.reconfigure("/orders/{order_id}", "/orders/{id}");
    mill.reconfigure("retry = 3", "retry = 3\napproval_timeout = \"1s\"");
    for args in [["worker"].as_slice(), &["check", "--offline"]] {
        let ended = mill.run(args).expect(2);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("http_tools[0].url: {id} is not one of the properties"), "{said}");
        assert!(said.contains("http_tools[1].approval_timeout: "), "{said}");
    }
    assert!(!mill.cluster.has_group(&mill.id));
}

#[test]
fn an_endpoint_that_requires_approval_is_refused() {
    let mill = Shop::open().setup("http-gated").ready();
    mill.reconfigure("read_only = true", "read_only = true\nrequires_approval = true");
    let token = [("SHOP_TOKEN".to_owned(), "t".to_owned())];
    for args in [["worker"].as_slice(), &["check", "--offline"]] {
        let ended = mill.spawn_with(&token, args).wait().expect(4);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("\"get_order\" (declared in http_tools of the configuration)"), "{said}");
    }
    assert!(!mill.cluster.has_group(&mill.id));
}
