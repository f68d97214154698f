//! Where a step stands in its turn: the same on every rerun of the same turn.

use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Hash;

/// What stays as it is in an id inside a position; everything else is percent-encoded, so that no id
/// can look like another position.
const ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'~');

/// Where a step stands in its turn. Printable ASCII.
///
/// `m0`, `m1` .. are model replies, `m0.c0` .. the calls of a reply, `NAME#0` or `NAME#id=ID` direct
/// calls, `step:ID` and `once:ID` durable steps, and a position inside another call or a sub-agent
/// is `PARENT/CHILD`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Position(Arc<str>);

impl Position {
    /// The model's reply number `reply`, from 0.
    pub fn reply(reply: u32) -> Self {
        Self(format!("m{reply}").into())
    }

    /// Call number `call`, from 0, of the model's reply number `reply`.
    pub fn call(reply: u32, call: usize) -> Self {
        Self(format!("m{reply}.c{call}").into())
    }

    /// The `count`-th direct call, from 0, of the tool `name`.
    pub fn direct(name: &str, count: u32) -> Self {
        Self(format!("{}#{count}", encode(name)).into())
    }

    /// A direct call of the tool `name` under an id that the caller chose.
    pub fn direct_with_id(name: &str, id: &str) -> Self {
        Self(format!("{}#id={}", encode(name), encode(id)).into())
    }

    /// A durable step of agent code.
    pub fn step(id: &str) -> Self {
        Self(format!("step:{}", encode(id)).into())
    }

    /// A durable step of agent code that runs once per turn.
    pub fn once(id: &str) -> Self {
        Self(format!("once:{}", encode(id)).into())
    }

    /// The `count`-th question, from 0, whether the tool `name` may run.
    pub fn approval(name: &str, count: u32) -> Self {
        Self(format!("tool_approval:{}#{count}", encode(name)).into())
    }

    /// The question whether a call of the tool `name` under an id that the caller chose may run.
    pub fn approval_with_id(name: &str, id: &str) -> Self {
        Self(format!("tool_approval:{}#id={}", encode(name), encode(id)).into())
    }

    /// The `count`-th value, from 0, that agent code was given by this name (`now`, `random`, `uuid`): a durable step
    /// whose id no code can choose.
    pub fn value(name: &str, count: u32) -> Self {
        Self(format!("step:{}#{count}", encode(name)).into())
    }

    /// Whether a value stands there that agent code was given ([`Self::value`]).
    pub fn is_value(&self) -> bool {
        let own = self.own();
        own.starts_with("step:") && own.contains('#')
    }

    /// `child` inside the call or sub-agent at this position.
    #[must_use]
    pub fn child(&self, child: &Self) -> Self {
        Self(format!("{self}/{child}").into())
    }

    /// The reply that caused the call at this position, where it is a call of a reply.
    pub fn cause(&self) -> Option<Self> {
        let (parent, own) = match self.0.rsplit_once('/') {
            Some((parent, own)) => (Some(parent), own),
            None => (None, &*self.0),
        };
        let (reply, _) = own.split_once(".c").filter(|(reply, call)| is_reply(reply) && is_number(call))?;
        Some(Self(match parent {
            Some(parent) => format!("{parent}/{reply}").into(),
            None => reply.into(),
        }))
    }

    /// The calls and sub-agents that the position is inside of, the outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + '_ {
        self.0.match_indices('/').filter_map(|(end, _)| Some(Self(self.0.get(..end)?.into())))
    }

    /// Whether a step of an agent's own stands there, and no call and no reply.
    pub fn is_own_step(&self) -> bool {
        let own = self.own();
        own.starts_with("step:") || own.starts_with("once:")
    }

    /// Whether a call stands there under an id that its caller chose.
    pub fn has_id(&self) -> bool {
        self.own().contains("#id=")
    }

    /// Its last part.
    fn own(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(_, own)| own)
    }

    /// The call or sub-agent that the position is inside of; none where it is directly inside the turn.
    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    /// The position as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_reply(text: &str) -> bool {
    text.strip_prefix('m').is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The longest id that stands in a position as it is, in bytes.
const LONGEST_ID: usize = 200;

/// An id as it stands in a position: encoded, or where it is longer than that, `sha256:` and the hash of it, which no
/// encoded id can look like.
fn encode(id: &str) -> String {
    match id.len() > LONGEST_ID {
        true => format!("sha256:{}", Hash::of_bytes(id.as_bytes())),
        false => utf8_percent_encode(id, ID).to_string(),
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_knows_the_reply_that_caused_it() {
        let cause = |p: Position| p.cause().map(|c| c.to_string());
        assert_eq!(cause(Position::call(3, 1)).as_deref(), Some("m3"));
        assert_eq!(cause(Position::reply(3)), None);
        assert_eq!(cause(Position::direct("m3.c1", 0)), None);
        let nested = Position::call(0, 0).child(&Position::call(2, 5));
        let deep = nested.child(&Position::step("x"));
        let outer: Vec<_> = deep.ancestors().map(|position| position.to_string()).collect();
        assert_eq!((outer, deep.is_own_step()), (vec!["m0.c0".to_owned(), "m0.c0/m2.c5".into()], true));
        assert_eq!((nested.is_own_step(), Position::reply(0).ancestors().count()), (false, 0));
        assert_eq!(cause(nested).as_deref(), Some("m0.c0/m2"));
    }
}
