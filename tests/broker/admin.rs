//! What those who run a worker see and do: metrics, health, logs, switches.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::support::checks::runs_of;
use super::support::http::get;
use super::support::process::Process;
use super::support::{Mill, Setup, call, calls, one_call, text, turn, until};

/// Where a worker's admin server listens.
pub fn admin(worker: &Process) -> String {
    until("the address of the admin server", || {
        let line =
            |text: &str| serde_json::from_str::<Value>(text).ok()?["listen"].as_str().map(str::to_owned);
        worker.log().lines().find_map(line)
    })
}

fn health(address: &str, path: &str) -> (u16, String) {
    get(address, path).unwrap_or_else(|| panic!("{address}{path} does not answer"))
}

pub fn wait_until_ready(address: &str) {
    until("readiness", || (health(address, "/readyz").0 == 200).then_some(()));
}

/// The value of a series, `name{label="value"}`, if it is there.
pub fn metric(address: &str, series: &str) -> Option<f64> {
    let (status, text) = health(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value)
}

fn wait_for_metric(address: &str, series: &str, value: f64) {
    until(&format!("{series} {value}"), || (metric(address, series) == Some(value)).then_some(()));
}

#[test]
fn what_a_worker_does_is_counted() {
    let mill = Setup::ledger("metrics").ready();
    let worker = mill.ready_worker();
    let address = admin(&worker);
    let gate = json!({"file": "open"});
    let flaky = calls(&[call("flaky", json!({"fail_times": 0})), call("nope", json!({}))]);
    mill.send(&[
        turn("s1", "t1", &[calls(&[call("gate", gate)]), flaky, text("ok")]),
        turn("s1", "t2", &[text("waits for t1")]),
        turn("s2", "t3", &[calls(&[call("fatal", json!({"text": "x"}))])]),
    ]);
    mill.send_record(super::support::topic::Sent { value: Some(b"no json"), ..Default::default() });
    mill.wait_for_runs("gate", 1);
    mill.result("t3");
    for (series, value) in [
        ("turnmill_turns_in_flight", 1.0),
        ("turnmill_turns_queued", 1.0),
        (r#"turnmill_partition_span_records{partition="0"}"#, 4.0),
        (r#"turnmill_partition_lag_records{partition="0"}"#, 4.0),
        (r#"turnmill_dead_letters_total{code="invalid_json"}"#, 1.0),
        (r#"turnmill_turns_total{agent="support",status="failed"}"#, 1.0),
        (r#"turnmill_turns_total{agent="unknown",status="dead_letter"}"#, 1.0),
    ] {
        wait_for_metric(&address, series, value);
    }
    assert!(metric(&address, "turnmill_oldest_turn_age_seconds").unwrap() > 0.0);
    assert!(metric(&address, r#"turnmill_kafka_brokers{client="turns",state="up"}"#).unwrap() >= 1.0);
    worker.kill();

    // The next one takes its reply from the log and runs the tool again.
    fs::write(mill.path().join("open"), "").unwrap();
    let worker = mill.ready_worker();
    let address = admin(&worker);
    mill.result("t2");
    mill.wait_until_committed();
    for (series, value) in [
        (r#"turnmill_turns_total{agent="support",status="completed"}"#, 2.0),
        (r#"turnmill_turn_reruns_total{agent="support"}"#, 1.0),
        (r#"turnmill_steps_replayed_total{kind="model"}"#, 1.0),
        (r#"turnmill_tool_reruns_total{tool="gate"}"#, 1.0),
        (r#"turnmill_tool_calls_total{status="error",tool="unknown"}"#, 1.0),
        (r#"turnmill_tool_calls_total{status="ok",tool="flaky"}"#, 1.0),
        (r#"turnmill_model_calls_total{agent="support",status="ok"}"#, 3.0),
        ("turnmill_turns_skipped_total", 2.0),
        ("turnmill_turns_in_flight", 0.0),
        ("turnmill_turns_queued", 0.0),
        ("turnmill_restore_duration_seconds_count", 1.0),
        (r#"turnmill_partition_lag_records{partition="0"}"#, 0.0),
    ] {
        wait_for_metric(&address, series, value);
    }
    let (_, all) = health(&address, "/metrics");
    for id in ["s1", "t1", "m0.c0"] {
        assert!(!all.contains(&format!("{id:?}")), "an id is a label: {id}");
    }
}

/// A Prometheus that scrapes this address.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder of Prometheus's programs.
fn prometheus() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/prometheus");
    let found = Command::new(script).output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

#[test]
fn prometheus_scrapes_a_worker_and_its_tool_finds_nothing_to_say() {
    let mill = Setup::ledger("prometheus").ready();
    let worker = mill.ready_worker();
    let address = admin(&worker);
    mill.send(&[one_call("s", "t", "note", json!({"text": "x"}))]);
    mill.result("t");
    mill.wait_until_committed();

    let bin = prometheus();
    let scraped = mill.path().join("metrics");
    fs::write(&scraped, health(&address, "/metrics").1).unwrap();
    let mut check = Command::new(format!("{bin}/promtool"));
    let checked = check.args(["check", "metrics"]).stdin(fs::File::open(&scraped).unwrap()).output().unwrap();
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));

    let config = mill.path().join("prometheus.yml");
    let targets = format!(
        "global: {{scrape_interval: 200ms}}\nscrape_configs: [{{job_name: turnmill, static_configs: [{{targets: [{address:?}]}}]}}]\n"
    );
    fs::write(&config, targets).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let _prometheus = Prometheus(
        Command::new(format!("{bin}/prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", mill.path().join("tsdb").display()))
            .arg(format!("--web.listen-address={listen}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let value = |query: &str| {
        let (_, body) = get(&listen, &format!("/api/v1/query?query={query}"))?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    for (query, expected) in [
        ("up", "1"),
        ("sum(turnmill_turns_total)", "1"),
        ("sum(turnmill_partition_lag_records)", "0"),
        ("sum(turnmill_turn_duration_seconds_count)", "1"),
    ] {
        let mut last = None;
        until(&format!("{query} to be {expected}"), || {
            last = value(query);
            (last.as_deref() == Some(expected)).then_some(())
        });
    }
}

#[test]
fn a_worker_is_alive_without_brokers_and_ready_once_it_has_restored_its_partitions() {
    // Nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let lonely = Setup::ledger("lonely").brokers(&free.to_string()).without_topics();
    let worker = lonely.worker();
    let address = admin(&worker);
    assert_eq!(health(&address, "/livez"), (200, "ok\n".into()));
    assert_eq!(health(&address, "/readyz"), (503, "has not joined its group yet\n".into()));
    assert_eq!(health(&address, "/nothing").0, 404);
    drop(worker);

    let mill = Setup::ledger("health").ready();
    let first = mill.ready_worker();
    let address = admin(&first);
    wait_until_ready(&address);
    // There is no partition for it, and that is how it is to be.
    let second = mill.worker();
    wait_until_ready(&admin(&second));
    drop(second);

    mill.send(&[one_call("s", "t", "gate", json!({"file": "open"}))]);
    mill.wait_for_runs("gate", 1);
    first.signal("TERM");
    until("the drain", || (health(&address, "/readyz") == (503, "draining\n".into())).then_some(()));
    assert_eq!(health(&address, "/livez").0, 200);
    fs::write(mill.path().join("open"), "").unwrap();
    first.wait().expect(0);
}

#[test]
fn an_admin_address_that_is_taken_stops_a_worker_that_was_told_to_use_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mill = Setup::ledger("taken").ready();
    mill.reconfigure("listen = \"127.0.0.1:0\"", &format!("listen = \"{}\"", taken.local_addr().unwrap()));
    let refused = mill.run(&["worker"]).expect(2);
    assert!(refused.stderr.contains("[admin] listen"), "{}", refused.stderr);
}

#[test]
fn a_worker_whose_admin_address_nobody_asked_for_goes_without_where_it_is_taken() {
    // Whoever has it, it is taken.
    let _taken = std::net::TcpListener::bind("127.0.0.1:9464");
    let mill = Setup::ledger("without-admin").ready();
    mill.reconfigure("[admin]\nlisten = \"127.0.0.1:0\"\n", "");
    let worker = mill.ready_worker();
    mill.send(&[turn("s", "t", &[text("ok")])]);
    mill.result("t");
    let log = worker.log();
    assert!(log.contains("no admin server") && log.contains("127.0.0.1:9464"), "{log}");
}

#[test]
fn every_line_about_a_turn_names_it() {
    let mill = Setup::ledger("lines").ready();
    let worker = mill.ready_worker();
    let flaky = calls(&[call("flaky", json!({"fail_times": 1})), call("ping", json!({}))]);
    mill.send(&[
        turn("s", "t", &[flaky, text("ok")]),
        turn("s", "u", &[calls(&[call("poison", json!({"text": "x"}))])]),
    ]);
    mill.wait_until_committed();
    let log = worker.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| {
        lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("{log}"))
    };
    for (message, turn, code) in
        [("tool failed", "t", json!("tool_error")), ("turn ended", "u", json!("poison"))]
    {
        let line = of(message);
        let span = &line["span"];
        let found = (&span["session"], &span["turn"], &span["partition"], &line["code"]);
        assert_eq!(found, (&json!("s"), &json!(turn), &json!(0), &code), "{line}");
    }
    let pinged = of("pinged");
    assert_eq!(
        (&pinged["span"]["tool"], &pinged["span"]["attempt"]),
        (&json!("ping"), &json!(1)),
        "{pinged}"
    );
    assert_eq!(
        (&pinged["spans"][0]["turn"], &pinged["spans"][0]["session"]),
        (&json!("t"), &json!("s")),
        "{pinged}"
    );
    let well = lines.iter().filter(|line| line["message"] == "turn ended" && line["span"]["turn"] == "t");
    assert_eq!(well.count(), 0, "one that ends well has no line: {log}");
    let poison = lines.iter().find(|line| line["code"] == "poison").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&poison["span"]["turn"], &poison["span"]["offset"]), (&json!("u"), &json!(1)), "{poison}");
}

/// Turns something off, or on again, in a worker that runs.
fn switch(mill: &Mill, worker: &mut Process, from: &str, to: &str, expected: &str) {
    let before = worker.log().matches("SIGHUP").count();
    mill.reconfigure(from, to);
    worker.signal("HUP");
    until("the answer to SIGHUP", || (worker.log().matches("SIGHUP").count() > before).then_some(()));
    let log = worker.log();
    assert!(log.lines().rfind(|line| line.contains("SIGHUP")).unwrap().contains(expected), "{log}");
}

const TWO: &str = "[[agents]]\nname = \"other\"\nmodel = \"scripted\"\n\n[switches]\n# nothing\n";
const NOW: &str = "turned off from now on";

#[test]
fn a_tool_that_is_turned_off_answers_the_model_until_it_is_turned_on() {
    let mill = Setup::ledger("tool-off").more(TWO).ready();
    let mut worker = mill.ready_worker();
    let noting = |id: &str| one_call("s", id, "note", json!({"text": id}));
    switch(&mill, &mut worker, "# nothing", "tools = [\"note\"]", NOW);
    mill.send(&[noting("t1")]);
    assert_eq!(mill.result("t1")["status"], "completed");
    assert_eq!(mill.events().result("t1", "m0.c0")["error"]["code"], "tool_disabled");
    switch(&mill, &mut worker, "tools = [\"note\"]", "# nothing", NOW);
    mill.send(&[noting("t2")]);
    mill.result("t2");
    assert_eq!(runs_of(&mill.ledger(), "note").len(), 1);
    worker.terminate().expect(0);
}

#[test]
fn the_turns_of_an_agent_that_is_turned_off_wait_or_are_refused_and_others_go_on() {
    let mill = Setup::ledger("agent-off").more(TWO).ready();
    let mut worker = mill.ready_worker();
    let of = |agent: &str, session: &str, id: &str| {
        let mut turn = turn(session, id, &[text("ok")]);
        turn["agent"] = json!(agent);
        turn
    };
    switch(&mill, &mut worker, "# nothing", "agents = { support = \"wait\" }", NOW);
    mill.send(&[of("support", "s", "waits"), of("other", "s", "behind"), of("other", "x", "goes-on")]);
    mill.result("goes-on");
    assert_eq!(mill.records("results").len(), 1, "an agent that is turned off ran");
    switch(&mill, &mut worker, "support = \"wait\"", "support = \"refuse\"", NOW);
    assert_eq!(mill.result("waits")["error"]["code"], "agent_disabled");
    assert_eq!(mill.result("behind")["status"], "completed", "in the order of the session");
    switch(&mill, &mut worker, "agents = { support = \"refuse\" }", "# nothing", NOW);
    mill.send(&[of("support", "s", "again")]);
    assert_eq!(mill.result("again")["status"], "completed");
    worker.terminate().expect(0);
}

#[test]
fn what_cannot_change_while_a_worker_runs_is_named_and_nothing_changes() {
    let mill = Setup::ledger("no-reload").more(TWO).ready();
    let mut worker = mill.ready_worker();
    switch(
        &mill,
        &mut worker,
        "drain_timeout = \"20s\"",
        "drain_timeout = \"21s\"",
        "[worker] cannot change",
    );
    switch(&mill, &mut worker, "drain_timeout = \"21s\"", "drain_timeout = \"20s\"", NOW);
    switch(&mill, &mut worker, "# nothing", "tools = [\"nope\"]", "no tool is called");
    switch(&mill, &mut worker, "tools = [\"nope\"]", "tools = [\"note\"", "turnmill.toml");
    mill.send(&[one_call("s", "t", "note", json!({"text": "x"}))]);
    mill.result("t");
    assert_eq!(mill.ledger().len(), 1);
    worker.terminate().expect(0);
}
