//! Who is not let in at all.

use std::time::{Duration, Instant};

use super::broker::broker;
use super::roles::Login;
use super::support::Setup;

#[test]
fn who_is_not_let_in_is_told_why() {
    let Some(broker) = broker() else { return };
    let mill = Setup::stock("login").client(&broker.admin()).without_topics();
    let sasl = |mechanism| Login::sasl(broker, mechanism, "admin");
    let other_ca = broker.tls("other-ca.pem");
    let cases = [
        ("plain password", sasl("PLAIN").with("PROPERTIES__SASL_PASSWORD", Some("wrong")), ""),
        ("scram password", sasl("SCRAM-SHA-512").with("PROPERTIES__SASL_PASSWORD", Some("wrong")), ""),
        ("mechanism", sasl("GSSAPI"), ""),
        ("mechanism", sasl("OAUTHBEARER"), ""),
        ("no sasl", sasl("PLAIN").with("PROPERTIES__SECURITY_PROTOCOL", Some("ssl")), ""),
        ("no tls", sasl("PLAIN").with("PROPERTIES__SECURITY_PROTOCOL", Some("sasl_plaintext")), ""),
        ("plaintext", sasl("PLAIN").with("PROPERTIES__SECURITY_PROTOCOL", Some("plaintext")), ""),
        ("other ca", sasl("PLAIN").with("PROPERTIES__SSL_CA_LOCATION", Some(&other_ca)), ""),
        ("no ca", sasl("PLAIN").with("PROPERTIES__SSL_CA_LOCATION", None), ""),
        ("no certificate", Login::certificate(broker).with("PROPERTIES__SSL_KEYSTORE_LOCATION", None), ""),
    ];
    for (name, login, _) in cases {
        let begin = Instant::now();
        let check = login.run(&mill, &["check"]);
        eprintln!("{name}: {:?} after {:?}\n{}{}", check.code, begin.elapsed(), check.stdout, check.stderr);
        let mut worker = login.spawn(&mill, &["worker"]);
        std::thread::sleep(Duration::from_secs(10));
        eprintln!("{}\n{}", worker.running(), worker.log());
    }
}
