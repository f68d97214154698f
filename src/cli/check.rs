//! `turnmill check`: everything that is wrong, at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::program::Program;
use super::{Error, Exit, print};
use crate::config::{AgentSpec, Problem};
use crate::kafka::{self, topics};
use crate::tool::{Effect, Registered};
use crate::worker::bind::{Bound, BoundAgent};

/// Check configuration, agents, tools, refusals and topics; report all problems at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ask no broker and no cache: leave the topics and Redis out.
    #[arg(long)]
    offline: bool,

    /// Show the tools and agents too: who is offered what, and with --json their definitions as providers take them.
    #[arg(long)]
    tools: bool,
}

/// What was found, by kind.
#[derive(Default)]
struct Findings {
    configuration: Vec<String>,
    refusals: Vec<String>,
    topics: Vec<String>,
    permissions: Vec<String>,
    brokers: Vec<String>,
    cache: Vec<String>,
}

/// Looks at everything and prints what it found. `problems` is what the settings have wrong that the program
/// was put together without; there is no program where nothing was left of them.
pub(crate) async fn run(
    args: Args,
    program: Option<&Program>,
    problems: &[Problem],
    json: bool,
) -> Result<Exit, Error> {
    let mut found = Findings::default();
    found.configuration.extend(problems.iter().map(ToString::to_string));
    let (mut summary, mut tools, mut agents_shown) = (String::new(), Vec::new(), Vec::new());
    if let Some(program) = program {
        let Bound { agents, problems, refusals } = program.look();
        found.configuration.extend(problems.iter().map(ToString::to_string));
        found.refusals.extend(refusals.iter().map(ToString::to_string));
        if args.tools {
            tools = shown(program, &agents);
            agents_shown = shown_agents(program, &agents);
        }
        summary = format!("{} agents, {} tools", agents.len(), program.registry.iter().count());
        if !args.offline {
            look_at_topics(program, &mut found).await;
            look_at_cache(program, &mut found).await;
        }
    }
    let exit = found.exit();
    if json {
        let mut all = json!({
            "ok": exit == Exit::Done,
            "configuration": found.configuration,
            "refusals": found.refusals,
            "topics": found.topics,
            "permissions": found.permissions,
            "brokers": found.brokers,
            "cache": found.cache,
        });
        if let Some(all) = all.as_object_mut().filter(|_| args.tools) {
            all.insert("tools".into(), tools.iter().map(Shown::to_json).collect());
            all.insert("agents".into(), agents_shown.iter().map(ShownAgent::to_json).collect());
        }
        print::json(&all)?;
        return Ok(exit);
    }
    for tool in &tools {
        print::line(tool)?;
    }
    for agent in &agents_shown {
        print::line(agent)?;
    }
    let kinds = [
        ("configuration", &found.configuration),
        ("refused", &found.refusals),
        ("topics", &found.topics),
        ("permissions", &found.permissions),
        ("brokers", &found.brokers),
        ("cache", &found.cache),
    ];
    for (kind, lines) in kinds {
        for line in lines {
            print::line(format!("{kind}: {line}"))?;
        }
    }
    if exit == Exit::Done {
        print::line(format!("everything is right: {summary}"))?;
    }
    Ok(exit)
}

/// An agent that can run.
struct ShownAgent<'a> {
    spec: &'a AgentSpec,
    bound: Arc<BoundAgent>,
    in_code: bool,
}

/// The agents in the order of the configuration.
fn shown_agents<'a>(program: &'a Program, bound: &HashMap<String, Arc<BoundAgent>>) -> Vec<ShownAgent<'a>> {
    (program.loaded.config.agents.iter())
        .filter_map(|spec| {
            let bound = Arc::clone(bound.get(&spec.name)?);
            Some(ShownAgent { spec, bound, in_code: program.codes.contains_key(&spec.name) })
        })
        .collect()
}

impl ShownAgent<'_> {
    fn tools(&self) -> Vec<&str> {
        self.bound.tools.iter().map(|tool| tool.spec.name.as_str()).collect()
    }

    fn to_json(&self) -> Value {
        let AgentSpec { name, model, sub_agents, .. } = self.spec;
        let definition = &self.bound.definition;
        json!({
            "name": name,
            "model": model,
            "in_code": self.in_code,
            "tools": self.tools(),
            "sub_agents": sub_agents,
            "anthropic": definition.to_anthropic(),
            "openai": definition.to_openai(),
        })
    }
}

