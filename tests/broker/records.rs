//! What Kafka delivers: records that cannot be run, odd keys, sizes.

use std::ffi::CString;

use serde_json::{Value, json};

use super::support::topic::{Record, Sent};
use super::support::{Mill, Setup, one_call, text, turn};

fn turn_of(session: &str, id: &str) -> Value {
    turn(session, id, &[text("ok")])
}

fn good(id: &str) -> Value {
    turn_of("good", id)
}

/// The dead letters so far, each checked against the record that it was.
fn dead_letters(mill: &Mill) -> Vec<Record> {
    let (dead, turns) = (mill.records("dead_letters"), mill.records("turns"));
    for letter in &dead {
        let header = |name: &str| letter.header(&format!("turnmill.original.{name}")).unwrap();
        assert_eq!(header("topic"), mill.topic("turns"));
        let number = |name: &str| header(name).parse::<i64>().unwrap();
        let original = (turns.iter())
            .find(|r| i64::from(r.partition) == number("partition") && r.offset == number("offset"))
            .unwrap();
        assert_eq!(letter.key, original.key);
        if letter.header("turnmill.original.value.sha256").is_none() {
            assert_eq!(letter.value, original.value);
        }
        assert_eq!(letter.headers[..original.headers.len()], original.headers[..]);
        assert_eq!(Some(number("timestamp")), original.timestamp);
        assert!(!letter.header("turnmill.error.message").unwrap().is_empty());
    }
    dead
}

fn codes(dead: &[Record]) -> Vec<&str> {
    let mut dead: Vec<_> = dead.iter().collect();
    let offset = |letter: &Record| letter.header("turnmill.original.offset").unwrap().parse::<i64>().unwrap();
    dead.sort_by_key(|letter| offset(letter));
    dead.iter().map(|letter| letter.header("turnmill.error.code").unwrap()).collect()
}

