//! Agents, bound to the tools and models of this process: what is missing, and what is refused.
//!
//! A worker cannot wait for a person, so it refuses approval-gated tools here, before it joins the group
//! or reads anything.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::steps::definition;
use crate::agent;
use crate::config::{AgentSpec, Config, McpServer, Problem, Switches, split};
use crate::model::{Candidate, Endpoint, Model, Remote, Script, Scripted};
use crate::tool::{Pattern, Registered, Registry, is_tool_name};
use crate::turn::{Definition, Failure, Limits, OnToolError, code};

/// A tool that needs a person's approval, offered where nobody can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The agent that is offered the tool; none for a server's, which any agent may be offered.
    pub agent: Option<String>,
    /// The tool.
    pub tool: String,
    /// Where the tool comes from.
    pub source: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.agent {
            Some(agent) => {
                write!(f, "agent {agent:?} is offered the tool {:?} ({})", self.tool, self.source)?
            }
            None => write!(f, "the tool {:?} ({})", self.tool, self.source)?,
        }
        f.write_str(
            " requires approval, and a worker cannot wait for a person: \
             take the tool out of the agent's list, or give the agent one that needs no approval",
        )
    }
}

/// An agent that can run.
pub(crate) struct BoundAgent {
    /// Its name.
    pub name: String,
    /// Its instructions.
    pub system: Option<String>,
    /// What it does: the loop of model and tools, or code.
    pub code: Arc<dyn agent::Agent>,
    /// What another agent is told about it.
    pub definition: Arc<Definition>,
    /// The agents that it is offered.
    pub sub_agents: Vec<String>,
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Whether the text of its replies is told while they are made.
    pub stream_text: bool,
    /// The tools that it is offered.
    pub tools: Vec<Arc<Registered>>,
    /// How much a turn may do.
    pub limits: Limits,
    /// What becomes of a turn when a tool fails.
    pub on_tool_error: OnToolError,
    /// How long a turn may run, from its first start.
    pub max_run_time: Option<Duration>,
    /// How long a turn may take, from the timestamp of its record.
    pub max_duration: Duration,
    /// What a turn may name beyond them.
    pub turn_tools: Vec<Pattern>,
}

impl fmt::Debug for BoundAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundAgent").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All agents that can run, and why others cannot.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// The agents by name.
    pub agents: HashMap<String, Arc<BoundAgent>>,
    /// What the configuration gets wrong.
    pub problems: Vec<Problem>,
    /// What a worker refuses.
    pub refusals: Vec<Refusal>,
}

/// The models that a program registered, by name.
pub(crate) type Models = HashMap<String, Arc<dyn Model>>;

/// The providers of models, by name; of one that cannot be asked, why.
pub(crate) type Providers = BTreeMap<String, Result<Arc<Endpoint>, Problem>>;

/// The code of agents that are more than a model with tools, by name.
pub(crate) type Codes = HashMap<String, Arc<dyn agent::Agent>>;

