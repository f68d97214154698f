//! What is larger than a record may be: a failure that says so, and never a turn that cannot end.

use super::outside::HUGE;
use super::shapes::{NEW, calling, done};
use super::*;
use crate::record::dead_letter;

/// Lengths of a text around the one at which an event of it is too large.
fn around_the_bound() -> impl Iterator<Item = usize> {
    let max = MemoryLog::default().max_record_bytes();
    (max - 1200..max + 100).step_by(40)
}

/// Whatever the length, the turn ends, and its end is on the log once.
async fn ends(shape: &Shape, length: usize) -> World {
    let world = World::new(shape);
    let delivered = world.deliver(world.log.clone()).await;
    assert!(delivered.is_finished(), "{} of {length} bytes: {delivered:?}", shape.name);
    assert_eq!(world.facts().ends, 1, "{} of {length} bytes", shape.name);
    world
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_goes_to_the_model_as_an_error_that_says_how_large() {
    let shape = Shape::calling("huge", &[("huge", NEW)]);
    let world = World::finished(&shape).await;
    world.check(&world.result(), "huge");
    let events = world.log.events();
    let result = events.iter().find(|event| event.kind == EventType::ToolResult).unwrap();
    let failure = result.error.clone().unwrap();
    assert_eq!((failure.code.as_ref(), result.status), (code::RESULT_TOO_LARGE, Some(Status::Error)));
    assert!(failure.message.contains("huge") && failure.message.contains("at most 100000"), "{failure}");
    assert!(result.output.is_none());
    let told = world.outside.last_transcript().pop().unwrap();
    assert!(
        matches!(&told, Message::Tool { content, is_error: true, .. } if *content == failure.message),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_too_large_fails_the_turn_and_stays_failed() {
    let reply = Reply { text: Some("x".repeat(HUGE)), ..Reply::default() };
    let shape = Shape::new("huge", [shapes::Say::Reply(reply)], Err(code::RECORD_TOO_LARGE), (0, 0));
    let world = World::finished(&shape).await;
    world.check(&world.result(), "huge");
    let first = world.result().error;
    let events = world.log.events();
    world.log.truncate(events.iter().position(|event| event.kind == EventType::TurnOutput).unwrap());
    world.outside.forget();
    world.finish().await;
    assert_eq!(world.result().error, first);
    assert_eq!(world.outside.asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_length_of_an_answer_keeps_a_turn_from_ending() {
    for length in around_the_bound() {
        let reply = Reply { text: Some("x".repeat(length)), ..Reply::default() };
        ends(&Shape::new("an answer", [shapes::Say::Reply(reply)], Ok(""), (1, 0)), length).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_length_of_arguments_keeps_a_turn_from_ending() {
    let mut ran = 0;
    for length in around_the_bound() {
        let text = "x".repeat(length);
        let good = format!(r#"{{"text":"{text}"}}"#);
        let world = ends(&Shape::calling("arguments", &[("echo", &good)]), length).await;
        ran += world.outside.runs().len();
        ends(&Shape::calling("wrong arguments", &[("strict", &format!(r#"{{"n":"{text}"}}"#))]), length)
            .await;
        ends(&Shape::calling("no arguments", &[("echo", &text)]), length).await;
    }
    assert!(ran > 10, "some fit");
}

#[tokio::test(start_paused = true)]
async fn no_length_of_a_tools_name_keeps_a_turn_from_ending() {
    for length in around_the_bound() {
        // Nothing else is in the reply, so its event is smaller than the call's.
        let call = ReplyCall { name: "x".repeat(length), ..ReplyCall::default() };
        let reply = Reply { calls: vec![call], ..Reply::default() };
        ends(&Shape::new("a name", [shapes::Say::Reply(reply), done()], Ok("done"), (2, 1)), length).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_length_of_an_error_keeps_a_turn_from_ending() {
    for length in around_the_bound() {
        let error = shapes::Say::Error("x".repeat(length));
        ends(&Shape::new("a model's error", [error], Err(code::MODEL_ERROR), (0, 0)), length).await;
        for (tool, end) in
            [("broken", Ok("done")), ("fatal", Err(code::TOOL_FATAL)), ("poison", Err(code::POISON))]
        {
            let length = format!(r#"{{"length":{length}}}"#);
            let shape = Shape::new(tool, [calling(&[(tool, &length)]), done()], end, (1, 1));
            let world = World::finished(&shape).await;
            let code = world.result().error.map(|failure| failure.code.into_owned());
            assert_eq!(code.as_deref(), end.err(), "{tool} with {length}");
        }
    }
}

fn header(letter: &outside::Sent, name: &str) -> Option<String> {
    let (_, value) = letter.headers.iter().find(|(header, _)| header == name)?;
    Some(String::from_utf8(value.clone()?).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_too_large_goes_without_its_value_and_says_what_it_was() {
    let mut world = World::new(&Shape::new("none", [], Ok(""), (0, 0)));
    world.turn = format!(r#"{{"agent":"a","input":"x","tools":"{}"}}"#, "x".repeat(9_000)).into();
    world.outside.limit_sink(9_000);
    assert!(world.finish().await.is_finished());
    let letter = world.outside.dead_letters().remove(0);
    assert_eq!((letter.key.as_deref(), letter.value.as_ref()), (Some(&b"key"[..]), None));
    assert_eq!(header(&letter, dead_letter::VALUE_SIZE), Some(world.turn.len().to_string()));
    assert_eq!(header(&letter, dead_letter::VALUE_SHA256), Some(Hash::of_bytes(&world.turn).to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_headers_are_too_large_goes_without_them_and_says_where_it_was() {
    let mut world = World::new(&Shape::new("none", [], Ok(""), (0, 0)));
    world.turn = "{".into();
    world.own_header = Some("x".repeat(9_000).into());
    world.outside.limit_sink(9_000);
    assert!(world.finish().await.is_finished());
    let letter = world.outside.dead_letters().remove(0);
    assert_eq!((letter.key.as_ref(), letter.value.as_ref()), (None, None));
    assert_eq!(header(&letter, dead_letter::CODE).as_deref(), Some(code::INVALID_JSON));
    assert_eq!(header(&letter, dead_letter::OFFSET).as_deref(), Some("7"));
    assert!(!letter.headers.iter().any(|(name, _)| name == "own"));
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_quotes_a_large_record_does_not_keep_it_from_the_dead_letters() {
    for field in ["tools", "agent", "metadata", "input"] {
        let mut world = World::new(&Shape::new("none", [], Ok(""), (0, 0)));
        let quoted = "\\\"\\n".repeat(30_000);
        let fields = ["agent", "input", "tools", "metadata"].map(|name| match name == field {
            true => format!(r#""{name}":"{quoted}""#),
            false => format!(r#""{name}":1"#),
        });
        world.turn = format!("{{{},\"turn_id\":\"t-1\"}}", fields.join(",")).into();
        world.outside.limit_sink(100_000);
        let delivered = world.deliver(world.log.clone()).await;
        assert!(delivered.is_finished(), "{field}: {delivered:?}");
        assert_eq!(world.outside.dead_letters().len(), 1, "{field}");
        assert_eq!(world.result().error.unwrap().code, code::INVALID_TURN, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_its_topic_does_not_take_is_a_failed_one_that_says_how_large() {
    let reply = Reply { text: Some("x".repeat(5_000)), ..Reply::default() };
    let world = World::new(&Shape::new("long", [shapes::Say::Reply(reply), done()], Ok(""), (1, 0)));
    world.outside.limit_sink(2_000);
    assert!(world.finish().await.is_finished());
    let result = world.result();
    let failure = result.error.unwrap();
    assert_eq!((result.status, failure.code.as_ref()), (TurnStatus::Failed, code::RECORD_TOO_LARGE));
    assert!(failure.message.contains("5"), "{failure}");
    assert_eq!(result.output, None);
}
