//! The program's settings, tools, models and agents, put together for a command.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Error, Exit};
use crate::app::App;
use crate::config::{self, Config, Loaded, Problem};
use crate::tool::{Cache, Deps, Redis, RedisSettings, Registry, Store, samples};
use crate::worker::bind::{Bound, BoundAgent, Models, bind};

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
    /// What is wrong with the tools and agents that the code brings.
    problems: Vec<Problem>,
}

impl Program {
    /// Puts a program and its settings together. The code's tools come before the samples, the code's agents
    /// before the configuration's.
    pub(crate) fn new(app: App, mut loaded: Loaded) -> Self {
        let written = loaded.config.clone();
        let mut registry = Registry::new();
        let mut problems = Vec::new();
        let samples = if loaded.config.tools.samples { samples() } else { Vec::new() };
        for tool in app.tools.into_iter().chain(samples) {
            if let Err(error) = registry.register(tool) {
                problems.push(Problem::new(error.to_string()));
            }
        }
        for agent in app.agents.into_iter().rev() {
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
        Self { loaded, written, registry, deps: app.deps, cache, redis, models: app.models, problems }
    }

    /// Everything that is wrong, and everything that is refused.
    pub(crate) fn look(&self) -> Bound {
        let mut bound = bind(&self.loaded.config, &self.registry, &self.models);
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