/// Binds every agent; finds every problem and every refusal.
pub(crate) fn bind(
    config: &Config,
    registry: &Registry,
    models: &Models,
    providers: &Providers,
    codes: &Codes,
) -> Bound {
    let mut bound = Bound::default();
    for (index, server) in config.mcp_servers.iter().enumerate() {
        bind_server(index, server, &mut bound);
    }
    if config.agents.is_empty() {
        bound.problems.push(Problem::field("agents", "there is no agent, so no turn could run: add one"));
    }
    let names: Vec<String> = config.agents.iter().map(|agent| agent.name.clone()).collect();
    bound.problems.extend(check_switches(&config.switches, registry, &names));
    for (index, agent) in config.agents.iter().enumerate() {
        let field = |name: &str| format!("agents[{index}].{name}");
        for (position, pattern) in agent.tools.iter().enumerate() {
            let served = |s: &McpServer| pattern.as_str().starts_with(&format!("{}__", s.name));
            let known = registry.iter().any(|tool| pattern.matches(&tool.spec.name));
            // One with a problem is not registered, which is no second problem.
            let declared = config.http_tools.iter().any(|tool| pattern.matches(&tool.name));
            if !known && !declared && !config.mcp_servers.iter().any(served) {
                bound.problems.push(Problem::field(
                    format!("agents[{index}].tools[{position}]"),
                    format!("agent {:?}: no tool is called {pattern}; {}", agent.name, known_tools(registry)),
                ));
            }
        }
        // The agents of the code have been through no file.
        if agent.max_cost.is_some_and(|most| most.is_sign_negative()) {
            bound.problems.push(Problem::field(field("max_cost"), "is less than zero"));
        }
        let tools = registry.pick(&agent.tools);
        let gated = tools.iter().filter(|tool| tool.spec.requires_approval.is_gated());
        bound.refusals.extend(gated.map(|tool| Refusal {
            agent: Some(agent.name.clone()),
            tool: tool.spec.name.clone(),
            source: tool.source.to_string(),
        }));
        bound.problems.extend(check_sub_agents(index, agent, &tools, &names));
        match model(agent, config, models, providers) {
            Ok(model) => {
                let code = codes.get(&agent.name).cloned();
                let agent = Arc::new(BoundAgent {
                    name: agent.name.clone(),
                    code: code.unwrap_or_else(|| Arc::new(agent::ModelLoop)),
                    definition: Arc::new(definition(&agent.name, agent.description.as_deref())),
                    sub_agents: agent.sub_agents.clone(),
                    system: agent.system.clone(),
                    model,
                    stream_text: agent.stream_text,
                    tools,
                    limits: agent.limits(),
                    max_run_time: agent.max_run_time,
                    on_tool_error: agent.on_tool_error,
                    max_duration: agent.max_duration,
                    turn_tools: agent.turn_tools.clone(),
                });
                bound.agents.insert(agent.name.clone(), agent);
            }
            Err((name, message)) => {
                let message = format!("agent {:?}: {message}", agent.name);
                bound.problems.push(Problem::field(field(name), message));
            }
        }
    }
    bound
}

/// What is turned off and is not there: a name that is misspelt would turn nothing off.
pub(crate) fn check_switches(switches: &Switches, registry: &Registry, agents: &[String]) -> Vec<Problem> {
    let unknown_agent = |name: &&String| !agents.contains(name);
    let agents_off = switches.agents.keys().filter(unknown_agent).map(|name| {
        let message = format!("no agent is called {name:?}; there are {}", agents.join(", "));
        Problem::field("switches.agents", message)
    });
    let unknown_tool = |(_, name): &(usize, &String)| registry.get(name).is_none();
    let tools_off = switches.tools.iter().enumerate().filter(unknown_tool).map(|(index, name)| {
        let message = format!("no tool is called {name:?}; {}", known_tools(registry));
        Problem::field(format!("switches.tools[{index}]"), message)
    });
    agents_off.chain(tools_off).collect()
}

/// What is wrong with the agents that one is offered like tools.
fn check_sub_agents(
    index: usize,
    agent: &AgentSpec,
    tools: &[Arc<Registered>],
    names: &[String],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (position, name) in agent.sub_agents.iter().enumerate() {
        let problem = if !names.contains(name) {
            format!("no agent is called {name:?}; there are {}", names.join(", "))
        } else if !is_tool_name(name) {
            format!(
                "the agent {name:?} cannot be offered like a tool: its name is not one or more of A-Z a-z 0-9 _ -"
            )
        } else if tools.iter().any(|tool| tool.spec.name == *name) {
            format!("the agent is offered a tool {name:?} too; the two need different names")
        } else if agent.sub_agents.iter().take(position).any(|other| other == name) {
            format!("the agent {name:?} is there twice")
        } else {
            continue;
        };
        let message = format!("agent {:?}: {problem}", agent.name);
        problems.push(Problem::field(format!("agents[{index}].sub_agents[{position}]"), message));
    }
    problems
}

fn bind_server(index: usize, server: &McpServer, bound: &mut Bound) {
    if server.requires_approval.is_empty() {
        bound.problems.push(Problem::field(
            format!("mcp_servers[{index}]"),
            format!("MCP server {:?}: this version has no MCP client yet; remove the server", server.name),
        ));
    }
    bound.refusals.extend(server.requires_approval.iter().map(|tool| Refusal {
        agent: None,
        tool: format!("{}__{tool}", server.name),
        source: format!("MCP server {:?}, requires_approval", server.name),
    }));
}