#[test]
fn what_cannot_be_run_goes_to_the_dead_letters_as_it_came_and_the_rest_runs() {
    let mill = Setup::stock("dead-letters").ready();
    let _worker = mill.worker();
    let deep = "[".repeat(10_000);
    let bad: [(&str, Option<&[u8]>); 8] = [
        ("null_value", None),
        ("invalid_json", Some(br#"{"turn_id": "cut-off", "agent": "support", "#)),
        ("invalid_json", Some(b"\xff\xfe")),
        ("invalid_json", Some(deep.as_bytes())),
        ("unknown_agent", Some(br#"{"turn_id": "agentless", "agent": "nobody", "input": "x"}"#)),
        ("invalid_turn", Some(br#"{"turn_id": "inputless", "session_id": "s", "agent": "support"}"#)),
        ("invalid_turn", Some(br#"{"turn_id": "a b", "agent": "support", "input": "x"}"#)),
        ("invalid_turn", Some(b"[]")),
    ];
    mill.send(&[good("first")]);
    for (n, (code, value)) in bad.into_iter().enumerate() {
        let headers = [("trace", code), ("trace", "twice"), ("empty", "")];
        mill.send_record(Sent { key: Some(b"\x00key\xff"), value, headers: &headers, ..Sent::default() });
        mill.send(&[good(&format!("after-{n}"))]);
    }
    mill.send(&[good("last")]);
    mill.wait_until_committed();

    let dead = dead_letters(&mill);
    assert_eq!(codes(&dead), bad.map(|(code, _)| code));
    let answers: Vec<_> = mill.records("results").iter().map(Record::json).collect();
    let failed = |turn: &str| answers.iter().find(|answer| answer["turn_id"] == turn).unwrap();
    assert_eq!(failed("agentless")["error"]["code"], "unknown_agent");
    assert_eq!(failed("inputless")["error"]["code"], "invalid_turn");
    assert_eq!(failed("inputless")["session_id"], "s");
    let completed: Vec<_> = (answers.iter())
        .filter(|answer| answer["status"] == "completed")
        .map(|answer| answer["turn_id"].as_str().unwrap())
        .collect();
    let after = (0..bad.len()).map(|n| format!("after-{n}"));
    let good: Vec<_> = ["first".into()].into_iter().chain(after).chain(["last".into()]).collect();
    assert_eq!(completed, good);
    assert_eq!(answers.len(), good.len() + 2, "somebody else was answered: {answers:?}");
}

#[test]
fn a_corrected_turn_may_use_the_id_of_its_dead_letter() {
    let mill = Setup::stock("corrected").ready();
    let _worker = mill.worker();
    let mut wrong = good("t");
    wrong["agent"] = "nobody".into();
    mill.send(&[wrong, good("t")]);
    mill.wait_until_committed();
    assert_eq!(codes(&dead_letters(&mill)), ["unknown_agent"]);
    let results: Vec<_> = mill.records("results").iter().map(|r| r.json()["status"].clone()).collect();
    assert_eq!(results, ["failed", "completed"]);
}

#[test]
fn a_key_that_is_no_text_names_a_session_in_hex() {
    let mill = Setup::stock("binary-key").ready();
    let _worker = mill.worker();
    let keyed = |id: &str, key: &[u8]| {
        let mut turn = one_call("", id, "echo", json!({"text": "hi"}));
        turn.as_object_mut().unwrap().remove("session_id");
        let value = turn.to_string();
        mill.send_record(Sent { key: Some(key), value: Some(value.as_bytes()), ..Sent::default() });
    };
    let keys: [(&str, &[u8], &str); 4] = [
        ("binary", b"\xff\xfe", "fffe"),
        ("text", "k\u{e4}se/1".as_bytes(), "k\u{e4}se/1"),
        ("nul", b"\0", "\0"),
        // As good as none.
        ("empty", b"", "empty"),
    ];
    for (id, key, _) in keys {
        keyed(id, key);
    }
    for (id, _, session) in keys {
        let result = mill.result(id);
        assert_eq!((&result["status"], &result["session_id"]), (&json!("completed"), &json!(session)));
    }
    let events = mill.events();
    assert_eq!(events.result("binary", "m0.c0")["idempotency_key"], "fffe/binary/m0.c0");
    assert_eq!(events.result("text", "m0.c0")["idempotency_key"], "k%C3%A4se%2F1/text/m0.c0");
}

#[test]
fn turns_without_a_key_or_session_run_side_by_side() {
    const COUNT: usize = 20;
    let mill = Setup::ledger("null-keys").ready();
    for n in 0..COUNT {
        // Each waits in its tool for all the others: in one lane, none would ever end.
        let mut turn = one_call("", &format!("t{n}"), "meet", json!({"count": COUNT}));
        turn.as_object_mut().unwrap().remove("session_id");
        let value = turn.to_string();
        mill.send_record(Sent { value: Some(value.as_bytes()), ..Sent::default() });
    }
    let _worker = mill.worker();
    let results = mill.results(COUNT);
    assert!(results.iter().all(|result| result["output"] == "done"));
    assert_eq!(mill.ledger().len(), COUNT, "a call ran twice");
    let events = mill.events();
    let met = (0..COUNT).all(|n| events.result(&format!("t{n}"), "m0.c0")["status"] == "ok");
    assert!(met, "a call was not met by the others");
}

#[test]
fn a_header_whose_name_is_no_text_stops_nothing() {
    let mill = Setup::stock("odd-header").ready();
    let _worker = mill.worker();
    let (topic, value) = (CString::new(mill.topic("turns")).unwrap(), good("t").to_string());
    mill.cluster.produce_with_header(&topic, c"\xff\xfe", value.as_bytes());
    assert_eq!(mill.result("t")["status"], "completed");
}

#[test]
fn a_dead_letter_too_large_for_its_topic_leaves_its_value_and_the_hash_says_what_it_was() {
    let mill = Setup::stock("large-dead-letter").ready();
    let _worker = mill.worker();
    // The client's bound is 1,000,000 bytes, the topics' 1,048,588.
    let (fits, large) = (vec![b'x'; 999_000], vec![b'y'; 1_040_000]);
    for value in [&fits, &large] {
        mill.send_record(Sent { key: Some(b"k"), value: Some(value), ..Sent::default() });
    }
    mill.send(&[good("t")]);
    assert_eq!(mill.result("t")["status"], "completed");
    mill.wait_until_committed();

    let dead = dead_letters(&mill);
    assert_eq!(codes(&dead), ["invalid_json", "invalid_json"]);
    let left_out = dead.iter().find(|letter| letter.header("turnmill.original.offset") == Some("1")).unwrap();
    assert_eq!(left_out.value, None);
    assert_eq!(left_out.header("turnmill.original.value.size"), Some("1040000"));
    // `head -c 1040000 /dev/zero | tr '\0' y | sha256sum`
    assert_eq!(left_out.header("turnmill.original.value.sha256"), Some(LARGE_SHA256));
}

const LARGE_SHA256: &str = "0152e47da7a190b64c397e9eeaf0cd9d17d523570651ab22785ce162ab88eb5e";

#[test]
fn a_key_or_header_too_large_for_any_other_topic_blocks_nothing() {
    let mill = Setup::stock("large-key").ready();
    let _worker = mill.worker();
    let large = vec![b'k'; 1_040_000];
    mill.send_record(Sent { key: Some(&large), value: Some(b"{"), ..Sent::default() });
    let header = "h".repeat(1_048_000);
    mill.send_record(Sent { value: Some(b"{"), headers: &[("large", &header)], ..Sent::default() });
    // These are turns, of sessions whose events no record would hold.
    let turn = br#"{"turn_id": "t", "agent": "support", "input": "x"}"#;
    mill.send_record(Sent { key: Some(&large), value: Some(turn), ..Sent::default() });
    mill.send(&[turn_of(&"s".repeat(500_000), "u"), good("t")]);
    assert_eq!(mill.result("t")["session_id"], "good");
    mill.wait_until_committed();
    let dead = mill.records("dead_letters");
    assert_eq!(codes(&dead), ["invalid_json", "invalid_json", "invalid_turn", "invalid_turn"]);
    assert_eq!(mill.records("results").len(), 1);
}

#[test]
fn a_turn_whose_mistake_is_large_blocks_nothing() {
    let mill = Setup::stock("large-mistake").ready();
    let _worker = mill.worker();
    // What is wrong is quoted in the reason, where each of these characters is eight.
    let mistake = "\u{200b}".repeat(300_000);
    let wrong = json!({"turn_id": "wrong", "agent": "support", "input": "x", "metadata": mistake});
    mill.send(&[wrong, good("t")]);
    assert_eq!(mill.result("t")["status"], "completed");
    assert_eq!(mill.result("wrong")["error"]["code"], "invalid_turn");
    mill.wait_until_committed();
    let dead = dead_letters(&mill);
    assert_eq!(codes(&dead), ["invalid_turn"]);
    assert!(dead[0].value.is_some(), "the value fits");
}

#[test]
fn turns_of_an_aborted_transaction_never_run_and_its_marks_stop_nothing() {
    let mill = Setup::stock("transactions").ready();
    let _worker = mill.worker();
    for (id, commit) in [("committed", true), ("aborted", false), ("committed-too", true)] {
        mill.cluster.produce_in_transaction(&mill.topic("turns"), good(id).to_string().as_bytes(), commit);
    }
    mill.send(&[good("last")]);
    mill.wait_until_committed();
    let turns: Vec<_> = mill.records("results").iter().map(|result| result.turn().1).collect();
    assert_eq!(turns, ["committed", "committed-too", "last"]);
}
