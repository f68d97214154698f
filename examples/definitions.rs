//! Registers function definitions from elsewhere and checks calls of them; `scripts/function-calling` feeds it.
//!
//! ```text
//! echo '{"name": "add", "description": "Add.", "parameters": {"type": "object"}, "calls": [{"a": 1}]}' |
//!     cargo run --example definitions
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, stdin};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use turnmill::tool::{Registry, RegistryError, Spec};
use turnmill::{ToolContext, ToolError};

#[derive(Deserialize)]
struct Line {
    name: String,
    description: String,
    parameters: Value,
    calls: Vec<Value>,
}

/// How often something went well, and the reasons for the other times, with an example each.
#[derive(Default)]
struct Tally {
    good: usize,
    bad: usize,
    reasons: BTreeMap<String, (usize, String)>,
}

impl Tally {
    fn count(&mut self, outcome: Result<(), (String, String)>) {
        let Err((reason, example)) = outcome else {
            self.good += 1;
            return;
        };
        self.bad += 1;
        self.reasons.entry(reason).or_insert((0, example)).0 += 1;
    }

    fn print(&self, title: &str, good: &str, bad: &str) {
        println!("{title}: {} {good}, {} {bad}", self.good, self.bad);
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        for (reason, (count, example)) in reasons {
            println!("  {count:>6}  {reason}");
            println!("          such as {}", example.chars().take(220).collect::<String>());
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut definitions, mut calls) = (Tally::default(), Tally::default());
    for line in stdin().lock().lines() {
        let Line { name, description, parameters, calls: examples } = serde_json::from_str(&line?)?;
        let tool = Spec::new(&name, &description, parameters)
            .tool(async |_: ToolContext, arguments: Value| Ok::<_, ToolError>(arguments));
        let mut registry = Registry::new();
        let refused = registry.register(Arc::new(tool)).map_err(|error| (reason(&error), error.to_string()));
        definitions.count(refused);
        let Some(tool) = registry.get(&name) else { continue };
        for example in examples {
            calls.count(tool.check(&example).map_err(|failure| {
                let problem = failure.message.split_once(": ").map_or("", |(_, problem)| problem);
                (general(problem), failure.message.clone())
            }));
        }
    }
    definitions.print("definitions", "accepted", "refused");
    calls.print("calls", "hold", "do not");
    Ok(())
}

fn reason(error: &RegistryError) -> String {
    match error {
        RegistryError::Name(_) => "the name is not allowed".into(),
        RegistryError::Schema { why, .. } => general(why),
        other => other.to_string(),
    }
}

/// The first problem without the value that has it, so that the same problem of another value is the same text.
fn general(problem: &str) -> String {
    let first = problem.split("; ").next().unwrap_or_default();
    for (phrase, whole) in [
        (" is not of type", true),
        (" is not one of ", false),
        (" is a required property", false),
        (" is not valid under any", true),
        ("Additional properties are not allowed", false),
    ] {
        if let Some((_, rest)) = first.rsplit_once(phrase) {
            return format!(".. {}{}", phrase.trim(), if whole { rest } else { "" });
        }
    }
    first.into()
}
