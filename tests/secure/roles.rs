//! A turn from end to end, by everyone who may do just what he must.

use super::broker::{Broker, CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ, Right, WRITE, broker, password};
use super::support::process::{Finished, Process};
use super::support::topic::NAMES;
use super::support::{Mill, Setup};

/// How a program logs in.
#[derive(Clone)]
pub struct Login {
    pub principal: String,
    variables: Vec<(String, String)>,
}

impl Login {
    fn new(principal: &str, variables: &[(&str, &str)]) -> Self {
        let variable =
            |(name, value): &(&str, &str)| (format!("TURNMILL__KAFKA__{name}"), (*value).to_owned());
        let variables = variables.iter().map(variable).collect();
        Self { principal: format!("User:{principal}"), variables }
    }

    /// By a name and the password that goes with it.
    pub fn sasl(broker: &Broker, mechanism: &str, user: &str) -> Self {
        let variables = [
            ("BROKERS", broker.address.as_str()),
            ("PROPERTIES__SECURITY_PROTOCOL", "sasl_ssl"),
            ("PROPERTIES__SSL_CA_LOCATION", &broker.tls("ca.pem")),
            ("PROPERTIES__SASL_MECHANISM", mechanism),
            ("PROPERTIES__SASL_USERNAME", user),
            ("PROPERTIES__SASL_PASSWORD", &password(user)),
        ];
        Self::new(user, &variables)
    }

    /// By a certificate.
    pub fn certificate(broker: &Broker) -> Self {
        let variables = [
            ("BROKERS", broker.tls_address.as_str()),
            ("PROPERTIES__SECURITY_PROTOCOL", "ssl"),
            ("PROPERTIES__SSL_CA_LOCATION", &broker.tls("ca.pem")),
            ("PROPERTIES__SSL_KEYSTORE_LOCATION", &broker.tls("client.p12")),
            ("PROPERTIES__SSL_KEYSTORE_PASSWORD", "turnmill"),
        ];
        Self::new("CN=client", &variables)
    }

    /// With another value of a property, or without it.
    pub fn with(mut self, property: &str, value: Option<&str>) -> Self {
        let name = format!("TURNMILL__KAFKA__{property}");
        self.variables.retain(|(other, _)| *other != name);
        self.variables.extend(value.map(|value| (name, value.to_owned())));
        self
    }

    pub fn spawn(&self, mill: &Mill, args: &[&str]) -> Process {
        mill.spawn_with(&self.variables, args)
    }

    pub fn run(&self, mill: &Mill, args: &[&str]) -> Finished {
        self.spawn(mill, args).wait()
    }

    /// A worker that has a partition.
    pub fn ready_worker(&self, mill: &Mill) -> Process {
        let mut worker = self.spawn(mill, &["worker"]);
        worker.wait_for_log("partition ready");
        worker
    }
}

/// A new SCRAM user.
pub fn user(broker: &Broker, mill: &Mill, role: &str) -> Login {
    let name = format!("{}-{role}", mill.id);
    broker.add_user(&name);
    Login::sasl(broker, "SCRAM-SHA-512", &name)
}

/// Runs `topics apply` as the super user.
pub fn make_topics(broker: &Broker, mill: &Mill) {
    Login::sasl(broker, "PLAIN", "admin").run(mill, &["topics", "apply", "--partitions", "1"]).expect(0);
}

pub fn worker(mill: &Mill) -> Vec<Right> {
    let topic = |operation, name| Right::topic(operation, &mill.topic(name));
    let mut rights = vec![
        Right::group(READ, &mill.id),
        topic(READ, "turns"),
        topic(READ, "events"),
        topic(WRITE, "events"),
        topic(WRITE, "results"),
        topic(WRITE, "dead_letters"),
        topic(DESCRIBE, "status"),
        topic(READ, "control"),
    ];
    rights.extend(NAMES.iter().map(|name| topic(DESCRIBE_CONFIGS, name)));
    rights
}

/// What a worker needs too where results are promised exactly once.
pub fn transactions(mill: &Mill) -> Right {
    Right::transactions(WRITE, &format!("{}-{}-", mill.id, mill.topic("turns")))
}

