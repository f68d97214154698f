//! From what is configured to the tool, and everything that is wrong on the way.

use std::time::Duration;

use bytesize::ByteSize;
use serde_json::Value;

use super::{HttpTool, Method, Schema};
use crate::config::Problem;
use crate::config::field::Field;
use crate::tool::endpoint::{self, Endpoint, HeaderMap, Template, header};
use crate::tool::{Registry, RegistryError, Retry, Spec, Tool};

/// The largest limit for a response: as many as turns run at one time may be in memory.
const MAX_RESPONSE: ByteSize = ByteSize::mib(64);

/// Everything that is wrong with the tools but for names that are empty or taken.
pub(in crate::config) fn check(tools: &[HttpTool]) -> Vec<Problem> {
    let faults = tools.iter().enumerate().filter_map(|(index, tool)| Some((index, tool.endpoint().err()?)));
    let located = faults.flat_map(|(index, faults)| {
        faults.0.into_iter().map(move |(below, message)| {
            let field = below.0.into_iter().fold(field(index), |field, step| field.child(step));
            Problem::field(field.to_string(), message)
        })
    });
    located.collect()
}

fn field(index: usize) -> Field {
    Field::default().child("http_tools").child(index)
}

/// The field of a header, whatever its name.
pub(in crate::config) fn header_field(index: usize, name: &str) -> Field {
    field(index).child("headers").child(name)
}

/// What is wrong with a tool, each with the field below the tool's own.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<(Field, String)>);

impl Faults {
    fn add(&mut self, field: &str, message: impl Into<String>) {
        self.0.push((Field::default().child(field), message.into()));
    }

    /// The value, or none and one fault more.
    fn unless<T>(&mut self, field: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.add(field, message)).ok()
    }
}

impl HttpTool {
    /// The tool.
    ///
    /// # Errors
    /// Everything that `load` reports about it.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Faults> {
        let mut faults = Faults::default();
        self.check_values(&mut faults);
        let headers = self.header_map(&mut faults);
        let url = faults.unless("url", Template::parse(&self.url));
        let output = self.output.as_ref().and_then(|schema| faults.unless("output", schema.to_json()));
        let parameters = faults.unless("parameters", self.parameters.to_json());
        let Some(mut parameters) = parameters else { return Err(faults) };
        close(&mut parameters);
        if let Some(url) = &url {
            url.unpromised(&parameters).into_iter().for_each(|message| faults.add("url", message));
        }
        let spec = self.spec(parameters, output);
        for fault in Registry::new().faults(&spec) {
            // That an empty one is empty says more.
            if !matches!(&fault, RegistryError::Name(name) if name.trim().is_empty()) {
                faults.add(field_of(&fault), fault.to_string());
            }
        }
        match url {
            Some(url) if faults.0.is_empty() => {
                let (method, max_response) = (self.method.into(), self.max_response);
                Ok(Endpoint { spec, method, url, headers, max_response })
            }
            _ => Err(faults),
        }
    }

    /// The tool, for a program that has it in its code: `App::tool` takes it. What `${NAME}` stands for in headers is not
    /// put in here.
    ///
    /// # Errors
    /// Everything that is wrong with it, with the field of each.
    pub fn tool(&self) -> Result<impl Tool + use<>, Vec<Problem>> {
        let problem = |(field, message): (Field, String)| Problem::field(field.to_string(), message);
        self.endpoint().map_err(|faults| faults.0.into_iter().map(problem).collect())
    }

    fn check_values(&self, faults: &mut Faults) {
        if self.description.trim().is_empty() {
            faults.add("description", "is empty; say what the tool does, for the model");
        }
        if self.read_only && self.writes {
            faults.add("writes", "is set, and so is read_only; keep one of them");
        }
        let limits = [
            ("timeout", Some(self.timeout)),
            ("cache_ttl", self.cache_ttl),
            ("approval_timeout", self.approval_timeout),
        ];
        for (field, _) in limits.into_iter().filter(|(_, limit)| *limit == Some(Duration::ZERO)) {
            faults.add(field, "expected more than 0s; got 0s");
        }
        if let Retry { wait: Some(wait), .. } = self.retry {
            if wait.initial.is_zero() {
                faults.add("retry", "initial: expected more than 0s; got 0s");
            }
            if wait.initial > wait.max_delay {
                faults.add("retry", "initial is longer than max_delay");
            }
        }
        if self.max_response.as_u64() == 0 || self.max_response > MAX_RESPONSE {
            faults
                .add("max_response", format!("expected 1 byte to {MAX_RESPONSE}; got {}", self.max_response));
        }
    }

    fn header_map(&self, faults: &mut Faults) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let message = match header(name, value) {
                Ok((name, _)) if headers.contains_key(&name) => {
                    "is set twice: the case of a header's name makes no difference".into()
                }
                Ok((name, value)) => {
                    headers.insert(name, value);
                    continue;
                }
                Err(message) => message,
            };
            faults.0.push((Field::default().child("headers").child(name.as_str()), message));
        }
        headers
    }

    fn spec(&self, parameters: Value, output: Option<Value>) -> Spec {
        let mut spec = Spec::new(&self.name, &self.description, parameters)
            .retry(self.retry)
            .timeout(self.timeout)
            .requires_approval(self.requires_approval)
            .cost_per_call(self.cost_per_call)
            .on_unknown_outcome(self.on_unknown_outcome);
        spec.output = output;
        spec.cache_ttl = self.cache_ttl;
        spec.approval_timeout = self.approval_timeout;
        spec.deterministic = self.deterministic;
        match (self.read_only, self.writes) {
            (true, _) => spec.read_only(),
            (_, true) => spec.writes(),
            (false, false) => spec,
        }
    }
}

/// A schema that does not say whether there may be arguments beyond its properties means no: the model would send
/// whatever it likes.
fn close(schema: &mut Value) {
    let says = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    ];
    if let Value::Object(schema) = schema
        && !says.iter().any(|word| schema.contains_key(*word))
    {
        schema.insert("additionalProperties".into(), false.into());
    }
}

/// The field that a tool cannot be registered for.
fn field_of(fault: &RegistryError) -> &'static str {
    match fault {
        RegistryError::Name(_) | RegistryError::Duplicate(_) => "name",
        RegistryError::Schema { what: "results", .. } => "output",
        RegistryError::Schema { .. } => "parameters",
        RegistryError::ApprovalTimeout(_) => "approval_timeout",
        RegistryError::Cost(_) => "cost_per_call",
    }
}

impl From<Method> for endpoint::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::GET,
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

impl Schema {
    /// As JSON.
    ///
    /// # Errors
    /// The text is not JSON, or the table has a number that JSON does not know.
    fn to_json(&self) -> Result<Value, String> {
        match self {
            Self::Text(text) => serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}")),
            Self::Table(table) => object(table).map(Value::Object),
        }
    }
}

/// A table as JSON.
///
/// # Errors
/// It has a number that JSON does not know.
pub(in crate::config) fn object(table: &toml::Table) -> Result<serde_json::Map<String, Value>, String> {
    table.iter().map(|(key, value)| Ok((key.clone(), json(value)?))).collect()
}

fn json(value: &toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) if !number.is_finite() => {
            return Err(format!("has the number {number}, which JSON cannot carry"));
        }
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(flag) => (*flag).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => Value::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => Value::Object(object(table)?),
    })
}
