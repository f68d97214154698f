//! `${NAME}` in the value of a header, or in the key of a provider: an environment variable.

use std::collections::HashMap;

use super::field::Field;
use super::http_tool::header_field;
use super::{HttpTool, Problem, Provider};
use crate::tool::endpoint::is_value;

/// What is wrong with the variables of headers.
#[derive(Default)]
pub(super) struct Variables {
    /// With what is written.
    pub wrong: Vec<Problem>,
    /// With the environment, which only those who run tools need.
    pub unset: Vec<Problem>,
}

impl Variables {
    /// Puts the variables into a value, which stays as it was written where it has a fault.
    fn expand(&mut self, value: &mut String, env: &HashMap<String, String>, field: impl Fn() -> Field) {
        match expanded(value, env) {
            Ok(expanded) => *value = expanded,
            Err(Fault::Wrong(why)) => self.wrong.push(Problem::field(field().to_string(), why)),
            Err(Fault::Unset(whys)) => {
                self.unset.extend(whys.into_iter().map(|why| Problem::field(field().to_string(), why)));
            }
        }
    }
}

/// Puts the variables into the values of headers, and into keys.
pub(super) fn expand(
    tools: &mut [HttpTool],
    providers: &mut [Provider],
    env: &HashMap<String, String>,
) -> Variables {
    let mut faults = Variables::default();
    for (index, tool) in tools.iter_mut().enumerate() {
        for (name, value) in &mut tool.headers {
            faults.expand(value, env, || header_field(index, name));
        }
    }
    for (index, provider) in providers.iter_mut().enumerate() {
        expand_provider(index, provider, env, &mut faults);
    }
    faults
}

/// The same of one provider.
pub(super) fn expand_provider(
    index: usize,
    provider: &mut Provider,
    env: &HashMap<String, String>,
    faults: &mut Variables,
) {
    let field = || Field::default().child("providers").child(index);
    for (name, value) in &mut provider.headers {
        faults.expand(value, env, || field().child("headers").child(name.as_str()));
    }
    if let Some(key) = &mut provider.api_key {
        faults.expand(key, env, || field().child("api_key"));
    }
}

enum Fault {
    Wrong(String),
    Unset(Vec<String>),
}

/// No message shows the text or a variable's value: they are secrets.
fn expanded(text: &str, env: &HashMap<String, String>) -> Result<String, Fault> {
    let (mut out, mut unset, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let named = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((name, after)) = named.filter(|(name, _)| is_name(name)) else {
            return Err(Fault::Wrong(
                "has a $ that begins no variable such as ${NAME}; a $ is written $$".into(),
            ));
        };
        match env.get(name) {
            None => unset.push(format!("the environment variable {name} is not set")),
            Some(value) if !is_value(value) => unset.push(format!(
                "the environment variable {name} has what no header can have: only visible ASCII characters, spaces \
                 and tabs"
            )),
            Some(value) => out.push_str(value),
        }
        rest = after;
    }
    out.push_str(rest);
    if unset.is_empty() { Ok(out) } else { Err(Fault::Unset(unset)) }
}

fn is_name(name: &str) -> bool {
    let starts = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.bytes().next().is_some_and(starts) && name.bytes().all(|b| starts(b) || b.is_ascii_digit())
}
