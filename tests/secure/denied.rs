//! What is said, and what becomes of a turn, where one right is missing.

use serde_json::Value;

use super::broker::{ALTER, ALTER_CONFIGS, Broker, CREATE, DESCRIBE, READ, Right, WRITE, broker};
use super::roles::{Login, make_topics, operator, transactions, user, worker};
use super::support::topic::{NAMES, Sent};
use super::support::{Mill, Setup, text, turn, until};

/// What is said about a right that is missing.
pub fn refusal(login: &Login, right: &Right) -> String {
    format!("the brokers refuse {} to {}: grant it, as with kafka-acls --add", right.text(), login.principal)
}

pub fn hello(id: &str) -> Value {
    turn("s", id, &[text("hello")])
}

/// The worker and the check end at once, and name this right and no other.
fn assert_refused(mill: &Mill, login: &Login, right: &Right) {
    let (worker, check) = (login.spawn(mill, &["worker"]), login.spawn(mill, &["check"]));
    let (worker, check) = (worker.wait().expect(2), check.wait().expect(2));
    for said in [&worker.stderr, &check.stdout] {
        assert!(said.contains(&refusal(login, right)), "{right:?}: {said}");
        assert_eq!(said.matches("the brokers refuse").count(), 1, "{right:?}: {said}");
    }
    assert!(check.stdout.starts_with("permissions: "), "{}", check.stdout);
    assert!(!mill.cluster.has_group(&mill.id), "the worker joined the group");
}

#[test]
fn a_worker_without_one_of_its_rights_says_which_and_loses_no_turn() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("denied").client(&broker.admin()).without_topics();
    make_topics(broker, &mill);
    let login = user(broker, &mill, "worker");
    let rights = worker(&mill);
    let (needed, configs) = rights.split_at(rights.len() - NAMES.len());
    broker.grant(&login.principal, &rights);
    for right in needed {
        broker.revoke(&login.principal, right);
        mill.send(&[hello(&right.text().replace(' ', "-"))]);
        assert_refused(&mill, &login, right);
        broker.grant(&login.principal, std::slice::from_ref(right));
    }
    // Without this nothing is refused, and less is checked.
    for right in configs {
        broker.revoke(&login.principal, right);
    }
    let check = login.run(&mill, &["check"]).expect(0);
    assert!(check.stderr.contains("it takes DESCRIBE_CONFIGS on each of them"), "{}", check.stderr);

    let _worker = login.ready_worker(&mill);
    mill.results(needed.len());
    mill.wait_until_committed();
    assert_eq!(mill.records("results").len(), needed.len());
}

#[test]
fn a_worker_with_no_rights_at_all_is_told_all_of_them() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("no-rights").client(&broker.admin()).without_topics();
    make_topics(broker, &mill);
    let login = user(broker, &mill, "worker");
    let check = login.run(&mill, &["check", "--json"]).expect(2);
    let said = check.json()[0]["permissions"].to_string();
    for right in &worker(&mill)[..8] {
        assert!(said.contains(&refusal(&login, right)), "{right:?}: {said}");
    }
}

#[test]
fn a_worker_without_its_transactional_ids_says_so_until_it_has_them() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("no-transactions").client(&broker.admin()).exactly_once(true).without_topics();
    make_topics(broker, &mill);
    let login = user(broker, &mill, "worker");
    broker.grant(&login.principal, &worker(&mill));
    let mut running = login.spawn(&mill, &["worker"]);
    mill.send(&[hello("t")]);
    let said = refusal(&login, &transactions(&mill));
    until("two refusals", || (running.log().matches(&said).count() >= 2).then_some(()));
    assert!(running.running());
    broker.grant(&login.principal, &[transactions(&mill)]);
    mill.result("t");
    mill.wait_until_committed();
    assert_eq!(mill.records("results").len(), 1);
}

/// A command, and who may do all that it takes but one thing.
struct Case<'a> {
    name: &'a str,
    login: fn(Login) -> Login,
    granted: Vec<Right>,
    missing: Right,
    args: &'a [&'a str],
}

