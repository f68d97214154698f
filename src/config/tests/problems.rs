//! Each kind of problem, with its field and line.

use super::super::field::Field;
use super::{load_text, problems};

#[test]
fn syntax() {
    let found = problems("[kafka]\nbrokers = \n\n[worker\nmax_in_flight = 1\n", &[]);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("turnmill.toml:2: not valid TOML: "), "{found:#?}");
    assert!(found[1].starts_with("turnmill.toml:4: not valid TOML: "), "{found:#?}");
    let found = problems("[kafka]\n[topics]\n[kafka]\n", &[]);
    assert_eq!(found, ["turnmill.toml:3: not valid TOML: duplicate key"]);
    let found = problems(format!("a = [\n{}", "b = 1\n".repeat(50)), &[]);
    assert_eq!(found.len(), 5, "what follows from the first is cut off: {found:#?}");
    let found = problems("a = \"x\n", &[]);
    assert!(found[0].starts_with("turnmill.toml:1: "), "{found:#?}");
}

#[test]
fn unknown_fields() {
    let text = "kafak = 1\n[worker]\nmax_in_flight = 2\nmax_inflight = 1\n[[agents]]\nname = \"a\"\nmodel = \"m\"\ntool = []";
    assert_eq!(
        problems(text, &[]),
        [
            "turnmill.toml:1: kafak: unknown field; expected one of `kafka`, `topics`, `worker`, `admin`, `cache`, `tools`, `switches`, \
             `agents`, `providers`, `prices`, `http_tools`, `mcp_servers`",
            "turnmill.toml:4: worker.max_inflight: unknown field; expected one of `max_in_flight`, \
             `drain_timeout`, `delivery`, `step_boundary_durability`, `max_redeliveries`",
            "turnmill.toml:8: agents[0].tool: unknown field; expected one of `name`, `description`, `system`, `model`, \
             `temperature`, `max_reply_tokens`, `max_reply_time`, `prompt_cache`, `stream_text`, `model_options`, `tools`, `turn_tools`, `sub_agents`, `max_tool_calls`, `max_model_calls`, `max_tokens`, `max_cost`, `max_run_time`, `on_tool_error`, `max_duration`, `script`",
        ]
    );
}

#[test]
fn wrong_types_and_values() {
    let cases = [
        ("kafka = 5", "1: kafka: expected a table; got 5"),
        ("agents = 5", "1: agents: expected tables headed [[agents]]; got 5"),
        ("agents = [\"x\"]", "1: agents[0]: expected a table; got \"x\""),
        ("[kafka]\ngroup_id = 5", "2: kafka.group_id: expected a string; got 5"),
        ("[kafka]\nproperties = \"a=b\"", "2: kafka.properties: expected a table; got a string"),
        (
            "[kafka.properties]\n\"sasl.password\" = [\"secret\"]",
            "2: kafka.properties.\"sasl.password\": expected a string, a number or a boolean; got a list",
        ),
        (
            "[kafka.properties]\nclient.id = 1\n\"client.id\" = 2",
            "3: kafka.properties.\"client.id\": is set twice",
        ),
        ("worker.max_in_flight = 0", "1: worker.max_in_flight: expected a whole number of at least 1; got 0"),
        (
            "worker.max_in_flight = 1.5",
            "1: worker.max_in_flight: expected a whole number of at least 1; got 1.5",
        ),
        (
            "worker.max_in_flight = 99_999_999_999_999_999_999",
            "1: worker.max_in_flight: the number 99999999999999999999 is out of range: it does not fit into 64 bits",
        ),
        ("worker.drain_timeout = 25", "1: worker.drain_timeout: expected a duration such as \"25s\"; got 25"),
        (
            "worker.drain_timeout = \"x\"",
            "1: worker.drain_timeout: expected a duration such as \"25s\"; got \"x\"",
        ),
        (
            "worker.drain_timeout = \"0s\"",
            "1: worker.drain_timeout: expected more than 0s and at most 1h; got 0s",
        ),
        (
            "worker.drain_timeout = \"61m\"",
            "1: worker.drain_timeout: expected more than 0s and at most 1h; got 1h 1m",
        ),
        (
            "worker.delivery = \"x\"",
            "1: worker.delivery: expected `at-least-once` or `exactly-once`; got \"x\"",
        ),
        ("worker.delivery = 1", "1: worker.delivery: expected a string; got 1"),
        ("admin.listen = 9464", "1: admin.listen: expected an address such as \"127.0.0.1:9464\"; got 9464"),
        (
            "admin.listen = \"x\"",
            "1: admin.listen: expected an address such as \"127.0.0.1:9464\"; got \"x\"",
        ),
        ("tools.samples = \"yes\"", "1: tools.samples: expected true or false; got \"yes\""),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text, &[]), [format!("turnmill.toml:{expected}")], "{text}");
    }
}

