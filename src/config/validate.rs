//! What the types do not say: the checks that need no broker and no registry.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::decode::quoted;
use super::field::Field;
use super::problem::Problem;
use super::{AgentSpec, Config, Kafka, McpServer, Provider, Topics, Worker};
use super::{http_tool, properties, provider};
use crate::tool::Pattern;

/// The longest drain.
const MAX_DRAIN: Duration = Duration::from_secs(60 * 60);

/// The longest that a reply may take.
const MAX_REPLY_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest name of a topic, in characters; Kafka's rule.
const MAX_TOPIC: usize = 249;

/// Everything that is wrong with settings whose types are right. Paths must be resolved.
pub(super) fn validate(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    kafka(&config.kafka, &mut problems);
    topics(&config.topics, &mut problems);
    worker(&config.worker, &mut problems);
    if config.cache.timeout.is_zero() {
        problems.push(Problem::field("cache.timeout", "must be more than zero, such as \"500ms\""));
    }
    agents(&config.agents, &mut problems);
    names(config.http_tools.iter().map(|tool| tool.name.as_str()), "http_tools", &mut problems);
    problems.extend(http_tool::check(&config.http_tools));
    providers(&config.providers, &mut problems);
    problems.extend(provider::check_prices(&config.prices));
    mcp_servers(&config.mcp_servers, &mut problems);
    problems
}

fn kafka(kafka: &Kafka, problems: &mut Vec<Problem>) {
    if kafka.brokers.trim().is_empty() {
        problems.push(Problem::field(
            "kafka.brokers",
            "is empty; expected HOST:PORT, several separated by commas",
        ));
    } else {
        for broker in kafka.brokers.split(',').map(str::trim).filter(|broker| !is_host_port(broker)) {
            let message = format!("{} is not HOST:PORT; separate several by commas", quoted(broker));
            problems.push(Problem::field("kafka.brokers", message));
        }
    }
    if kafka.group_id.trim().is_empty() {
        problems.push(Problem::field("kafka.group_id", "is empty; name the consumer group"));
    }
    problems.extend(properties::refused(&kafka.properties));
}

fn is_host_port(broker: &str) -> bool {
    let Some((host, port)) = broker.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(v6) => {
            return v6.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok())
                && is_port(port);
        }
        None => host,
    };
    let in_host = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    !host.is_empty() && host.chars().all(in_host) && is_port(port)
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn topics(topics: &Topics, problems: &mut Vec<Problem>) {
    let named = [
        ("topics.turns", &topics.turns),
        ("topics.events", &topics.events),
        ("topics.results", &topics.results),
        ("topics.dead_letters", &topics.dead_letters),
        ("topics.status", &topics.status),
        ("topics.control", &topics.control),
    ];
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (field, topic) in named {
        if !is_topic(topic) {
            let message = format!(
                "{} is not the name of a topic: it has 1 to {MAX_TOPIC} characters of a-z A-Z 0-9 . _ - and is \
                 neither \".\" nor \"..\"",
                quoted(topic)
            );
            problems.push(Problem::field(field, message));
        } else if let Some(other) = seen.insert(topic, field) {
            let message = format!("{} is {other} already; each topic must be another one", quoted(topic));
            problems.push(Problem::field(field, message));
        }
    }
}

fn is_topic(name: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=MAX_TOPIC).contains(&name.len()) && name.bytes().all(in_name) && name != "." && name != ".."
}

fn worker(worker: &Worker, problems: &mut Vec<Problem>) {
    if worker.drain_timeout.is_zero() || worker.drain_timeout > MAX_DRAIN {
        let got = humantime::format_duration(worker.drain_timeout);
        let message = format!("expected more than 0s and at most 1h; got {got}");
        problems.push(Problem::field("worker.drain_timeout", message));
    }
}

