//! `[[http_tools]]`: every field, every problem, and the variables of headers.

use std::time::Duration;

use bytesize::ByteSize;

use super::super::{HttpTool, Method, Schema};
use super::{load_text, problems};
use crate::tool::{Approval, Decimal, Effect, Retry, RetryWait, Tool as _, UnknownOutcome};

const FULL: &str = r#"
[[http_tools]]
name = "get_order"
description = "Find an order by its id."
method = "GET"
url = "https://shop.example/orders/{order_id}?expand={expand}"
headers = { Authorization = "Bearer ${SHOP_TOKEN}", X-Price = "$$5" }
timeout = "10s"
retry = { max = 3, initial = "1s" }
max_response = "1MiB"
read_only = true
cache_ttl = "5m"
requires_approval = true
approval_timeout = "1h"
cost_per_call = "0.002"
deterministic = true
on_unknown_outcome = "report"
[http_tools.parameters]
type = "object"
required = ["order_id", "expand"]
[http_tools.parameters.properties.order_id]
type = "string"
[http_tools.parameters.properties.expand]
type = "number"
maximum = 1.5
[http_tools.output]
type = "object"

[[http_tools]]
name = "add_order"
description = "Add an order."
method = "POST"
url = "http://shop.example:8080"
retry = 3
writes = true
parameters = '{"type": "object", "properties": {"z": {}, "a": {}}}'
"#;

const TOKEN: (&str, &str) = ("SHOP_TOKEN", "t-1");

/// The least that a tool has, on five lines, then what a test adds.
fn tool(more: &str) -> String {
    format!(
        "[[http_tools]]\nname = \"t\"\ndescription = \"A tool.\"\nmethod = \"GET\"\nurl = \"https://h/x\"\n{more}\n"
    )
}

const SCHEMA: &str = "parameters.type = \"object\"";