#[test]
fn agents() {
    let agent = "[[agents]]\nname = \"a\"\nmodel = \"scripted\"\n";
    let cases = [
        (String::from("[[agents]]\nname = \"a\""), "1: agents[0].model: is missing"),
        ("[[agents]]\nname = 5\nmodel = \"m\"".into(), "2: agents[0].name: expected a string; got 5"),
        ("[[agents]]\nname = \"\"\nmodel = \"m\"".into(), "2: agents[0].name: is empty"),
        ("[[agents]]\nname = \"a\"\nmodel = \"\"".into(), "3: agents[0].model: is empty; name a model"),
        (
            format!("{agent}{agent}"),
            "5: agents[1].name: \"a\" is the name of an earlier one; a name must be unique",
        ),
        (
            format!("{agent}tools = \"echo\""),
            "4: agents[0].tools: expected a list such as [\"a\", \"b\"]; got \"echo\"",
        ),
        (
            format!("{agent}turn_tools = [\"x\",\n\"\"]"),
            "5: agents[0].turn_tools[1]: is empty; expected the name of a tool, where * stands for any characters",
        ),
        (
            format!("{agent}max_tool_calls = 5_000_000_000"),
            "4: agents[0].max_tool_calls: expected a whole number from 1 to 4294967295; got 5000000000",
        ),
        (format!("{agent}max_cost = 0.5"), "4: agents[0].max_cost: expected a string; got 0.5"),
        (
            format!("{agent}max_cost = \"-1\""),
            "4: agents[0].max_cost: expected a decimal number of at least 0 in a string, such as \"0.002\"; got \"-1\"",
        ),
        (
            format!("{agent}max_tokens = 0"),
            "4: agents[0].max_tokens: expected a whole number of at least 1; got 0",
        ),
        (format!("{agent}max_run_time = \"0s\""), "4: agents[0].max_run_time: expected more than 0s; got 0s"),
        (format!("{agent}script = \"no.json\""), "4: agents[0].script: there is no file no.json"),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(&text, &[]), [format!("turnmill.toml:{expected}")], "{text}");
    }
}

#[test]
fn indices_are_those_of_the_file() {
    let text = "agents = [\n5,\n{ name = \"a\", model = \"m\", tools = [\n1, 2, \"x\",\n\"\", 3] },\n\"x\",\n{ name = \"b\", model = \"\" }\n]";
    assert_eq!(
        problems(text, &[]),
        [
            "turnmill.toml:2: agents[0]: expected a table; got 5",
            "turnmill.toml:4: agents[1].tools[0]: expected a string; got 1",
            "turnmill.toml:4: agents[1].tools[1]: expected a string; got 2",
            "turnmill.toml:5: agents[1].tools[4]: expected a string; got 3",
            "turnmill.toml:5: agents[1].tools[3]: is empty; expected the name of a tool, where * stands for any characters",
            "turnmill.toml:6: agents[2]: expected a table; got \"x\"",
            "turnmill.toml:7: agents[3].model: is empty; name a model",
        ]
    );
}

#[test]
fn mcp_servers() {
    let cases = [
        ("", "1: mcp_servers[0]: has neither command nor url; set one of them"),
        ("command = [\"x\"]\nurl = \"y\"", "1: mcp_servers[0]: has both command and url; keep one of them"),
        ("command = []", "3: mcp_servers[0].command: names no program to start"),
        (
            "command = \"x --token=y\"",
            "3: mcp_servers[0].command: expected a list such as [\"a\", \"b\"]; got a string",
        ),
        ("url = \"\"", "3: mcp_servers[0].url: is empty"),
        (
            "comand = []",
            "3: mcp_servers[0].comand: unknown field; expected one of `name`, `command`, `url`, `requires_approval`",
        ),
        (
            "url = \"x\"\n[[mcp_servers]]\nname = \"m\"\nurl = \"y\"",
            "5: mcp_servers[1].name: \"m\" is the name of an earlier one; a name must be unique",
        ),
    ];
    for (fields, expected) in cases {
        let found = problems(format!("[[mcp_servers]]\nname = \"m\"\n{fields}"), &[]);
        assert!(found.contains(&format!("turnmill.toml:{expected}")), "{fields}: {found:#?}");
    }
}

#[test]
fn brokers() {
    for good in ["a:1", "a.b-c_d:65535,127.0.0.1:9092", "[::1]:9092 , a:1"] {
        load_text(&format!("[kafka]\nbrokers = \"{good}\""), &[]);
    }
    for bad in
        ["a", "a:", ":1", "a:0", "a:65536", "a:+1", "[::1]", "[x]:1", "::1:9092", "PLAINTEXT://a:1", "a b:1"]
    {
        assert_eq!(
            problems(format!("[kafka]\nbrokers = \"ok:1,{bad}\""), &[]),
            [format!(
                "turnmill.toml:2: kafka.brokers: \"{bad}\" is not HOST:PORT; separate several by commas"
            )]
        );
    }
    assert_eq!(
        problems("[kafka]\nbrokers = \"\"\ngroup_id = \" \"", &[]),
        [
            "turnmill.toml:2: kafka.brokers: is empty; expected HOST:PORT, several separated by commas",
            "turnmill.toml:3: kafka.group_id: is empty; name the consumer group",
        ]
    );
}