fn agents(agents: &[AgentSpec], problems: &mut Vec<Problem>) {
    names(agents.iter().map(|agent| agent.name.as_str()), "agents", problems);
    for (index, agent) in agents.iter().enumerate() {
        model(index, agent, problems);
        if agent.max_run_time.is_some_and(|most| most.is_zero()) {
            let message = "expected more than 0s; got 0s";
            problems.push(Problem::field(format!("agents[{index}].max_run_time"), message));
        }
        patterns(&agent.tools, &format!("agents[{index}].tools"), problems);
        patterns(&agent.turn_tools, &format!("agents[{index}].turn_tools"), problems);
        if let Some(script) = agent.script.as_ref().filter(|script| !script.is_file()) {
            let message = format!("there is no file {}", script.display());
            problems.push(Problem::field(format!("agents[{index}].script"), message));
        }
    }
}

fn model(index: usize, agent: &AgentSpec, problems: &mut Vec<Problem>) {
    let field = |name: &str| format!("agents[{index}].{name}");
    if agent.model.iter().next().is_none() || agent.model.iter().any(|name| name.trim().is_empty()) {
        problems.push(Problem::field(field("model"), "is empty; name a model"));
    }
    if agent.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        problems.push(Problem::field(field("temperature"), "expected a number from 0 to 2"));
    }
    if agent.max_reply_time.is_zero() || agent.max_reply_time > MAX_REPLY_TIME {
        problems.push(Problem::field(field("max_reply_time"), "expected more than 0s and at most 24h"));
    }
    if let Err(message) = agent.options() {
        problems.push(Problem::field(field("model_options"), message));
    }
}

fn providers(providers: &[Provider], problems: &mut Vec<Problem>) {
    names(providers.iter().map(|provider| provider.name.as_str()), "providers", problems);
    for (index, provider) in providers.iter().enumerate() {
        let field = Field::default().child("providers").child(index);
        problems.extend(provider.check().into_iter().map(|(below, message)| {
            let field = below.into_iter().fold(field.clone(), |field, step| field.child(step));
            Problem::field(field.to_string(), message)
        }));
    }
}

fn patterns(patterns: &[Pattern], field: &str, problems: &mut Vec<Problem>) {
    for (index, _) in patterns.iter().enumerate().filter(|(_, pattern)| pattern.as_str().is_empty()) {
        let message = "is empty; expected the name of a tool, where * stands for any characters";
        problems.push(Problem::field(format!("{field}[{index}]"), message));
    }
}

fn mcp_servers(servers: &[McpServer], problems: &mut Vec<Problem>) {
    names(servers.iter().map(|server| server.name.as_str()), "mcp_servers", problems);
    for (index, server) in servers.iter().enumerate() {
        let field = format!("mcp_servers[{index}]");
        match (&server.command, &server.url) {
            (Some(_), Some(_)) => {
                problems.push(Problem::field(field, "has both command and url; keep one of them"))
            }
            (None, None) => {
                problems.push(Problem::field(field, "has neither command nor url; set one of them"))
            }
            (Some(command), None) => {
                if command.first().is_none_or(|program| program.is_empty()) {
                    problems.push(Problem::field(format!("{field}.command"), "names no program to start"));
                }
            }
            (None, Some(url)) => {
                if url.is_empty() {
                    problems.push(Problem::field(format!("{field}.url"), "is empty"));
                }
            }
        }
    }
}

/// Every element of a list has a name of its own.
fn names<'a>(names: impl Iterator<Item = &'a str>, list: &str, problems: &mut Vec<Problem>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, name) in names.enumerate() {
        let field = format!("{list}[{index}].name");
        if name.trim().is_empty() {
            problems.push(Problem::field(field, "is empty"));
        } else if !seen.insert(name) {
            // No index of the earlier one: the caller corrects the index of a field, not of a message.
            let message = format!("{} is the name of an earlier one; a name must be unique", quoted(name));
            problems.push(Problem::field(field, message));
        }
    }
}
