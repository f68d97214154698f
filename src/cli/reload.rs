//! SIGHUP: the configuration is read again, and what may change while the worker runs is taken over.

use std::path::PathBuf;

use tokio::signal::unix::Signal;

use crate::config::{self, Config, Problem};
use crate::tool::Registry;
use crate::worker::bind::check_switches;
use crate::worker::switches::Switches;

/// What a running worker compares a new configuration with.
pub(super) struct Reload {
    /// The file that was named, if one was.
    pub file: Option<PathBuf>,
    /// As it was written when the worker started.
    pub running: Config,
    /// With the agents of the program itself.
    pub agents: Vec<String>,
    pub registry: Registry,
    pub switches: Switches,
}

impl Reload {
    /// Reads the configuration again at each SIGHUP.
    pub(super) async fn run(self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            if let Err(problems) = self.again() {
                tracing::error!(
                    problems,
                    "SIGHUP: the configuration was not taken over; the worker goes on as before"
                );
            }
        }
    }

    /// All or nothing.
    ///
    /// # Errors
    /// What is wrong with the new configuration, or cannot change while the worker runs.
    fn again(&self) -> Result<(), String> {
        let loaded = config::load(self.file.as_deref(), config::environment()).map_err(|e| e.to_string())?;
        let fixed = fixed(&self.running, &loaded.config);
        if !fixed.is_empty() {
            return Err(format!(
                "{} cannot change while the worker runs: restart it, or put the old value back",
                fixed.join(", ")
            ));
        }
        let problems: Vec<Problem> = check_switches(&loaded.config.switches, &self.registry, &self.agents);
        if !problems.is_empty() {
            let lines: Vec<String> =
                problems.into_iter().map(|problem| loaded.locate(problem).to_string()).collect();
            return Err(lines.join("; "));
        }
        let config::Switches { agents, tools } = &loaded.config.switches;
        tracing::info!(?agents, ?tools, "SIGHUP: turned off from now on");
        self.switches.set(loaded.config.switches);
        Ok(())
    }
}

/// What differs and may not.
fn fixed(running: &Config, new: &Config) -> Vec<&'static str> {
    let Config {
        kafka,
        topics,
        worker,
        admin,
        cache,
        tools,
        switches: _,
        agents,
        providers,
        prices,
        http_tools,
        mcp_servers,
    } = running;
    let differs = [
        (*kafka != new.kafka, "[kafka]"),
        (*topics != new.topics, "[topics]"),
        (*worker != new.worker, "[worker]"),
        (*admin != new.admin, "[admin]"),
        (*cache != new.cache, "[cache]"),
        (*tools != new.tools, "[tools]"),
        (*agents != new.agents, "[[agents]]"),
        (*providers != new.providers, "[[providers]]"),
        (*prices != new.prices, "[[prices]]"),
        (*http_tools != new.http_tools, "[[http_tools]]"),
        (*mcp_servers != new.mcp_servers, "[[mcp_servers]]"),
    ];
    differs.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgentSpec;

    #[test]
    fn only_switches_may_differ() {
        let running = Config::default();
        let mut new = Config::default();
        new.switches.tools.push("refund".into());
        assert!(fixed(&running, &new).is_empty());
        new.agents.push(AgentSpec::new("a", "scripted"));
        new.worker.max_in_flight = std::num::NonZeroUsize::MIN;
        assert_eq!(fixed(&running, &new), ["[worker]", "[[agents]]"]);
    }
}
