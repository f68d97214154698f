//! What a model is told about a tool.

use serde::Serialize;
use serde_json::Value;

use super::Hash;
use super::canonical::hash_of;

/// What a model is told about a tool, and what its recorded calls are bound to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Definition {
    /// The name: `[a-zA-Z0-9_-]+`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    #[serde(skip)]
    hash: Hash,
}

impl Definition {
    /// A definition.
    pub fn new(name: &str, description: &str, parameters: Value) -> Self {
        let hash = hash_of(&serde_json::json!({
            "description": description,
            "name": name,
            "parameters": &parameters,
        }));
        Self { name: name.into(), description: description.into(), parameters, hash }
    }

    /// As Anthropic's Messages take it.
    pub fn to_anthropic(&self) -> Value {
        let Self { name, description, parameters, .. } = self;
        serde_json::json!({"name": name, "description": description, "input_schema": parameters})
    }

    /// As OpenAI's Chat Completions take it.
    pub fn to_openai(&self) -> Value {
        let Self { name, description, parameters, .. } = self;
        let function =
            serde_json::json!({"name": name, "description": description, "parameters": parameters});
        serde_json::json!({"type": "function", "function": function})
    }

    /// The hash of name, description and parameters: what a recorded call is bound to.
    pub fn hash(&self) -> &Hash {
        &self.hash
    }
}
