//! The tools of a process, in the order of their registration, and the patterns that pick among them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{Decimal, Output, Spec, Tool};
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
    /// The schema of the arguments or of the results cannot be used.
    #[error("the schema of the {what} of tool {name:?} cannot be used: {why}")]
    Schema {
        /// The tool.
        name: String,
        /// `arguments` or `results`.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// It would give budget back.
    #[error("tool {0:?} has a cost_per_call of less than zero")]
    Cost(String),
    /// Specification P, "Options": there is nothing that could time out.
    #[error(
        "tool {0:?} has an approval_timeout and requires no approval; add the one or leave out the other"
    )]
    ApprovalTimeout(String),
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The program has it.
    Program,
    /// The configuration declares it.
    HttpTools,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "registered by this program",
            Self::HttpTools => "declared in http_tools of the configuration",
        })
    }
}

/// A registered tool: the tool, what it declared, and its compiled schema.
pub struct Registered {
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// What it declared when it was registered.
    pub spec: Spec,
    /// What a model is told about it.
    pub definition: Arc<Definition>,
    /// Where it comes from.
    pub source: Source,
    arguments: jsonschema::Validator,
    results: Option<jsonschema::Validator>,
}

impl Registered {
    /// Checks a call's arguments against the schema.
    ///
    /// # Errors
    /// `invalid_arguments`, naming each place and what is wrong there, at most five of them.
    pub fn check(&self, arguments: &Value) -> Result<(), Failure> {
        problems(&self.arguments, arguments).map_err(|problems| {
            let message = format!("invalid arguments for {}: {problems}", self.spec.name);
            Failure::new(code::INVALID_ARGUMENTS, message)
        })
    }

    /// Checks a result against the schema of results, where the tool has one; `null` is a result like any other
    /// (specification A, "Declaring a tool").
    ///
    /// # Errors
    /// `invalid_result`, like [`Self::check`].
    pub fn check_result(&self, output: &Output) -> Result<(), Failure> {
        let Some(validator) = &self.results else {
            return Ok(());
        };
        let held = match serde_json::from_str(output.as_json()) {
            Ok(value) => problems(validator, &value),
            // A number beyond every range.
            Err(error) => Err(error.to_string()),
        };
        held.map_err(|problems| {
            let message =
                format!("the result of tool {} does not hold against its schema: {problems}", self.spec.name);
            Failure::new(code::INVALID_RESULT, message)
        })
    }
}

/// A problem quotes the value that has it, which may be large.
fn shown(problem: &str) -> String {
    const SHOWN: usize = 500;
    match problem.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", problem.get(..end).unwrap_or_default()),
        None => problem.to_owned(),
    }
}

/// The places where a value does not hold, and what is wrong there.
fn problems(validator: &jsonschema::Validator, value: &Value) -> Result<(), String> {
    const SHOWN: usize = 5;
    let mut problems: Vec<String> = (validator.iter_errors(value))
        .take(SHOWN + 1)
        .map(|e| match (e.instance_path().as_str(), shown(&e.to_string())) {
            ("", text) => text,
            (path, text) => format!("{path}: {text}"),
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    if problems.len() > SHOWN {
        problems.truncate(SHOWN);
        problems.push("and more".into());
    }
    Err(problems.join("; "))
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.spec).finish()
    }
}