pub fn producer(mill: &Mill) -> Vec<Right> {
    vec![Right::topic(WRITE, &mill.topic("turns")), Right::topic(READ, &mill.topic("results"))]
}

pub fn reader(mill: &Mill) -> Vec<Right> {
    ["results", "events"].map(|name| Right::topic(READ, &mill.topic(name))).into()
}

pub fn operator(mill: &Mill) -> Vec<Right> {
    let topic = |name| [CREATE, DESCRIBE, DESCRIBE_CONFIGS].map(|op| Right::topic(op, &mill.topic(name)));
    NAMES.iter().copied().flat_map(topic).collect()
}

/// What everyone is to do, one login each.
struct Logins {
    operator: Login,
    worker: Login,
    producer: Login,
    reader: Login,
}

fn a_turn_from_end_to_end(broker: &Broker, mill: &Mill, logins: &Logins, exactly_once: bool) {
    let Logins { operator: by_operator, worker: by_worker, producer: by_producer, reader: by_reader } =
        logins;
    broker.grant(&by_operator.principal, &operator(mill));
    let applied = by_operator.run(mill, &["topics", "apply", "--partitions", "1"]).expect(0);
    assert_eq!((applied.stdout.lines().count(), applied.stderr.as_str()), (6, ""));
    let mut rights = worker(mill);
    rights.extend(exactly_once.then(|| transactions(mill)));
    broker.grant(&by_worker.principal, &rights);
    let check = by_worker.run(mill, &["check"]).expect(0);
    assert!(check.stdout.contains("everything is right") && check.stderr.is_empty(), "{}", check.stderr);

    let running = by_worker.ready_worker(mill);
    broker.grant(&by_producer.principal, &producer(mill));
    let script = r#"script={"replies":[{"text":"hello"}]}"#;
    let submit = ["submit", "--agent", "support", "--session", "s", "--turn-id", "t", "--wait"];
    let submitted = by_producer.run(mill, &[&submit[..], &["--metadata", script, "hi"]].concat()).expect(0);
    assert!(submitted.stdout.contains("hello"), "{}", submitted.stdout);
    broker.grant(&by_reader.principal, &reader(mill));
    let results = by_reader.run(mill, &["results", "--json"]).expect(0);
    assert_eq!((results.json().len(), results.stderr.as_str()), (1, ""));
    let events = by_reader.run(mill, &["events", "--json", "--turn", "t"]).expect(0);
    assert_eq!((events.json().len(), events.stderr.as_str()), (4, ""));
    // A drain, with its commit, needs no more; and meanwhile nothing was refused.
    mill.wait_until_committed();
    let ended = running.terminate().expect(0);
    assert!(!ended.stderr.contains("uthoriz") && !ended.stderr.contains("refuse"), "{}", ended.stderr);
    assert_eq!(mill.records("results").len(), 1);
}

#[test]
fn a_turn_over_sasl_plain() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("plain").client(&broker.admin()).without_topics();
    let login = |user| Login::sasl(broker, "PLAIN", user);
    let logins = Logins {
        operator: login("operator"),
        worker: login("worker"),
        producer: login("producer"),
        reader: login("reader"),
    };
    a_turn_from_end_to_end(broker, &mill, &logins, false);
}

#[test]
fn a_turn_over_sasl_scram_exactly_once() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("scram").client(&broker.admin()).exactly_once(true).without_topics();
    let login = |role| user(broker, &mill, role);
    let logins = Logins {
        operator: login("operator"),
        worker: login("worker"),
        producer: login("producer").with("PROPERTIES__SASL_MECHANISM", Some("SCRAM-SHA-256")),
        reader: login("reader"),
    };
    a_turn_from_end_to_end(broker, &mill, &logins, true);
}

#[test]
fn a_turn_over_mutual_tls() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("certificate").client(&broker.admin()).without_topics();
    // One certificate, which may do what they all may.
    let login = || Login::certificate(broker);
    let logins = Logins { operator: login(), worker: login(), producer: login(), reader: login() };
    a_turn_from_end_to_end(broker, &mill, &logins, false);
}
