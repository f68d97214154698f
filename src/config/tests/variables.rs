//! The environment over the file.

use std::time::Duration;

use super::super::AgentSpec;
use super::{load_text, problems};
use crate::tool::Pattern;

#[test]
fn the_environment_overrides_the_file() {
    let text = "[worker]\nmax_in_flight = 1\n[kafka]\ngroup_id = \"g\"\n[kafka.properties]\nsecurity.protocol = \"ssl\"\n\
                [[agents]]\nname = \"a\"\nmodel = \"m\"\ntools = [\"x\", \"y\"]\n";
    let env = [
        ("TURNMILL__WORKER__MAX_IN_FLIGHT", "42"),
        ("TURNMILL__WORKER__DRAIN_TIMEOUT", "5s"),
        ("TURNMILL__KAFKA__GROUP_ID", "42"),
        ("TURNMILL__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "plaintext"),
        ("TURNMILL__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", "6000"),
        ("TURNMILL__tools__Samples", "true"),
        ("TURNMILL__ADMIN__LISTEN", "0.0.0.0:1"),
        ("TURNMILL__AGENTS__0__MODEL", "true"),
        ("TURNMILL__AGENTS__0__TOOLS__1", "1"),
        ("TURNMILL__AGENTS__1__NAME", "b"),
        ("TURNMILL__AGENTS__1__MODEL", "scripted"),
        ("TURNMILL__AGENTS__1__TOOLS", "[\"echo\", \"add\"]"),
        ("TURNMILL__AGENTS__1__MAX_TOOL_CALLS", "0x10"),
        ("TURNMILL__AGENTS__2", "{ name = \"c\", model = \"scripted\" }"),
        ("TURNMILL_LOG", "x"),
        ("OTHER", "x"),
    ];
    let loaded = load_text(text, &env);
    let config = &loaded.config;
    assert_eq!(config.worker.max_in_flight.get(), 42);
    assert_eq!(config.worker.drain_timeout, Duration::from_secs(5));
    assert_eq!(config.kafka.group_id, "42");
    assert_eq!(config.kafka.properties["security.protocol"], "plaintext");
    assert_eq!(config.kafka.properties["session.timeout.ms"], "6000");
    assert!(config.tools.samples);
    assert_eq!(config.admin.listen.port(), 1);
    assert_eq!(config.agents[0].model.single(), Some("true"));
    assert_eq!(config.agents[0].tools, [Pattern::new("x"), Pattern::new("1")]);
    assert_eq!(config.agents[1].tools, [Pattern::new("echo"), Pattern::new("add")]);
    assert_eq!(config.agents[1].max_tool_calls.get(), 16);
    assert_eq!(config.agents[2], AgentSpec::new("c", "scripted"));
    assert_eq!(loaded.line_of("agents[0].name"), Some(8));
    assert_eq!(loaded.line_of("agents[0].model"), None);
}

#[test]
fn problems_of_the_environment_name_the_variable() {
    let file = "[kafka]\nbrokers = \"a:1\"\n[[agents]]\nname = \"a\"\nmodel = \"m\"\n";
    let cases = [
        (
            "TURNMILL__WORKER__MAXIMUM",
            "1",
            "worker.maximum: unknown field; expected one of `max_in_flight`, `drain_timeout`, `delivery`, \
             `step_boundary_durability`, `max_redeliveries`",
        ),
        (
            "TURNMILL__WORKER__MAX_IN_FLIGHT",
            "0",
            "worker.max_in_flight: expected a whole number of at least 1; got 0",
        ),
        (
            "TURNMILL__WORKER__MAX_IN_FLIGHT",
            "x",
            "worker.max_in_flight: expected a whole number of at least 1; got \"x\"",
        ),
        (
            "TURNMILL__WORKER__DRAIN_TIMEOUT",
            "25",
            "worker.drain_timeout: expected a duration such as \"25s\"; got 25",
        ),
        (
            "TURNMILL__WORKER__DRAIN_TIMEOUT",
            "2h",
            "worker.drain_timeout: expected more than 0s and at most 1h; got 2h",
        ),
        ("TURNMILL__WORKER__", "1", "not the name of a setting: expected TURNMILL__SECTION__FIELD"),
        (
            "TURNMILL__KAFKA__BROKERS",
            "secret",
            "kafka.brokers: \"secret\" is not HOST:PORT; separate several by commas",
        ),
        ("TURNMILL__KAFKA", "secret", "kafka: expected a table; got a string"),
        ("TURNMILL__KAFKA__BROKERS__X", "1", "kafka.brokers has no fields: it is one value"),
        (
            "TURNMILL__KAFKA__PROPERTIES__ACKS",
            "1",
            "kafka.properties.acks: cannot be \"1\": a step counts as recorded only when every in-sync replica has it; remove it",
        ),
        ("TURNMILL__KAFKA__0", "1", "kafka is not a list"),
        ("TURNMILL__AGENTS__NAME", "x", "agents is a list: a number comes next, 0 for its first element"),
        ("TURNMILL__AGENTS__5__NAME", "x", "there is no agents[5]: agents has 1 elements"),
        ("TURNMILL__AGENTS__1__NAME", "x", "agents[1].model: is missing"),
        (
            "TURNMILL__AGENTS__0__TOOLS",
            "a,b",
            "agents[0].tools: expected a list such as [\"a\", \"b\"]; got \"a,b\"",
        ),
        ("TURNMILL__AGENTS__0__TOOLS", "[1]", "agents[0].tools[0]: expected a string; got 1"),
    ];
    for (variable, value, expected) in cases {
        assert_eq!(problems(file, &[(variable, value)]), [format!("{variable}: {expected}")]);
    }
    let twice = [("TURNMILL__KAFKA__GROUP_ID", "a"), ("TURNMILL__KAFKA__group_id", "b")];
    assert_eq!(
        problems(file, &twice),
        ["TURNMILL__KAFKA__group_id: TURNMILL__KAFKA__GROUP_ID sets kafka.group_id too; keep one of them"]
    );
    let deep = format!("TURNMILL{}", "__A".repeat(10_000));
    assert_eq!(problems(file, &[(&deep, "1")]).len(), 1);
}