/// The tools of a process, in the order of their registration. A clone is a snapshot: neither changes with the other.
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
        self.register_from(Source::Program, tool)
    }

    /// Adds a tool that comes from somewhere else.
    ///
    /// # Errors
    /// As with [`Self::register`].
    pub(crate) fn register_from(&mut self, source: Source, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let spec = tool.spec();
        if let Some(fault) = self.faults(&spec).into_iter().next() {
            return Err(fault);
        }
        let arguments = compile(&spec, "arguments", &spec.parameters)?;
        let results = spec.output.as_ref().map(|schema| compile(&spec, "results", schema)).transpose()?;
        let definition = Arc::new(Definition::new(&spec.name, &spec.description, spec.parameters.clone()));
        self.by_name.insert(spec.name.clone(), self.tools.len());
        self.tools.push(Arc::new(Registered { tool, spec, definition, source, arguments, results }));
        Ok(())
    }

    /// Everything that keeps a tool from being registered.
    pub(crate) fn faults(&self, spec: &Spec) -> Vec<RegistryError> {
        let mut faults = Vec::new();
        if !is_name(&spec.name) {
            faults.push(RegistryError::Name(spec.name.clone()));
        }
        if self.by_name.contains_key(&spec.name) {
            faults.push(RegistryError::Duplicate(spec.name.clone()));
        }
        if spec.approval_timeout.is_some() && !spec.requires_approval.is_gated() {
            faults.push(RegistryError::ApprovalTimeout(spec.name.clone()));
        }
        if spec.cost_per_call < Decimal::ZERO {
            faults.push(RegistryError::Cost(spec.name.clone()));
        }
        if spec.parameters.get("type").and_then(Value::as_str) == Some("object") {
            faults.extend(compile(spec, "arguments", &spec.parameters).err());
        } else {
            let why = "arguments are an object, so it says `\"type\": \"object\"`".into();
            faults.push(RegistryError::Schema { name: spec.name.clone(), what: "arguments", why });
        }
        faults.extend(spec.output.as_ref().and_then(|schema| compile(spec, "results", schema).err()));
        faults
    }

    /// Takes every tool out, for tests. What was cloned from the registry before, and a worker that was built from
    /// it, keeps its tools (specification A, "Registry helpers").
    pub fn reset(&mut self) {
        *self = Self::default();
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

fn compile(spec: &Spec, what: &'static str, schema: &Value) -> Result<jsonschema::Validator, RegistryError> {
    jsonschema::validator_for(schema).map_err(|error| RegistryError::Schema {
        name: spec.name.clone(),
        what,
        why: error.to_string(),
    })
}

pub(crate) fn is_name(name: &str) -> bool {
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
        for schema in [
            json!({"type": 7}),
            json!({"type": "dict"}),
            json!({}),
            json!(true),
            json!({"type": "object", "properties": {"a": {"type": "float"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}),
        ] {
            let refused = register("b", schema.clone());
            assert!(matches!(refused, Err(RegistryError::Schema { .. })), "{schema}: {refused:?}");
        }
        let names: Vec<_> = registry.iter().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!(names, ["a-Z_9"]);
    }

    #[test]
    fn a_snapshot_and_the_registry_do_not_change_with_each_other() {
        let names = |registry: &Registry| registry.iter().map(|t| t.spec.name.clone()).collect::<Vec<_>>();
        let tool = |name| Arc::new(Named(name, json!({"type": "object"})));
        let mut registry = Registry::new();
        registry.register(tool("b")).unwrap();
        registry.register(tool("a")).unwrap();
        let mut snapshot = registry.clone();
        registry.register(tool("c")).unwrap();
        snapshot.register(tool("d")).unwrap();
        assert_eq!(names(&registry), ["b", "a", "c"]);
        assert_eq!(names(&snapshot), ["b", "a", "d"]);
        registry.reset();
        assert!(names(&registry).is_empty() && registry.get("a").is_none());
        assert!(snapshot.get("a").is_some());
        registry.register(tool("a")).unwrap();
        assert_eq!(names(&registry), ["a"]);
    }

    #[test]
    fn results_are_held_against_their_schema_null_too() {
        let text = |schema: Value| {
            let tool = Spec::new("t", "A tool.", json!({"type": "object"}))
                .output(schema)
                .tool(async |_: ToolContext, _: Value| -> Result<(), ToolError> { Ok(()) });
            let mut registry = Registry::new();
            registry.register(Arc::new(tool)).map(|()| Arc::clone(registry.get("t").unwrap()))
        };
        let tool = text(json!({"type": "object", "required": ["id"]})).unwrap();
        assert!(tool.check_result(&Output::of(&json!({"id": 1})).unwrap()).is_ok());
        let null = tool.check_result(&Output::of(&()).unwrap()).unwrap_err();
        assert_eq!(null.code, code::INVALID_RESULT);
        let expected =
            "the result of tool t does not hold against its schema: null is not of type \"object\"";
        assert_eq!(null.message, expected);
        assert!(matches!(text(json!({"type": 7})), Err(RegistryError::Schema { what: "results", .. })));
        // A problem quotes what has it, and logs and events have no room for all of that.
        let numbers = text(json!({"type": "array", "items": {"type": "integer"}})).unwrap();
        let long = Output::of(&["x".repeat(1_000_000), "y".repeat(1_000_000)]).unwrap();
        assert!(numbers.check_result(&long).unwrap_err().message.len() < 2_000);
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
