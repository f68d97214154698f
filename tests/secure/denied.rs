//! What is said, and what becomes of a turn, where one right is missing.

use serde_json::Value;

use super::broker::{Broker, CREATE, READ, Right, WRITE, broker};
use super::roles::{Login, make_topics, operator, producer, reader, transactions, user, worker};
use super::support::process::Finished;
use super::support::topic::NAMES;
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

/// A command ends with 1, and says which right is missing.
fn assert_command_refused(mill: &Mill, login: &Login, right: &Right, args: &[&str]) -> Finished {
    let ended = login.run(mill, args).expect(1);
    assert!(ended.stderr.contains(&refusal(login, right)), "{right:?}: {}", ended.stderr);
    ended
}

fn without<'a>(rights: &'a [Right], right: &Right) -> Vec<Right> {
    rights.iter().filter(|other| *other != right).cloned().collect()
}

#[test]
fn every_command_says_which_right_it_lacks() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("commands").client(&broker.admin()).without_topics();
    make_topics(broker, &mill);
    let all = [producer(&mill), reader(&mill)].concat();
    let topic = |name| Right::topic(READ, &mill.topic(name));
    let submit = ["submit", "--agent", "support", "--session", "s", "hi"];
    let submit_and_wait = ["submit", "--agent", "support", "--session", "s", "--wait", "hi"];
    std::thread::scope(|scope| {
        let cases: [(&str, Right, &[&str]); 4] = [
            ("no-turns", Right::topic(WRITE, &mill.topic("turns")), &submit),
            ("no-results", topic("results"), &submit_and_wait),
            ("no-results-either", topic("results"), &["results"]),
            ("no-events", topic("events"), &["events"]),
        ];
        for (name, right, args) in cases {
            let (mill, all) = (&mill, &all);
            scope.spawn(move || {
                let login = user(broker, mill, name);
                broker.grant(&login.principal, &without(all, &right));
                let ended = login.run(mill, args);
                eprintln!("{args:?}: {:?}\n{}{}", ended.code, ended.stdout, ended.stderr);
            });
        }
    });
}