fn known_tools(registry: &Registry) -> String {
    let names: Vec<_> = registry.iter().map(|tool| tool.spec.name.as_str()).collect();
    match names.is_empty() {
        true => "this program has no tools (`[tools] samples = true` adds some)".into(),
        false => format!("there are {}", names.join(", ")),
    }
}

/// An agent's model, or what is wrong with it and in which of its fields.
type FoundModel = Result<Arc<dyn Model>, (&'static str, String)>;

fn model(agent: &AgentSpec, config: &Config, models: &Models, providers: &Providers) -> FoundModel {
    let single = agent.model.single();
    if let Some(model) = single.and_then(|name| models.get(name)) {
        return Ok(Arc::clone(model));
    }
    if single == Some("scripted") {
        let script = agent.script.as_deref().map(Path::new).map(Script::read).transpose();
        let script = script.map_err(|failure| ("script", failure.message))?;
        return Ok(Arc::new(Scripted::new(script)));
    }
    let candidate = |name: &str| candidate(name, single.is_some(), config, models, providers);
    let candidates: Result<Vec<_>, _> = agent.model.iter().map(candidate).collect();
    let candidates = candidates.map_err(|why| ("model", why))?;
    let options = agent.options().map_err(|why| ("model_options", why))?;
    let one_shape =
        candidates.windows(2).all(|pair| matches!(pair, [one, other] if one.api() == other.api()));
    if !options.more.is_empty() && !one_shape {
        let why = "is set, and the models are of providers with different APIs, which know different fields";
        return Err(("model_options", why.into()));
    }
    Ok(Arc::new(Remote { candidates, options, max_time: agent.max_reply_time }))
}

fn candidate(
    name: &str,
    alone: bool,
    config: &Config,
    models: &Models,
    providers: &Providers,
) -> Result<Candidate, String> {
    let Some((provider, model)) = split(name) else {
        if !alone && (name == "scripted" || models.contains_key(name)) {
            return Err(format!("{name:?} is no model of a provider, and only these can be in a list"));
        }
        let mut known: Vec<_> = models.keys().map(String::as_str).chain(["scripted"]).collect();
        known.sort_unstable();
        return Err(format!(
            "no model is called {name:?}; there are {}, and PROVIDER::MODEL of the providers {}",
            known.join(", "),
            known_providers(providers)
        ));
    };
    let endpoint = match providers.get(provider) {
        Some(Ok(endpoint)) => Arc::clone(endpoint),
        Some(Err(problem)) => return Err(format!("the provider {provider:?} cannot be asked: {problem}")),
        None => {
            let known = known_providers(providers);
            return Err(format!("no provider is called {provider:?}; there are {known}; add [[providers]]"));
        }
    };
    let price = config.prices.iter().find(|price| price.model == name).map(Into::into);
    Ok(Candidate { endpoint, model: model.into(), price })
}

fn known_providers(providers: &Providers) -> String {
    let listed = providers.keys().map(String::as_str);
    let mut names: Vec<_> = listed.chain(["anthropic", "openai"]).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

impl BoundAgent {
    /// The tools that a turn names.
    ///
    /// # Errors
    /// `tool_registration_error`: a named tool is not registered, not allowed to the agent's turns, or
    /// requires approval. Nothing of the turn has run then.
    pub(super) fn offer(
        &self,
        registry: &Registry,
        named: &[String],
    ) -> Result<Vec<Arc<Registered>>, Failure> {
        let refuse = |name: &str, why: &str| {
            let name: String = name.chars().take(64).collect();
            Failure::new(
                code::TOOL_REGISTRATION_ERROR,
                format!("the turn names the tool {name:?}, {why} (agent {:?})", self.name),
            )
        };
        for name in named {
            let Some(tool) = registry.get(name) else {
                return Err(refuse(name, "which this worker does not have"));
            };
            let own = self.tools.iter().any(|own| own.spec.name == *name);
            if !own && !self.turn_tools.iter().any(|pattern| pattern.matches(name)) {
                return Err(refuse(name, "which its agent's turn_tools does not allow"));
            }
            if tool.spec.requires_approval.is_gated() {
                return Err(refuse(name, "which requires approval, and a worker cannot wait for a person"));
            }
        }
        let picked = registry.iter().filter(|tool| named.contains(&tool.spec.name));
        Ok(picked.cloned().collect())
    }
}
