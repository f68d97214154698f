//! The program's settings, tools, models and agents, put together for a command.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Error, Exit};
use crate::agent::CodedAgent;
use crate::app::App;
use crate::config::{self, Config, Loaded, Problem, Provider};
use crate::tool::{Cache, Deps, Redis, RedisSettings, Registry, Source, Store, endpoint, samples};
use crate::worker::bind::{Bound, BoundAgent, Codes, Models, Providers, bind};

/// Everything that a worker is made of, and what is wrong with it.
pub(crate) struct Program {
    pub loaded: Loaded,
    /// The settings as they were written, without what the code brings.
    pub written: Config,
    pub registry: Registry,
    pub deps: Deps,
    pub cache: Cache,
    /// The store of the cache, where it is Redis.
    pub redis: Option<Arc<Redis>>,
    pub models: Models,
    /// The providers that agents name, and those of the configuration.
    pub providers: Providers,
    /// The agents in code.
    pub codes: Codes,
    /// What is wrong with the tools and agents that the code brings.
    problems: Vec<Problem>,
}

impl Program {
    /// Puts a program and its settings together. The code's tools come before the configuration's, those before the
    /// samples; the code's agents before the configuration's.
    pub(crate) fn new(app: App, mut loaded: Loaded) -> Self {
        let written = loaded.config.clone();
        let mut registry = Registry::new();
        let mut problems = std::mem::take(&mut loaded.unset);
        for tool in app.tools {
            if let Err(error) = registry.register(tool) {
                problems.push(Problem::new(error.to_string()));
            }
        }
        let taken = register_configured(&loaded.config, &mut registry);
        problems.extend(taken.into_iter().map(|problem| loaded.locate(problem)));
        let mut codes = Codes::new();
        for CodedAgent { spec: agent, code } in app.agents.into_iter().rev() {
            codes.extend(code.map(|code| (agent.name.clone(), code)));
            if let Some(twin) = loaded.config.agents.iter().position(|other| other.name == agent.name) {
                problems.push(loaded.locate(Problem::field(
                    format!("agents[{twin}].name"),
                    format!("the program itself has an agent {:?}; a name must be unique", agent.name),
                )));
            }
            loaded.config.agents.insert(0, agent);
        }
        let (cache, redis) = match cache(&loaded.config.cache) {
            Ok(made) => made,
            Err(problem) => {
                problems.push(loaded.locate(problem));
                (Cache::default(), None)
            }
        };
        let (deps, models) = (app.deps, app.models);
        let (providers, faults) = providers(&loaded);
        problems.extend(faults);
        Self { loaded, written, registry, deps, cache, redis, models, providers, codes, problems }
    }

    /// Everything that is wrong, and everything that is refused.
    pub(crate) fn look(&self) -> Bound {
        let mut bound = bind(&self.loaded.config, &self.registry, &self.models, &self.providers, &self.codes);
        let found = std::mem::take(&mut bound.problems);
        bound.problems = self.problems.clone();
        bound.problems.extend(found.into_iter().map(|problem| self.loaded.locate(problem)));
        bound
    }

    /// The agents, ready to run.
    ///
    /// # Errors
    /// Exit code 4 if anything is refused, else 2 if anything is wrong; the text has all of it.
    pub(crate) fn bind(&self) -> Result<HashMap<String, Arc<BoundAgent>>, Error> {
        let Bound { agents, problems, refusals } = self.look();
        let lines: Vec<String> = (problems.iter().map(ToString::to_string))
            .chain(refusals.iter().map(|refusal| format!("refused: {refusal}")))
            .collect();
        match (problems.is_empty(), refusals.is_empty()) {
            (true, true) => Ok(agents),
            (false, _) => Err(Error::new(Exit::Usage, lines.join("\n"))),
            (true, false) => Err(Error::new(Exit::Refused, lines.join("\n"))),
        }
    }
}

/// The providers of the configuration, and those that agents name and nobody has to list; and what is wrong with them.
fn providers(loaded: &Loaded) -> (Providers, Vec<Problem>) {
    let Config { providers: listed, agents, .. } = &loaded.config;
    let named = agents.iter().flat_map(|agent| agent.model.iter()).filter_map(config::split);
    let unlisted: BTreeSet<&str> = named
        .map(|(provider, _)| provider)
        .filter(|name| !listed.iter().any(|provider| provider.name == *name))
        .collect();
    let environment: HashMap<String, String> = config::environment().collect();
    let (mut providers, mut problems) = (Providers::new(), Vec::new());
    for (index, provider) in listed.iter().enumerate() {
        let field = |name: &str| format!("providers[{index}].{name}");
        let endpoint = provider.endpoint().map(Arc::new);
        let endpoint = endpoint.map_err(|(name, why)| loaded.locate(Problem::field(field(name), why)));
        problems.extend(endpoint.as_ref().err().cloned());
        providers.insert(provider.name.clone(), endpoint);
    }
    for name in unlisted {
        let Some(provider) = Provider::unlisted(name, &environment) else { continue };
        let endpoint = provider.and_then(|provider| provider.endpoint().map_err(|(_, why)| why));
        providers.insert(name.into(), endpoint.map(Arc::new).map_err(Problem::new));
    }
    (providers, problems)
}

/// The cache as it is configured, and its store where that is Redis; nothing is connected yet.
fn cache(settings: &config::Cache) -> Result<(Cache, Option<Arc<Redis>>), Problem> {
    let Some(url) = settings.redis_url.clone() else {
        return Ok((Cache::memory(settings.max_memory.as_u64()), None));
    };
    let settings = RedisSettings { url, prefix: settings.key_prefix.clone(), timeout: settings.timeout };
    let redis =
        Redis::new(&settings).map_err(|error| Problem::field("cache.redis_url", error.to_string()))?;
    let redis = Arc::new(redis);
    Ok((Cache::new(Arc::clone(&redis) as Arc<dyn Store>), Some(redis)))
}

