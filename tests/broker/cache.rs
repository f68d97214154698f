//! Results that calls leave for other calls: in the memory of a worker, and in Redis for all of them.

mod redis;

use redis::Redis;
use serde_json::{Value, json};

use super::admin::{admin, metric};
use super::support::checks::runs_of;
use super::support::{Mill, Setup, call, calls, text, turn, until};

fn quote(arguments: Value) -> Value {
    call("quote", arguments)
}

/// Cost, cache hit and attempts of a call, as its result says.
fn account(mill: &Mill, turn: &str, position: &str) -> (Value, Value, Value) {
    let events = mill.events();
    let result = events.result(turn, position);
    (result["cost"].clone(), result["cache_hit"].clone(), result["attempts"].clone())
}

#[test]
fn calls_with_the_same_arguments_run_a_tool_once_and_each_has_its_events() {
    let mill = Setup::ledger("cache").ready();
    let worker = mill.ready_worker();
    let same = [
        quote(json!({"to": "Bern", "kg": 2})),
        quote(json!({"kg": 2, "to": "Bern"})),
        quote(json!({"kg": 2, "express": false, "to": "Bern"})),
    ];
    let one = quote(json!({"to": "Bern", "kg": 2, "express": true}));
    mill.send(&[turn("s", "t1", &[calls(&same), calls(&[one, same[2].clone()]), text("ok")])]);
    assert_eq!(mill.result("t1")["status"], "completed");
    mill.send(&[turn("s2", "t2", &[calls(&same[1..2]), text("ok")])]);
    assert_eq!(mill.result("t2")["status"], "completed");
    let runs: Vec<Value> =
        runs_of(&mill.ledger(), "quote").iter().map(|run| run["arguments"].clone()).collect();
    assert_eq!(runs.len(), 2, "{runs:?}");

    let (ran, hit) = ((json!("0.0020"), json!(false), json!(1)), (json!("0"), json!(true), json!(0)));
    let accounts = ["m0.c0", "m0.c1", "m0.c2"].map(|position| account(&mill, "t1", position));
    assert_eq!(accounts.iter().filter(|account| **account == ran).count(), 1, "{accounts:?}");
    assert_eq!(accounts.iter().filter(|account| **account == hit).count(), 2, "{accounts:?}");
    assert_eq!(account(&mill, "t1", "m1.c0"), ran);
    assert_eq!(account(&mill, "t1", "m1.c1"), hit);
    assert_eq!(account(&mill, "t2", "m0.c0"), hit);
    let events = mill.events();
    assert_eq!(events.types_at("t2", "m0.c0"), ["tool:start", "tool:result"]);
    let (first, second) = (events.result("t1", "m0.c0"), events.result("t2", "m0.c0"));
    assert_eq!(first["output"], second["output"]);
    assert_eq!(second["deterministic"], true);
    assert_eq!(second["external_io_mode"], "runtime_recorded");
    assert_eq!(second["idempotency_key"], "s2/t2/m0.c0");

    let lookups = |outcome: &str| {
        let series = format!(r#"turnmill_tool_cache_lookups_total{{outcome="{outcome}",tool="quote"}}"#);
        metric(&admin(&worker), &series)
    };
    assert_eq!((lookups("miss"), lookups("hit")), (Some(2.0), Some(4.0)));
}

#[test]
fn workers_share_results_in_redis_and_go_on_without_it() {
    let mut redis = Redis::start();
    let cache =
        format!("[cache]\nredis_url = \"{}\"\nkey_prefix = \"shop\"\ntimeout = \"250ms\"", redis.url());
    let mill = Setup::ledger("redis").more(&cache).ready();
    assert!(mill.run(&["check"]).expect(0).stdout.contains("everything is right"));
    let run = |id: &str| {
        mill.send(&[turn("s", id, &[calls(&[quote(json!({"to": "Bern", "kg": 1}))]), text("ok")])]);
        assert_eq!(mill.result(id)["status"], "completed");
        account(&mill, id, "m0.c0").1
    };
    let worker = mill.ready_worker();
    assert_eq!(run("first"), false);
    assert_eq!(run("again"), true);
    let keys = redis.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys[0].starts_with("shop:result:quote:"), "{keys:?}");
    assert_eq!(keys[1], "shop:tool:quote:asked");
    let left: u64 = redis.ask(&["PTTL", &keys[0]]);
    assert!((1..=3_600_000).contains(&left), "{left}");
    worker.terminate().expect(0);

    let worker = mill.ready_worker();
    assert_eq!(run("another"), true);
    // It hangs: the call waits for it, no longer than it may, and runs.
    redis.freeze(true);
    assert_eq!(run("frozen"), false);
    redis.freeze(false);
    redis.kill();
    assert_eq!(run("gone"), false);
    let errors = metric(&admin(&worker), r#"turnmill_cache_errors_total{operation="get"}"#).unwrap();
    assert!(errors >= 2.0, "{errors}");
    let check = mill.run(&["check"]).expect(1);
    assert!(check.stdout.contains("cache: Redis (cache.redis_url) cannot be used: "), "{}", check.stdout);
    redis.again();
    // The connection comes back by itself, and then results are kept again.
    let mut number = 0;
    until("a hit", || {
        number += 1;
        (run(&format!("back-{number}")) == true).then_some(())
    });
    mill.run(&["check"]).expect(0);
    let (runs, counted) = (runs_of(&mill.ledger(), "quote").len(), number - 1);
    assert_eq!(runs, 3 + counted, "a run for each miss");
}

#[test]
fn a_redis_that_refuses_the_login_costs_hits_and_no_turn() {
    let redis = Redis::start();
    let _: () = redis.ask(&["CONFIG", "SET", "requirepass", "secret"]);
    let wrong = redis.url().replace("redis://", "redis://:hunter2@");
    let mill = Setup::ledger("redis-login").more(&format!("[cache]\nredis_url = \"{wrong}\"")).ready();
    let worker = mill.ready_worker();
    let twice = [
        calls(&[quote(json!({"to": "Bern", "kg": 1}))]),
        calls(&[quote(json!({"to": "Bern", "kg": 1}))]),
        text("ok"),
    ];
    mill.send(&[turn("s", "t", &twice)]);
    assert_eq!(mill.result("t")["status"], "completed");
    assert_eq!(runs_of(&mill.ledger(), "quote").len(), 2);
    assert!(worker.log().contains("the cache is unavailable"), "{}", worker.log());
    assert!(!worker.log().contains("hunter2"), "{}", worker.log());
    let check = mill.run(&["check"]).expect(1);
    assert!(!check.stdout.contains("hunter2"), "{}", check.stdout);
}

#[test]
fn a_redis_behind_tls_is_used_by_who_trusts_it() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::with_tls(folder.path());
    let url = redis.url().replace("redis://", "rediss://");
    let mill = Setup::ledger("redis-tls").more(&format!("[cache]\nredis_url = \"{url}\"")).ready();
    let trusting = ("SSL_CERT_FILE".to_owned(), folder.path().join("ca.pem").to_str().unwrap().to_owned());
    mill.spawn_with(std::slice::from_ref(&trusting), &["check"]).wait().expect(0);
    let check = mill.run(&["check"]).expect(1);
    assert!(check.stdout.contains("cache: Redis (cache.redis_url) cannot be used: "), "{}", check.stdout);
    let worker = mill.spawn_with(&[trusting], &["worker"]);
    let twice = [(); 2].map(|()| calls(&[quote(json!({"to": "Bern", "kg": 1}))]));
    mill.send(&[turn("s", "t", &[&twice[..], &[text("ok")]].concat())]);
    assert_eq!(mill.result("t")["status"], "completed");
    assert_eq!(account(&mill, "t", "m1.c0").1, true);
    worker.terminate().expect(0);
}

#[test]
fn a_redis_user_needs_no_more_rights_than_the_documentation_says() {
    let redis = Redis::start();
    let rights =
        ["ACL", "SETUSER", "turnmill", "on", ">secret", "~turnmill:*", "+get", "+set", "+del", "+ping"];
    let _: () = redis.ask(&rights);
    let url = redis.url().replace("redis://", "redis://turnmill:secret@");
    let mill = Setup::ledger("redis-rights").more(&format!("[cache]\nredis_url = \"{url}\"")).ready();
    mill.run(&["check"]).expect(0);
    let worker = mill.ready_worker();
    let twice = [(); 2].map(|()| calls(&[quote(json!({"to": "Bern", "kg": 1}))]));
    mill.send(&[turn("s", "t", &[&twice[..], &[text("ok")]].concat())]);
    assert_eq!(mill.result("t")["status"], "completed");
    assert_eq!(account(&mill, "t", "m1.c0").1, true);
    assert!(!worker.log().contains("the cache is unavailable"), "{}", worker.log());
}
