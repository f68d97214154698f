//! Who may do what, and what is said where the brokers refuse: the operation, the resource, the principal, and how
//! it is granted. Pure.

use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// An operation that an ACL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Create,
    Alter,
    Describe,
    AlterConfigs,
}

impl Operation {
    /// As Kafka's documentation writes it.
    fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::Alter => "ALTER",
            Self::Describe => "DESCRIBE",
            Self::AlterConfigs => "ALTER_CONFIGS",
        }
    }

    /// As `kafka-acls` takes it.
    fn option(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Create => "Create",
            Self::Alter => "Alter",
            Self::Describe => "Describe",
            Self::AlterConfigs => "AlterConfigs",
        }
    }
}

/// What an operation is done on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    Topic(String),
    Group(String),
    /// All transactional ids that begin so.
    Transactions(String),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Transactions(prefix) => write!(f, "the transactional ids {prefix}*"),
        }
    }
}

/// The brokers refuse something that this program must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denied {
    operation: Operation,
    resource: Resource,
    principal: Option<String>,
}

impl Denied {
    pub(super) fn new(config: &ClientConfig, operation: Operation, resource: Resource) -> Self {
        Self { operation, resource, principal: principal(config) }
    }

    /// The refusal, if this code is one.
    pub(super) fn of(
        config: &ClientConfig,
        code: Option<RDKafkaErrorCode>,
        operation: Operation,
        resource: Resource,
    ) -> Option<Self> {
        code.is_some_and(is_denial).then(|| Self::new(config, operation, resource))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, resource, principal } = self;
        let (who, option) = match principal {
            Some(principal) => (principal.as_str(), principal.as_str()),
            None => ("this program's principal", "PRINCIPAL"),
        };
        write!(
            f,
            "the brokers refuse {} on {resource} to {who}: grant it, as with kafka-acls --add \
             --allow-principal {option} --operation {} ",
            operation.name(),
            operation.option()
        )?;
        match resource {
            Resource::Topic(name) => write!(f, "--topic {name}"),
            Resource::Group(name) => write!(f, "--group {name}"),
            Resource::Transactions(prefix) => {
                write!(f, "--transactional-id {prefix} --resource-pattern-type prefixed")
            }
        }
    }
}

/// What an error says that a consumer of a topic met.
pub(super) fn explain(config: &ClientConfig, topic: &str, error: &KafkaError) -> String {
    let code = error.rdkafka_error_code();
    let resource = match code {
        Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
            Resource::Group(config.get("group.id").unwrap_or_default().into())
        }
        _ => Resource::Topic(topic.into()),
    };
    let denied = Denied::of(config, code, Operation::Read, resource);
    denied.map_or_else(|| error.to_string(), |denied| denied.to_string())
}

/// A reader that is in no group needs no right to the group that its settings name.
pub(super) fn is_no_matter(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::GroupAuthorizationFailed)
}

/// Whether a code says that the brokers know who asks, and that he may not.
pub(super) fn is_denial(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            // What an idempotent producer is told that may write to no topic at all.
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
    )
}

/// Whom the brokers take a client for, where its settings tell. Of a certificate only the brokers know.
fn principal(config: &ClientConfig) -> Option<String> {
    let is = |text: &str, other: &str| text.eq_ignore_ascii_case(other);
    let protocol = config.get("security.protocol").unwrap_or("plaintext");
    if is(protocol, "plaintext") {
        return Some("User:ANONYMOUS".into());
    }
    let mechanism = config.get("sasl.mechanism").or_else(|| config.get("sasl.mechanisms"))?;
    let by_name = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].iter().any(|name| is(mechanism, name));
    let name = config.get("sasl.username")?;
    (by_name && !is(protocol, "ssl")).then(|| format!("User:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(properties: &[(&str, &str)]) -> ClientConfig {
        properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_refusal_says_what_on_what_to_whom_and_what_to_do() {
        let scram = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "alice"),
        ];
        let topic = Denied::new(&config(&scram), Operation::Read, Resource::Topic("agent.turns".into()));
        assert_eq!(
            topic.to_string(),
            "the brokers refuse READ on topic agent.turns to User:alice: grant it, as with kafka-acls --add \
             --allow-principal User:alice --operation Read --topic agent.turns"
        );
        let tls = config(&[("security.protocol", "ssl"), ("sasl.username", "alice")]);
        let ids = Denied::new(&tls, Operation::Write, Resource::Transactions("g-t-".into()));
        assert_eq!(
            ids.to_string(),
            "the brokers refuse WRITE on the transactional ids g-t-* to this program's principal: grant it, as with \
             kafka-acls --add --allow-principal PRINCIPAL --operation Write --transactional-id g-t- \
             --resource-pattern-type prefixed"
        );
    }

    #[test]
    fn a_principal_is_known_where_a_name_logs_in() {
        let sasl = |mechanism| {
            let protocol = ("security.protocol", "sasl_plaintext");
            principal(&config(&[protocol, ("sasl.mechanisms", mechanism), ("sasl.username", "bob")]))
        };
        assert_eq!(sasl("plain").as_deref(), Some("User:bob"));
        assert_eq!(sasl("OAUTHBEARER"), None);
        assert_eq!(principal(&config(&[])).as_deref(), Some("User:ANONYMOUS"));
        assert_eq!(principal(&config(&[("security.protocol", "sasl_ssl")])), None);
    }
}