#[test]
fn every_field() {
    let loaded = load_text(FULL, &[TOKEN]);
    let [get, add] = loaded.config.http_tools.as_slice() else { panic!("two tools") };
    assert_eq!((get.method, add.method), (Method::Get, Method::Post));
    assert_eq!(get.headers["Authorization"], "Bearer t-1");
    assert_eq!(get.headers["X-Price"], "$5");
    let spec = get.endpoint().unwrap().spec();
    assert_eq!((spec.name.as_str(), spec.description.as_str()), ("get_order", "Find an order by its id."));
    assert_eq!(spec.timeout, Duration::from_secs(10));
    let wait = RetryWait { initial: Duration::from_secs(1), max_delay: Duration::from_secs(10) };
    assert_eq!(spec.retry, Retry { max: 3, wait: Some(wait) });
    assert_eq!((spec.effect, spec.cache_ttl), (Effect::ReadOnly, Some(Duration::from_secs(300))));
    assert!(matches!(spec.requires_approval, Approval::Always));
    assert_eq!(spec.approval_timeout, Some(Duration::from_secs(3600)));
    assert_eq!(spec.cost_per_call, Decimal::new(2, 3));
    assert!(spec.deterministic);
    assert_eq!(spec.on_unknown_outcome, UnknownOutcome::Report);
    assert_eq!(spec.parameters["properties"]["expand"]["maximum"], 1.5);
    assert_eq!(spec.output.unwrap()["type"], "object");
    assert_eq!(get.endpoint().unwrap().max_response, ByteSize::mib(1));

    let spec = add.endpoint().unwrap().spec();
    assert_eq!((spec.effect, spec.retry), (Effect::Writes, 3.into()));
    assert_eq!((spec.timeout, add.max_response), (Duration::from_secs(30), ByteSize::kib(256)));
    assert_eq!((spec.on_unknown_outcome, spec.deterministic), (UnknownOutcome::Rerun, false));
    assert!(!spec.requires_approval.is_gated() && spec.cache_ttl.is_none() && spec.output.is_none());
    assert_eq!(spec.parameters["properties"].to_string(), r#"{"z":{},"a":{}}"#);
}

#[test]
fn the_reference_is_right() {
    let reference = include_str!("../../../docs/configuration.md");
    let section = reference.split("### `[[http_tools]]`").nth(1).unwrap();
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let loaded = load_text(example, &[TOKEN]);
    assert!(loaded.config.http_tools[0].endpoint().is_ok() && loaded.unset.is_empty());
}

#[test]
fn each_problem_has_its_field_and_line() {
    let cases = [
        (String::new(), "1: http_tools[0].parameters: is missing"),
        (
            "parameters = 5".into(),
            "6: http_tools[0].parameters: expected a table, or a JSON text in a string; got 5",
        ),
        (
            "parameters = \"{\"".into(),
            "6: http_tools[0].parameters: is not JSON: EOF while parsing an object",
        ),
        (
            "parameters = { type = \"array\" }".into(),
            "6: http_tools[0].parameters: the schema of the arguments of tool \"t\" cannot be used: arguments are an \
             object",
        ),
        (
            "parameters = '{\"type\": \"object\", \"properties\": 5}'".into(),
            "6: http_tools[0].parameters: the schema of the arguments of tool \"t\" cannot be used: ",
        ),
        (
            "parameters = { type = \"object\", maximum = inf }".into(),
            "6: http_tools[0].parameters: has the number inf, which JSON cannot carry",
        ),
        (
            format!("{SCHEMA}\noutput.type = 7"),
            "7: http_tools[0].output: the schema of the results of tool \"t\" cannot be used: ",
        ),
        (format!("{SCHEMA}\noutput = \"x\""), "7: http_tools[0].output: is not JSON: "),
        (format!("{SCHEMA}\ntimeout = \"0s\""), "7: http_tools[0].timeout: expected more than 0s; got 0s"),
        (
            format!("{SCHEMA}\ncache_ttl = \"0s\""),
            "7: http_tools[0].cache_ttl: expected more than 0s; got 0s",
        ),
        (
            format!("{SCHEMA}\napproval_timeout = \"1s\""),
            "7: http_tools[0].approval_timeout: tool \"t\" has an approval_timeout and requires no approval",
        ),
        (
            format!("{SCHEMA}\nread_only = true\nwrites = true"),
            "8: http_tools[0].writes: is set, and so is read_only; keep one of them",
        ),
        (
            format!("{SCHEMA}\nretry = -1"),
            "7: http_tools[0].retry: expected a whole number from 0 to 4294967295, or a table",
        ),
        (
            format!("{SCHEMA}\nretry.max = -1"),
            "7: http_tools[0].retry.max: expected a whole number from 0 to 4294967295; got -1",
        ),
        (
            format!("{SCHEMA}\nretry = {{ max = 1, initial = 5 }}"),
            "7: http_tools[0].retry.initial: expected a duration such as \"25s\"; got 5",
        ),
        (
            format!("{SCHEMA}\nretry = {{ max = 1, initial = \"11s\" }}"),
            "7: http_tools[0].retry: initial is longer than max_delay",
        ),
        (
            format!("{SCHEMA}\nretry = {{ max = 1, maximum = 1 }}"),
            "7: http_tools[0].retry.maximum: unknown field; expected one of `max`, `initial`, `max_delay`",
        ),
        (
            format!("{SCHEMA}\nmax_response = \"much\""),
            "7: http_tools[0].max_response: expected a size such as \"1MiB\"; got \"much\"",
        ),
        (
            format!("{SCHEMA}\nmax_response = 0"),
            "7: http_tools[0].max_response: expected 1 byte to 64.0 MiB; got 0 B",
        ),
        (
            format!("{SCHEMA}\nmax_response = \"65MiB\""),
            "7: http_tools[0].max_response: expected 1 byte to 64.0 MiB; got 65.0 MiB",
        ),
        (
            format!("{SCHEMA}\ncost_per_call = \"-1\""),
            "7: http_tools[0].cost_per_call: expected a decimal number of at least 0 in a string, such as \"0.002\"; \
             got \"-1\"",
        ),
        (
            format!("{SCHEMA}\ncost_per_call = 0.002"),
            "7: http_tools[0].cost_per_call: expected a string; got 0.002",
        ),
        (
            format!("{SCHEMA}\non_unknown_outcome = \"x\""),
            "7: http_tools[0].on_unknown_outcome: expected `rerun` or `report`; got \"x\"",
        ),
        (
            format!("{SCHEMA}\nheader = {{ A = \"b\" }}"),
            "7: http_tools[0].header: unknown field; expected one of ",
        ),
    ];
    for (more, expected) in cases {
        let found = problems(tool(&more), &[]);
        assert_eq!(found.len(), 1, "{more}: {found:#?}");
        assert!(found[0].starts_with(&format!("turnmill.toml:{expected}")), "{more}: {}", found[0]);
    }
}

#[test]
fn methods_urls_and_names_are_checked() {
    let cases = [
        (
            "\"GET\"",
            "\"HEAD\"",
            "4: http_tools[0].method: expected one of `GET`, `POST`, `PUT`, `PATCH`, `DELETE`; got \"HEAD\"",
        ),
        ("\"GET\"", "\"get\"", "4: http_tools[0].method: expected one of `GET`"),
        ("https://h/x", "https://u:p@h", "5: http_tools[0].url: has a user name or a password"),
        (
            "https://h/x",
            "https://h/{a}",
            "5: http_tools[0].url: {a} is not one of the properties of `parameters`",
        ),
        ("\"t\"", "\"a b\"", "2: http_tools[0].name: the tool name \"a b\" is not allowed"),
        ("\"t\"", "\"\"", "2: http_tools[0].name: is empty"),
        ("A tool.", " ", "3: http_tools[0].description: is empty"),
    ];
    for (from, to, expected) in cases {
        let found = problems(tool(SCHEMA).replace(from, to), &[]);
        assert_eq!(found.len(), 1, "{to}: {found:#?}");
        assert!(found[0].starts_with(&format!("turnmill.toml:{expected}")), "{to}: {}", found[0]);
    }
}

#[test]
fn headers_that_a_tool_may_not_set() {
    let cases = [
        ("idempotency-key = \"x\"", "headers.idempotency-key: cannot be set here"),
        ("Host = \"x\"", "headers.Host: cannot be set here"),
        ("\"a b\" = \"x\"", "headers.\"a b\": is not the name of a header"),
        ("X-A = \"secret\\n\"", "headers.X-A: its value is not one of a header"),
        ("X-A = \"1\", x-a = \"2\"", "headers.x-a: is set twice"),
        (
            "X-A = \"secret$\"",
            "headers.X-A: has a $ that begins no variable such as ${NAME}; a $ is written $$",
        ),
        ("X-A = \"secret${\"", "headers.X-A: has a $ that begins no variable"),
        ("X-A = \"${secret x}\"", "headers.X-A: has a $ that begins no variable"),
    ];
    for (header, expected) in cases {
        let found = problems(tool(&format!("{SCHEMA}\nheaders = {{ {header} }}")), &[]);
        assert_eq!(found.len(), 1, "{header}: {found:#?}");
        assert!(found[0].starts_with(&format!("turnmill.toml:7: http_tools[0].{expected}")), "{}", found[0]);
    }
}

#[test]
fn headers_are_not_shown() {
    let text = "[http_tools.headers]\nAuthorization = \"Bearer secret ${TOKEN}\"";
    let loaded = load_text(&tool(&format!("{SCHEMA}\n{text}")), &[("TOKEN", "secret too")]);
    assert_eq!(loaded.config.http_tools[0].headers["Authorization"], "Bearer secret secret too");
    let shown = format!("{loaded:?}");
    assert!(shown.contains("Authorization") && !shown.contains("secret"), "{shown}");

    for (wrong, field) in [
        ("headers = \"secret-7351\"", "[0].headers"),
        ("headers = [\"secret-7351\"]", "[0].headers"),
        ("headers.X = 7351", "[0].headers.X"),
        ("headers.X = [\"secret-7351\"]", "[0].headers.X"),
        ("headers.X = { y = \"secret-7351\" }", "[0].headers.X"),
    ] {
        let found = problems(tool(&format!("{SCHEMA}\n{wrong}")), &[]).concat();
        assert!(found.contains(&format!(":7: http_tools{field}: expected a ")), "{found}");
        assert!(!found.contains("7351"), "{found}");
    }
    for wrong in ["http_tools = \"secret\"", "http_tools = [\"secret\"]"] {
        assert!(!problems(wrong, &[]).concat().contains("secret"), "{wrong}");
    }
}

/// The problems that only those who run tools mind, without the folder.
fn unset(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let problems = load_text(text, env).unset;
    problems
        .iter()
        .map(|problem| problem.to_string().split_once("turnmill.toml:").unwrap().1.into())
        .collect()
}

#[test]
fn a_variable_that_is_not_set_is_a_problem_for_who_runs_tools() {
    assert_eq!(
        unset(FULL, &[]),
        ["7: http_tools[0].headers.Authorization: the environment variable SHOP_TOKEN is not set"]
    );
    let two = tool(&format!("{SCHEMA}\n[http_tools.headers]\nA = \"${{A}} ${{B}}\"\nC = \"${{C}}\""));
    let found = unset(&two, &[("B", "sec\nret")]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_eq!(found[0], "8: http_tools[0].headers.A: the environment variable A is not set");
    assert!(
        found[1].starts_with("8: http_tools[0].headers.A: the environment variable B has what no header")
    );
    assert!(found[2].starts_with("9: ") && !found.concat().contains("ret"), "{found:#?}");
    assert!(unset(FULL, &[("SHOP_TOKEN", "")]).is_empty());
    // What a variable holds is not read again.
    let loaded = load_text(FULL, &[("SHOP_TOKEN", "${HOME}$$")]);
    assert_eq!(loaded.config.http_tools[0].headers["Authorization"], "Bearer ${HOME}$$");
}

#[test]
fn the_environment_sets_fields_of_a_tool() {
    let env = [
        ("TURNMILL__HTTP_TOOLS__0__URL", "http://127.0.0.1:1/{order_id}"),
        ("TURNMILL__HTTP_TOOLS__0__RETRY", "7"),
        ("TURNMILL__HTTP_TOOLS__0__PARAMETERS", TEXT),
        TOKEN,
    ];
    const TEXT: &str = r#"{"type": "object", "properties": {"order_id": {}}, "required": ["order_id"]}"#;
    let tool: HttpTool = load_text(FULL, &env).config.http_tools.swap_remove(0);
    assert_eq!((tool.retry, tool.parameters.clone()), (7.into(), Schema::Text(TEXT.into())));
    assert!(tool.endpoint().is_ok());
    // A variable's name has no dashes, so it would set another header beside the one that is meant.
    let header = ("TURNMILL__HTTP_TOOLS__0__HEADERS__X_KEY", "secret");
    let problem = "TURNMILL__HTTP_TOOLS__0__HEADERS__X_KEY: sets a header of an HTTP tool: set it in the file, as \
                   `Name = \"${VARIABLE}\"`";
    assert_eq!(problems(FULL, &[header, TOKEN]), [problem]);
}

#[test]
fn all_problems_at_once_with_the_indices_of_the_file() {
    let text =
        format!(
        "[worker]\nmax_in_flight = 0\n{}{}{}",
        tool("parameters = 5").replace("\"t\"", "\"other\""),
        tool(SCHEMA),
        tool("parameters = { type = \"array\" }\nread_only = true\nwrites = true\nheaders = { Host = \"x\" }")
            .replace("https://h/x", "ftp://h"),
    );
    let starts = [
        "turnmill.toml:2: worker.max_in_flight: ",
        "turnmill.toml:8: http_tools[0].parameters: expected a table",
        "turnmill.toml:16: http_tools[2].name: \"t\" is the name of an earlier one; a name must be unique",
        "turnmill.toml:19: http_tools[2].url: expected a URL that begins with",
        "turnmill.toml:20: http_tools[2].parameters: the schema of the arguments",
        "turnmill.toml:22: http_tools[2].writes: is set",
        "turnmill.toml:23: http_tools[2].headers.Host: cannot be set here",
    ];
    let found = problems(text, &[]);
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found} does not start with {start}");
    }
}

#[test]
fn arguments_that_no_schema_speaks_of_are_refused_unless_it_says_otherwise() {
    let parameters = |schema: &str| {
        let text = tool(&format!("parameters = {{ {schema} }}")).replace("/x", "/{order_id}");
        let tool = load_text(&text, &[]).config.http_tools.swap_remove(0);
        tool.endpoint().unwrap().spec.parameters["additionalProperties"].clone()
    };
    assert_eq!(parameters(r#"type = "object", properties.order_id = {}, required = ["order_id"]"#), false);
    let open =
        r#"type = "object", properties.order_id = {}, required = ["order_id"], additionalProperties = true"#;
    assert_eq!(parameters(open), true);
}

#[test]
fn what_can_never_stand_in_the_url_is_a_problem() {
    let text = tool(
        r#"parameters = { type = "object", properties.order_id.type = "array", required = ["order_id"] }"#,
    )
    .replace("/x", "/{order_id}");
    let found = problems(&text, &[]);
    let expected =
        "{order_id} is of type array in `parameters`: only a string, a number or a boolean can stand there";
    assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
}