impl Case<'_> {
    /// It ends with 1 and says what is missing; with it, it does what it is to.
    fn run(&self, broker: &Broker, mill: &Mill) {
        let Self { name, missing, args, .. } = self;
        let login = (self.login)(user(broker, mill, name));
        broker.grant(&login.principal, &self.granted);
        let ended = login.run(mill, args);
        assert!(ended.stderr.contains(&refusal(&login, missing)), "{name}: {}", ended.stderr);
        ended.expect(1);
        broker.grant(&login.principal, std::slice::from_ref(missing));
        login.run(mill, args).expect(0);
    }
}

fn assert_all_refused(broker: &Broker, mill: &Mill, cases: &[Case<'_>]) {
    std::thread::scope(|scope| cases.iter().for_each(|case| drop(scope.spawn(|| case.run(broker, mill)))));
}

const SUBMIT: &[&str] = &["submit", "--agent", "support", "--session", "s", "hi"];

#[test]
fn every_command_says_which_right_it_lacks() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("commands").client(&broker.admin()).without_topics();
    make_topics(broker, &mill);
    // Where there is nothing to read, nothing is refused.
    for name in ["results", "events"] {
        let record = Sent { key: Some(b"k"), value: Some(b"{}"), ..Sent::default() };
        mill.cluster.produce(&mill.topic(name), record);
    }
    mill.cluster.flush();
    let topic = |operation, name| Right::topic(operation, &mill.topic(name));
    let case = |name, granted, missing, args| Case { name, login: |login| login, granted, missing, args };
    assert_all_refused(
        broker,
        &mill,
        &[
            case("turns", vec![], topic(WRITE, "turns"), SUBMIT),
            // What it sees it need not be able to write to.
            case("seen-turns", vec![topic(READ, "turns")], topic(WRITE, "turns"), SUBMIT),
            case("control", vec![], topic(WRITE, "control"), &["cancel", "t"]),
            case("results", vec![], topic(READ, "results"), &["results", "--json"]),
            case(
                "seen-results",
                vec![topic(DESCRIBE, "results")],
                topic(READ, "results"),
                &["results", "--json"],
            ),
            case("events", vec![], topic(READ, "events"), &["events", "--json"]),
            case(
                "seen-events",
                vec![topic(DESCRIBE, "events")],
                topic(READ, "events"),
                &["events", "--json"],
            ),
        ],
    );
    // It waits for a result of which it hears nothing: it does not even send the turn.
    let login = user(broker, &mill, "no-results");
    broker.grant(&login.principal, &[topic(WRITE, "turns")]);
    let sent = mill.records("turns").len();
    let ended = login.run(&mill, &[&SUBMIT[..1], &["--wait"], &SUBMIT[1..]].concat()).expect(1);
    assert!(ended.stderr.contains(&refusal(&login, &topic(READ, "results"))), "{}", ended.stderr);
    assert_eq!(mill.records("turns").len(), sent);
}

#[test]
fn whoever_makes_and_mends_topics_is_told_what_he_lacks() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("apply").client(&broker.admin()).without_topics();
    let apply: &[&str] = &["topics", "apply", "--partitions", "1"];
    let topic = |operation, name| Right::topic(operation, &mill.topic(name));
    let others = |missing: &Right| operator(&mill).into_iter().filter(|right| right != missing).collect();
    let run = |name, login, granted, missing, args| {
        Case { name, login, granted, missing, args }.run(broker, &mill);
    };
    let create = topic(CREATE, "control");
    run("create", |login| login, others(&create), create, apply);
    let describe = topic(DESCRIBE, "status");
    run("describe", |login| login, others(&describe), describe, apply);
    // The turns topic is widened first, and then the events topic.
    let granted = [operator(&mill), vec![topic(ALTER, "turns")]].concat();
    run("widen", |login| login, granted, topic(ALTER, "events"), &["topics", "apply", "--partitions", "2"]);
    let larger = |login: Login| login.with("PROPERTIES__MESSAGE_MAX_BYTES", Some("2000000"));
    run("mend", larger, operator(&mill), topic(ALTER_CONFIGS, "events"), &["topics", "apply"]);
}
