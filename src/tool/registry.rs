//! The tools of a process, in the order of their registration, and the patterns that pick among them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{Spec, Tool};
use crate::turn::{Definition, Failure, code};

/// A tool that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Specification P, "Options": names are `[a-zA-Z0-9_-]+`.
    #[error("the tool name {0:?} is not allowed: a name is one or more of A-Z a-z 0-9 _ -")]
    Name(String),
    /// Two tools have one name.
    #[error("two tools are called {0:?}; a name must be unique")]
    Duplicate(String),
    /// The schema of the arguments cannot be used.
    #[error("the schema of tool {name:?} cannot be used: {why}")]
    Schema {
        /// The tool.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A registered tool: the tool, what it declared, and its compiled schema.
pub struct Registered {
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// What it declared when it was registered.
    pub spec: Spec,
    /// What a model is told about it.
    pub definition: Arc<Definition>,
    validator: jsonschema::Validator,
}

impl Registered {
    /// Checks a call's arguments against the schema.
    ///
    /// # Errors
    /// `invalid_arguments`, naming each place and what is wrong there, at most five of them.
    pub fn check(&self, arguments: &Value) -> Result<(), Failure> {
        const SHOWN: usize = 5;
        let mut problems: Vec<String> = (self.validator.iter_errors(arguments))
            .take(SHOWN + 1)
            .map(|e| match e.instance_path().as_str() {
                "" => e.to_string(),
                path => format!("{path}: {e}"),
            })
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        if problems.len() > SHOWN {
            problems.truncate(SHOWN);
            problems.push("and more".into());
        }
        let message = format!("invalid arguments for {}: {}", self.spec.name, problems.join("; "));
        Err(Failure::new(code::INVALID_ARGUMENTS, message))
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.spec).finish()
    }
}

/// The tools of a process, in the order of their registration.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    tools: Vec<Arc<Registered>>,
    by_name: HashMap<String, usize>,
}

impl Registry {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool at the end.
    ///
    /// # Errors
    /// Its name breaks the rule or is taken, or its schema cannot be used.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let spec = tool.spec();
        if !is_name(&spec.name) {
            return Err(RegistryError::Name(spec.name));
        }
        if self.by_name.contains_key(&spec.name) {
            return Err(RegistryError::Duplicate(spec.name));
        }
        let validator = jsonschema::validator_for(&spec.parameters)
            .map_err(|e| RegistryError::Schema { name: spec.name.clone(), why: e.to_string() })?;
        let definition = Arc::new(Definition::new(&spec.name, &spec.description, spec.parameters.clone()));
        self.by_name.insert(spec.name.clone(), self.tools.len());
        self.tools.push(Arc::new(Registered { tool, spec, definition, validator }));
        Ok(())
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Registered>> {
        self.by_name.get(name).and_then(|index| self.tools.get(*index))
    }

    /// All tools, in the order of their registration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.tools.iter()
    }

    /// The tools that any of the patterns picks, in the order of their registration.
    pub fn pick(&self, patterns: &[Pattern]) -> Vec<Arc<Registered>> {
        (self.tools.iter())
            .filter(|tool| patterns.iter().any(|p| p.matches(&tool.spec.name)))
            .cloned()
            .collect()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// The name of a tool, where `*` stands for any characters: `github__*`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it picks this name.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            match rest.find(part) {
                Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
                None => return false,
            }
        }
        true
    }

    /// Whether it names one tool exactly.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{Output, Spec, ToolContext, ToolError};
    use async_trait::async_trait;
    use serde_json::json;

    struct Named(&'static str, Value);

    #[async_trait]
    impl Tool for Named {
        fn spec(&self) -> Spec {
            Spec::new(self.0, "A tool.", self.1.clone())
        }

        async fn call(&self, _: &ToolContext, _: Value) -> Result<Output, ToolError> {
            Output::of(&())
        }
    }

    #[test]
    fn names_that_break_the_rule_or_are_taken_and_schemas_that_are_none_are_refused() {
        let mut registry = Registry::new();
        let mut register = |name, schema| registry.register(Arc::new(Named(name, schema)));
        for name in ["", "a b", "a.b", "größe", "a/b"] {
            let refused = register(name, json!({"type": "object"}));
            assert!(matches!(refused, Err(RegistryError::Name(_))), "{name:?}: {refused:?}");
        }
        register("a-Z_9", json!({"type": "object"})).unwrap();
        let twice = register("a-Z_9", json!({"type": "object"}));
        assert!(matches!(twice, Err(RegistryError::Duplicate(_))), "{twice:?}");
        let no_schema = register("b", json!({"type": 7}));
        assert!(matches!(no_schema, Err(RegistryError::Schema { .. })), "{no_schema:?}");
        let names: Vec<_> = registry.iter().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!(names, ["a-Z_9"]);
    }

    #[test]
    fn patterns() {
        let yes = [
            ("echo", "echo"),
            ("*", ""),
            ("*", "x"),
            ("a*", "a"),
            ("a*c", "abc"),
            ("*b*", "abc"),
            ("github__*", "github__issue"),
            ("a*b*c", "a-b-b-c"),
            ("**", "q"),
        ];
        let no =
            [("echo", "echoes"), ("echo", "xecho"), ("a*c", "ab"), ("a*a", "a"), ("*b", "abc"), ("", "x")];
        for (pattern, name) in yes {
            assert!(Pattern::new(pattern).matches(name), "{pattern} picks {name}");
        }
        for (pattern, name) in no {
            assert!(!Pattern::new(pattern).matches(name), "{pattern} does not pick {name}");
        }
    }
}