/// Registers the tools of the configuration, then the samples. What else is wrong with them was reported when they
/// were loaded: what is left is a name that the program has too.
fn register_configured(config: &Config, registry: &mut Registry) -> Vec<Problem> {
    let taken = |index: usize, name: &str, whose: &str| {
        let message = format!("{whose} has a tool {name:?}; a name must be unique");
        Problem::field(format!("http_tools[{index}].name"), message)
    };
    let mut problems = Vec::new();
    if !config.http_tools.is_empty() {
        problems.extend(endpoint::unavailable().map(|why| Problem::field("http_tools", why)));
    }
    for (index, tool) in config.http_tools.iter().enumerate() {
        let Ok(endpoint) = tool.endpoint() else { continue };
        let twin = registry.get(&tool.name).map(|twin| twin.source);
        let refused = registry.register_from(Source::HttpTools, Arc::new(endpoint)).is_err();
        if refused && twin == Some(Source::Program) {
            problems.push(taken(index, &tool.name, "the program itself"));
        }
    }
    let samples = if config.tools.samples { samples() } else { Vec::new() };
    for sample in samples {
        let name = sample.spec().name;
        match config.http_tools.iter().position(|tool| tool.name == name) {
            Some(index) => problems.push(taken(index, &name, "tools.samples")),
            None => {
                problems.extend(registry.register(sample).err().map(|error| Problem::new(error.to_string())))
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{Spec, ToolContext, ToolError};
    use serde_json::{Value, json};

    /// A program with a tool `mine` and a configuration with HTTP tools of these names.
    fn program(names: &[&str], samples: bool, more: &str) -> Program {
        let tool = |name: &&str| {
            format!(
                "[[http_tools]]\nname = \"{name}\"\ndescription = \"A tool.\"\nmethod = \"GET\"\nurl = \"https://h\"\n\
                 parameters.type = \"object\"\n{more}\n"
            )
        };
        let tools: String = names.iter().map(tool).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("turnmill.toml");
        let agent = "[[agents]]\nname = \"support\"\nmodel = \"scripted\"\ntools = [\"*\"]\n";
        std::fs::write(&file, format!("tools.samples = {samples}\n{tools}{agent}")).unwrap();
        let loaded = crate::config::load(Some(&file), std::iter::empty()).unwrap();
        let mine = Spec::new("mine", "A tool.", json!({"type": "object"}))
            .tool(|_: ToolContext, _: Value| async { Ok::<_, ToolError>(()) });
        Program::new(App::new().tool(mine), loaded)
    }

    fn problems(program: &Program) -> Vec<String> {
        let located = program.look().problems.into_iter().map(|problem| Problem { file: None, ..problem });
        located.map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn the_tools_of_the_configuration_come_between_those_of_the_code_and_the_samples() {
        let program = program(&["b", "a"], true, "");
        let names: Vec<_> = program.registry.iter().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!(names, ["mine", "b", "a", "echo", "add", "sleep", "flaky"]);
        assert!(problems(&program).is_empty());
    }

    #[test]
    fn a_name_that_the_program_has_too_is_a_problem_with_its_line() {
        let found = problems(&program(&["mine", "echo"], true, ""));
        assert_eq!(
            found,
            [
                "line 3: http_tools[0].name: the program itself has a tool \"mine\"; a name must be unique",
                "line 10: http_tools[1].name: tools.samples has a tool \"echo\"; a name must be unique",
            ]
        );
        assert!(problems(&program(&["echo"], false, "")).is_empty());
    }

    #[test]
    fn an_agent_names_models_that_can_be_asked() {
        let look = |models: &str, more: &str| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("turnmill.toml");
            let agent = format!("[[agents]]\nname = \"a\"\nmodel = {models}\n{more}\n");
            let local = "[[providers]]\nname = \"local\"\napi = \"openai\"\nbase_url = \"http://h/v1\"\n\
                         [[providers]]\nname = \"claude\"\napi = \"anthropic\"\nbase_url = \"http://h/v1\"\n";
            std::fs::write(&file, agent + local).unwrap();
            let loaded = crate::config::load(Some(&file), std::iter::empty()).unwrap();
            problems(&Program::new(App::new(), loaded)).join("\n")
        };
        assert_eq!(look("[\"local::a\", \"claude::b\"]", "temperature = 1"), "");
        assert_eq!(look("\"claude::b\"", "model_options.top_k = 1"), "");
        for (models, more, why) in [
            (
                "\"nowhere::m\"",
                "",
                "no provider is called \"nowhere\"; there are anthropic, claude, local, openai",
            ),
            (
                "\"gpt\"",
                "",
                "no model is called \"gpt\"; there are scripted, and PROVIDER::MODEL of the providers",
            ),
            ("[\"local::a\", \"scripted\"]", "", "\"scripted\" is no model of a provider"),
            ("[\"local::a\", \"claude::b\"]", "model_options.top_k = 1", "providers with different APIs"),
        ] {
            let found = look(models, more);
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_a_problem_and_a_gated_tool_is_refused() {
        let more = "headers.Authorization = \"${TOKEN}\"\nrequires_approval = true";
        let program = program(&["a"], false, more);
        assert_eq!(
            problems(&program),
            ["line 8: http_tools[0].headers.Authorization: the environment variable TOKEN is not set"]
        );
        let refused = program.look().refusals.pop().unwrap();
        assert_eq!(refused.source, "declared in http_tools of the configuration");
        assert_eq!(program.bind().unwrap_err().exit, Exit::Usage);
    }
}