impl fmt::Display for ShownAgent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgentSpec { name, model, sub_agents, .. } = self.spec;
        let list = |names: &[&str]| if names.is_empty() { "none".into() } else { names.join(", ") };
        let code = if self.in_code { ", in code" } else { "" };
        let others: Vec<_> = sub_agents.iter().map(String::as_str).collect();
        write!(
            f,
            "agent {name} (model {model}{code}): tools {}; agents {}",
            list(&self.tools()),
            list(&others)
        )
    }
}

/// A tool, and the agents that are offered it, in the order of the configuration.
struct Shown<'a> {
    tool: &'a Registered,
    agents: Vec<&'a str>,
}

/// The tools in the order of their registration.
fn shown<'a>(program: &'a Program, bound: &HashMap<String, Arc<BoundAgent>>) -> Vec<Shown<'a>> {
    let offered = |agent: &&str, name: &str| {
        bound.get(*agent).is_some_and(|agent| agent.tools.iter().any(|tool| tool.spec.name == name))
    };
    let agents = || program.loaded.config.agents.iter().map(|agent| agent.name.as_str());
    (program.registry.iter())
        .map(|tool| Shown {
            tool,
            agents: agents().filter(|agent| offered(agent, &tool.spec.name)).collect(),
        })
        .collect()
}

impl Shown<'_> {
    fn effect(&self) -> &'static str {
        match self.tool.spec.effect {
            Effect::ReadOnly => "read_only",
            Effect::Writes => "writes",
            Effect::Unmarked => "unmarked",
        }
    }

    fn to_json(&self) -> Value {
        let Registered { spec, definition, source, .. } = self.tool;
        let text = |duration| humantime::format_duration(duration).to_string();
        json!({
            "name": spec.name,
            "source": source.to_string(),
            "agents": self.agents,
            "effect": self.effect(),
            "requires_approval": spec.requires_approval.is_gated(),
            "approval_timeout": spec.approval_timeout.map(text),
            "approval": spec.requires_approval.as_str(),
            "retry": {
                "max": spec.retry.max,
                "initial": spec.retry.wait.map(|wait| text(wait.initial)),
                "max_delay": spec.retry.wait.map(|wait| text(wait.max_delay)),
            },
            "blocking": spec.blocking,
            "timeout": text(spec.timeout),
            "cache_ttl": spec.cache_ttl.map(text),
            "cost_per_call": spec.cost_per_call,
            "deterministic": spec.deterministic,
            "on_unknown_outcome": spec.on_unknown_outcome,
            "output": spec.output,
            "anthropic": definition.to_anthropic(),
            "openai": definition.to_openai(),
        })
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.tool.spec;
        let agents = if self.agents.is_empty() { "no agent".into() } else { self.agents.join(", ") };
        let approval = if spec.requires_approval.is_gated() { ", requires approval" } else { "" };
        let about = spec.description.lines().next().unwrap_or_default();
        write!(f, "tool {} ({}{approval}; {agents}): {about}", spec.name, self.effect())
    }
}

async fn look_at_topics(program: &Program, found: &mut Findings) {
    match topics::check_for_worker(&program.loaded.config).await {
        Ok(report) => {
            found.topics.extend(report.problems);
            found.permissions.extend(report.denied.iter().map(ToString::to_string));
            for unknown in report.unknown {
                tracing::warn!("{unknown}");
            }
        }
        Err(error @ kafka::error::Error::Config(_)) => found.configuration.push(error.to_string()),
        Err(error) => found.brokers.push(error.to_string()),
    }
}

/// A worker runs without it all the same, and counts what that costs.
async fn look_at_cache(program: &Program, found: &mut Findings) {
    if let Some(redis) = &program.redis
        && let Err(error) = redis.ping().await
    {
        found.cache.push(format!("Redis (cache.redis_url) cannot be used: {error}"));
    }
}

impl Findings {
    /// Configuration before refusals before the brokers: what has to be mended first.
    fn exit(&self) -> Exit {
        if ![&self.configuration, &self.topics, &self.permissions].into_iter().all(Vec::is_empty) {
            Exit::Usage
        } else if !self.refusals.is_empty() {
            Exit::Refused
        } else if !self.brokers.is_empty() || !self.cache.is_empty() {
            Exit::Failed
        } else {
            Exit::Done
        }
    }
}