#[test]
fn refused_properties() {
    let good = [
        ("acks", "\"all\""),
        ("acks", "-1"),
        ("enable.idempotence", "true"),
        ("partitioner", "\"murmur2_random\""),
        ("auto.offset.reset", "\"latest\""),
        ("partition.assignment.strategy", "\"cooperative-sticky\""),
    ];
    for (name, value) in good {
        load_text(&format!("[kafka.properties]\n\"{name}\" = {value}"), &[]);
    }
    let bad = [
        ("acks", "1", "cannot be \"1\": a step counts"),
        ("request.required.acks", "0", "cannot be \"0\": a step counts"),
        ("enable.idempotence", "false", "cannot be \"false\": without it"),
        ("enable.auto.commit", "false", "cannot be set here: an offset is committed"),
        ("enable.auto.offset.store", "true", "cannot be set here: an offset is stored"),
        ("isolation.level", "\"read_uncommitted\"", "cannot be set here: records of aborted"),
        ("group.id", "\"g\"", "cannot be set here: set kafka.group_id instead"),
        ("bootstrap.servers", "\"a:1\"", "cannot be set here: set kafka.brokers instead"),
        ("metadata.broker.list", "\"a:1\"", "cannot be set here: set kafka.brokers instead"),
        ("partitioner", "\"consistent\"", "cannot be \"consistent\": a session"),
        ("transactional.id", "\"x\"", "cannot be set here: a worker decides"),
        ("auto.offset.reset", "\"none\"", "cannot be \"none\": expected earliest, latest or error"),
    ];
    for (name, value, expected) in bad {
        let found = problems(format!("[kafka.properties]\n\"{name}\" = {value}"), &[]);
        let field = Field(vec!["kafka".into(), "properties".into(), name.into()]);
        let expected = format!("turnmill.toml:2: {field}: {expected}");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:#?}");
    }
}

#[test]
fn topic_names() {
    for bad in ["", ".", "..", "a b", "ä", &"x".repeat(250)] {
        let found = problems(format!("[topics]\nstatus = \"{bad}\""), &[]);
        assert!(found[0].starts_with("turnmill.toml:2: topics.status: "), "{found:#?}");
        assert_eq!(found.len(), 1);
    }
    load_text(&format!("[topics]\nstatus = \"{}\"", "x".repeat(249)), &[]);
    assert_eq!(
        problems("[topics]\nevents = \"agent.turns\"\ncontrol = \"agent.turns\"", &[]),
        [
            "turnmill.toml:2: topics.events: \"agent.turns\" is topics.turns already; each topic must be another one",
            "turnmill.toml:3: topics.control: \"agent.turns\" is topics.events already; each topic must be another one",
        ]
    );
}

#[test]
fn every_kind_at_once_in_the_order_of_the_file() {
    let text = "[worker]\ndrain_timeout = \"0s\"\nx = 1\nmax_in_flight = \"many\"\n[kafka]\nbrokers = \"\"\n\
                [[agents]]\nmodel = \"m\"\nscript = \"no.json\"\n[topics]\nturns = \"/\"\nevents = 1\n";
    let env = [("TURNMILL__TOOLS__SAMPLES", "maybe"), ("TURNMILL__", "")];
    let starts = [
        "turnmill.toml:2: worker.drain_timeout: expected more",
        "turnmill.toml:3: worker.x: unknown",
        "turnmill.toml:4: worker.max_in_flight: expected a whole number of at least 1; got \"many\"",
        "turnmill.toml:6: kafka.brokers: is empty",
        "turnmill.toml:7: agents[0].name: is missing",
        "turnmill.toml:9: agents[0].script: there is no file",
        "turnmill.toml:11: topics.turns: \"/\" is not",
        "turnmill.toml:12: topics.events: expected a string; got 1",
        "TURNMILL__: not the name of a setting",
        "TURNMILL__TOOLS__SAMPLES: tools.samples: expected true or false; got \"maybe\"",
    ];
    let found = problems(text, &env);
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found} does not start with {start}");
    }
}

#[test]
fn many_problems_come_to_an_end() {
    let text: String = (0..1000).map(|i| format!("x{i} = 1\n")).collect();
    let found = problems(text, &[]);
    assert_eq!(found.len(), 101);
    assert_eq!(found[100], "turnmill.toml: and perhaps more: only 100 problems are shown");
}
