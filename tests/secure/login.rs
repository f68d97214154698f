//! Who is not let in at all.

use std::time::{Duration, Instant};

use super::broker::broker;
use super::roles::{Login, make_topics, worker};
use super::support::{Mill, Setup};

/// The check says so and ends; the worker says so and waits.
fn assert_told(mill: &Mill, login: &Login, says: &[&str]) {
    let mut worker = login.spawn(mill, &["worker"]);
    let begin = Instant::now();
    let check = login.run(mill, &["check"]).expect(1);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    for text in says {
        assert!(check.stdout.contains(text), "no {text:?}: {}", check.stdout);
        worker.wait_for_log(text);
    }
    assert!(check.stdout.starts_with("brokers: no broker at 127.0.0.1:"), "{}", check.stdout);
    assert!(worker.log().contains("waiting for the brokers"));
    worker.terminate().expect(0);
}

#[test]
fn who_is_not_let_in_is_told_why_at_once() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("login").client(&broker.admin()).without_topics();
    let sasl = |mechanism| Login::sasl(broker, mechanism, "admin");
    let password = |login: Login| login.with("PROPERTIES__SASL_PASSWORD", Some("wrong"));
    let protocol = |name| sasl("PLAIN").with("PROPERTIES__SECURITY_PROTOCOL", Some(name));
    let other_ca = broker.tls("other-ca.pem");
    let check_sasl = "check sasl.mechanism, sasl.username and sasl.password";
    let check_tls = "check the ssl. settings of kafka.properties";
    let check_protocol = "check that security.protocol";
    let cases: [(Login, &[&str]); 8] = [
        (password(sasl("PLAIN")), &["Invalid username or password", check_sasl]),
        (
            password(sasl("SCRAM-SHA-512")),
            &["invalid credentials with SASL mechanism SCRAM-SHA-512", check_sasl],
        ),
        (
            sasl("PLAIN").with("PROPERTIES__SSL_CA_LOCATION", Some(&other_ca)),
            &["certificate verify failed", check_tls],
        ),
        (sasl("PLAIN").with("PROPERTIES__SSL_CA_LOCATION", None), &["certificate verify failed", check_tls]),
        (
            Login::certificate(broker).with("PROPERTIES__SSL_KEYSTORE_LOCATION", None),
            &["alert bad certificate", check_tls],
        ),
        (protocol("plaintext"), &["Disconnected", check_protocol]),
        (protocol("sasl_plaintext"), &["Disconnected", check_protocol]),
        (protocol("ssl"), &[check_protocol]),
    ];
    std::thread::scope(|scope| {
        for (login, says) in &cases {
            scope.spawn(|| assert_told(&mill, login, says));
        }
    });
}

#[test]
fn a_login_that_cannot_be_is_a_mistake_in_the_configuration() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("no-login").client(&broker.admin()).without_topics();
    let login = Login::sasl(broker, "GSSAPI", "admin");
    let (check, worker) = (login.run(&mill, &["check"]).expect(2), login.run(&mill, &["worker"]).expect(2));
    assert!(check.stdout.starts_with("configuration: kafka.properties: refused"), "{}", check.stdout);
    let said = worker.stderr.lines().any(|line| line.starts_with("error: kafka.properties: refused"));
    assert!(said, "{}", worker.stderr);
}

#[test]
fn a_worker_that_is_not_let_in_waits_until_it_is() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("late-login").client(&broker.admin()).without_topics();
    make_topics(broker, &mill);
    let name = format!("{}-late", mill.id);
    let login = Login::sasl(broker, "SCRAM-SHA-256", &name);
    let mut running = login.spawn(&mill, &["worker"]);
    running.wait_for_log("invalid credentials with SASL mechanism SCRAM-SHA-256");
    broker.grant(&login.principal, &worker(&mill));
    broker.add_user(&name);
    running.wait_for_log("partition ready");
}
