//! What is said, and what becomes of a turn, where a running worker loses a right.

use super::broker::{Broker, READ, Right, WRITE, broker};
use super::denied::{hello, refusal};
use super::roles::{Login, make_topics, transactions, user, worker};
use super::support::process::Process;
use super::support::topic::Sent;
use super::support::{Mill, Setup, until};

/// A worker that has ended its first turn, and may do all it must.
struct Works {
    broker: &'static Broker,
    mill: Mill,
    login: Login,
    worker: Process,
}

impl Works {
    fn new(broker: &'static Broker, name: &str, exactly_once: bool) -> Self {
        let setup = Setup::stock(name).client(&broker.admin()).exactly_once(exactly_once);
        let mill = setup.property("topic.metadata.refresh.interval.ms", 500).without_topics();
        make_topics(broker, &mill);
        let login = user(broker, &mill, "worker");
        let mut rights = worker(&mill);
        rights.extend(exactly_once.then(|| transactions(&mill)));
        broker.grant(&login.principal, &rights);
        let worker = login.ready_worker(&mill);
        mill.send(&[hello("first")]);
        mill.result("first");
        Self { broker, mill, login, worker }
    }

    fn revoke(&self, right: &Right) {
        self.broker.revoke(&self.login.principal, right);
    }

    fn grant(&self, right: &Right) {
        self.broker.grant(&self.login.principal, std::slice::from_ref(right));
    }

    /// Each turn has one result, and the group has committed both.
    fn assert_nothing_is_lost(&self) {
        self.mill.result("second");
        self.mill.wait_until_committed();
        assert_eq!(self.mill.records("results").len(), 2);
    }
}

/// The worker says what it lacks and stays; what it could not do it does once it may.
fn waits(name: &str, exactly_once: bool, right: impl Fn(&Mill) -> Right) {
    let Some(broker) = broker() else { return };
    let mut works = Works::new(broker, name, exactly_once);
    let right = right(&works.mill);
    works.revoke(&right);
    works.mill.send(&[hello("second")]);
    let said = refusal(&works.login, &right);
    until(&said, || (works.worker.log().matches(&said).count() >= 2).then_some(()));
    assert!(works.worker.running());
    works.grant(&right);
    works.assert_nothing_is_lost();
    assert!(works.worker.running());
}

#[test]
fn a_worker_waits_that_may_no_longer_read_turns() {
    waits("read-turns", false, |mill| Right::topic(READ, &mill.topic("turns")));
}

#[test]
fn a_worker_waits_that_may_no_longer_be_in_its_group() {
    waits("read-group", false, |mill| Right::group(READ, &mill.id));
}

#[test]
fn a_worker_waits_that_may_no_longer_read_events() {
    waits("read-events", false, |mill| Right::topic(READ, &mill.topic("events")));
}

#[test]
fn a_worker_waits_that_may_no_longer_write_events() {
    waits("write-events", false, |mill| Right::topic(WRITE, &mill.topic("events")));
}

#[test]
fn a_worker_goes_on_that_may_no_longer_read_the_control_topic() {
    waits("read-control", false, |mill| Right::topic(READ, &mill.topic("control")));
}

#[test]
fn a_worker_waits_that_may_no_longer_use_its_transactional_ids() {
    waits("write-ids", true, transactions);
}

/// The worker says what it lacks and ends; the next one that has it does what is left.
fn stops(name: &str, exactly_once: bool, right: impl Fn(&Mill) -> Right, bad_record: bool) {
    let Some(broker) = broker() else { return };
    let mut works = Works::new(broker, name, exactly_once);
    let right = right(&works.mill);
    works.revoke(&right);
    if bad_record {
        works.mill.send_record(Sent { value: Some(b"no JSON"), ..Sent::default() });
    }
    works.mill.send(&[hello("second")]);
    let mill = &works.mill;
    let ended = works.worker.wait().expect(1);
    assert!(ended.stderr.contains(&refusal(&works.login, &right)), "{}", ended.stderr);
    assert!(ended.stderr.contains("what was not finished comes again"), "{}", ended.stderr);
    broker.grant(&works.login.principal, std::slice::from_ref(&right));
    works.worker = works.login.ready_worker(mill);
    works.assert_nothing_is_lost();
    assert_eq!(works.mill.records("dead_letters").len(), usize::from(bad_record));
}

#[test]
fn a_worker_ends_that_may_no_longer_write_results() {
    stops("write-results", false, |mill| Right::topic(WRITE, &mill.topic("results")), false);
}

#[test]
fn a_worker_ends_that_may_no_longer_write_results_exactly_once() {
    stops("write-results-once", true, |mill| Right::topic(WRITE, &mill.topic("results")), false);
}

#[test]
fn a_worker_ends_that_may_no_longer_write_dead_letters() {
    stops("write-dead", false, |mill| Right::topic(WRITE, &mill.topic("dead_letters")), true);
}
