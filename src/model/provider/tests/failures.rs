//! What is tried again, where, and how often.

use std::sync::atomic::{AtomicUsize, Ordering};

use wiremock::Respond;

use super::*;

/// Answers with each of these once, then with the last.
struct Script(Vec<ResponseTemplate>, AtomicUsize);

impl Respond for Script {
    fn respond(&self, _: &wiremock::Request) -> ResponseTemplate {
        let next = self.1.fetch_add(1, Ordering::SeqCst);
        self.0[next.min(self.0.len() - 1)].clone()
    }
}

async fn plays(script: Vec<ResponseTemplate>) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(matchers::any()).respond_with(Script(script, AtomicUsize::new(0))).mount(&server).await;
    server
}

async fn asked(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

fn ok(api: Api) -> ResponseTemplate {
    streamed(sse(&whole(api, "ok", &[], StopReason::EndTurn)))
}

fn soon(status: u16) -> ResponseTemplate {
    ResponseTemplate::new(status).insert_header("retry-after-ms", "1")
}

fn patient(api: Api, server: &MockServer) -> Remote {
    remote(endpoint(api, &server.uri(), |settings| settings.max_retries = 2))
}

#[tokio::test]
async fn what_may_pass_is_asked_again_and_the_reply_says_how_often() {
    for api in SHAPES {
        let id = if api == Api::Anthropic { "request-id" } else { "x-request-id" };
        let server = plays(vec![soon(529), streamed(""), ok(api).insert_header(id, "req_7")]).await;
        let reply = ask(&patient(api, &server), &hello(), &[]).await.unwrap();
        let served = reply.served.unwrap();
        assert_eq!((served.attempts, served.request_id.as_deref()), (3, Some("req_7")), "{api:?}");
        assert_eq!(asked(&server).await, 3);
    }
}

#[tokio::test]
async fn each_status_has_its_code_and_what_cannot_pass_is_asked_once() {
    let cases = [
        (401, code::MODEL_AUTHENTICATION, 1),
        (403, code::MODEL_AUTHENTICATION, 1),
        (400, code::MODEL_REQUEST, 1),
        (404, code::MODEL_REQUEST, 1),
        (302, code::MODEL_REQUEST, 1),
        (413, code::CONTEXT_LENGTH, 1),
        (402, code::MODEL_RATE_LIMIT, 1),
        (429, code::MODEL_RATE_LIMIT, 3),
        (500, code::MODEL_OVERLOADED, 3),
        (529, code::MODEL_OVERLOADED, 3),
    ];
    for (status, code, times) in cases {
        let server = plays(vec![soon(status).insert_header("location", "http://127.0.0.1:1/")]).await;
        let failure = ask(&patient(Api::OpenAi, &server), &hello(), &[]).await.unwrap_err();
        assert_eq!((failure.code.as_ref(), asked(&server).await), (code, times), "{status}: {failure}");
    }
}

#[tokio::test]
async fn nobody_there_is_asked_again_and_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let gone = remote(endpoint(Api::OpenAi, &nobody, |settings| settings.max_retries = 2));
    let failure = ask(&gone, &hello(), &[]).await.unwrap_err();
    assert_eq!(failure.code, code::MODEL_UNREACHABLE);
    assert_eq!(failure.message, "here::m after 3 attempts: the provider was not reached");
    assert!(failure.detail.unwrap().contains("refused"));
}

#[tokio::test]
async fn a_wait_that_is_asked_for_is_kept_and_one_that_is_too_long_is_not_waited_for() {
    let server =
        plays(vec![ResponseTemplate::new(429).insert_header("retry-after", "1"), ok(Api::OpenAi)]).await;
    let begun = Instant::now();
    ask(&patient(Api::OpenAi, &server), &hello(), &[]).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));

    let server =
        plays(vec![ResponseTemplate::new(429).insert_header("retry-after", "3600"), ok(Api::OpenAi)]).await;
    let failure = ask(&patient(Api::OpenAi, &server), &hello(), &[]).await.unwrap_err();
    assert_eq!((failure.code.as_ref(), asked(&server).await), (code::MODEL_RATE_LIMIT, 1));
}

#[tokio::test]
async fn a_provider_that_is_asked_too_often_is_left_alone_by_all() {
    let server =
        plays(vec![ResponseTemplate::new(429).insert_header("retry-after", "1"), ok(Api::OpenAi)]).await;
    let endpoint = endpoint(Api::OpenAi, &server.uri(), |settings| settings.max_retries = 2);
    let (one, other) = (remote(Arc::clone(&endpoint)), remote(endpoint));
    let begun = Instant::now();
    let first = tokio::spawn(async move { ask(&one, &hello(), &[]).await.map(|_| ()) });
    while asked(&server).await == 0 {
        tokio::task::yield_now().await;
    }
    // The answer to the first is on its way to it.
    while other.candidates[0].endpoint.gate.is_open() {
        tokio::task::yield_now().await;
    }
    ask(&other, &hello(), &[]).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1), "the other has waited too");
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_next_model_is_asked_where_one_cannot_answer_and_not_where_it_will_not() {
    let second = plays(vec![ok(Api::Anthropic)]).await;
    let with = |first: &MockServer| {
        let mut both = remote(endpoint(Api::OpenAi, &first.uri(), |settings| settings.max_retries = 1));
        let endpoint = endpoint(Api::Anthropic, &second.uri(), |settings| settings.name = "second");
        both.candidates.push(Candidate { endpoint, model: "n".into(), price: None });
        both
    };
    let first = plays(vec![soon(503)]).await;
    let reply = ask(&with(&first), &hello(), &[]).await.unwrap();
    let served = reply.served.unwrap();
    assert_eq!((served.model.as_str(), served.attempts), ("second::n", 3));

    let first = plays(vec![soon(401)]).await;
    let failure = ask(&with(&first), &hello(), &[]).await.unwrap_err();
    assert_eq!((failure.code.as_ref(), asked(&second).await), (code::MODEL_AUTHENTICATION, 1));
}

#[tokio::test]
async fn what_others_were_told_is_waited_for_no_longer_than_by_oneself() {
    let first = plays(vec![ResponseTemplate::new(429).insert_header("retry-after", "3600")]).await;
    let second = plays(vec![ok(Api::Anthropic)]).await;
    let endpoint_of_first = endpoint(Api::OpenAi, &first.uri(), |_| {});
    let alone = remote(Arc::clone(&endpoint_of_first));
    let mut both = remote(endpoint_of_first);
    let other = endpoint(Api::Anthropic, &second.uri(), |settings| settings.name = "second");
    both.candidates.push(Candidate { endpoint: other, model: "n".into(), price: None });
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(ask(&both, &hello(), &[]).await.unwrap().served.unwrap().model, "second::n");
        assert_eq!(ask(&alone, &hello(), &[]).await.unwrap_err().code, code::MODEL_RATE_LIMIT);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "nobody has waited");
    assert_eq!(asked(&first).await, 1);
}

#[tokio::test]
async fn a_provider_that_says_nothing_is_not_waited_for() {
    let server = plays(vec![ok(Api::OpenAi).set_delay(Duration::from_secs(30))]).await;
    let silent =
        endpoint(Api::OpenAi, &server.uri(), |settings| settings.idle_timeout = Duration::from_millis(100));
    let failure = ask(&remote(silent), &hello(), &[]).await.unwrap_err();
    assert_eq!(failure.code, code::MODEL_UNREACHABLE);
    assert!(failure.detail.unwrap().contains("idle_timeout"));

    let slow = Remote { max_time: Duration::from_millis(100), ..patient(Api::OpenAi, &server) };
    let failure = ask(&slow, &hello(), &[]).await.unwrap_err();
    assert_eq!(failure.code, code::MODEL_TIMEOUT);
    assert!(failure.message.contains("max_reply_time"), "{failure}");
    // What the provider said before that is not for the result.
    let server = plays(vec![
        soon(500).set_body_string("org-7 is slow"),
        ok(Api::OpenAi).set_delay(Duration::from_secs(30)),
    ])
    .await;
    let slow = Remote { max_time: Duration::from_secs(3), ..patient(Api::OpenAi, &server) };
    let failure = ask(&slow, &hello(), &[]).await.unwrap_err();
    assert!(!failure.message.contains("org-7") && failure.detail.unwrap().contains("org-7"));
}

#[tokio::test]
async fn an_error_whose_text_never_ends_is_not_waited_for() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        write!(stream, "HTTP/1.1 401 X\r\ncontent-length: 100\r\n\r\nno such key").unwrap();
        // Until the other side hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let patient = endpoint(Api::OpenAi, &origin, |settings| settings.idle_timeout = Duration::from_secs(600));
    let asked =
        tokio::time::timeout(Duration::from_secs(15), async { ask(&remote(patient), &hello(), &[]).await });
    let failure = asked.await.expect("it is not waited for").unwrap_err();
    assert_eq!(failure.code, code::MODEL_AUTHENTICATION);
    assert!(failure.detail.unwrap().contains("no such key"));
}

#[tokio::test]
async fn a_key_that_a_provider_quotes_is_in_no_text() {
    let quoted = json!({"error": {"message": format!("Incorrect API key provided: {KEY}.")}});
    for api in SHAPES {
        let server = plays(vec![
            ResponseTemplate::new(401).set_body_json(&quoted),
            streamed(sse(std::slice::from_ref(&quoted))),
        ])
        .await;
        let remote = patient(api, &server);
        let failure = ask(&remote, &hello(), &[]).await.unwrap_err();
        let text = format!("{failure:?}");
        assert!(!text.contains(KEY) && text.contains("[secret]"), "{text}");
        let failure = ask(&remote, &hello(), &[]).await.unwrap_err();
        assert!(!format!("{failure:?}").contains(KEY), "{failure:?}");
    }
}

#[tokio::test]
async fn text_is_told_while_it_comes_and_anew_by_each_attempt() {
    for api in SHAPES {
        let long = "ü".repeat(20_000);
        let mut cut = whole(api, "It is", &[], StopReason::EndTurn);
        cut.truncate(if api == Api::Anthropic { 4 } else { 2 });
        let end = streamed(sse(&whole(api, &long, &[], StopReason::EndTurn)));
        let server = plays(vec![streamed(sse(&cut)), end]).await;
        let told = std::sync::Mutex::new(Vec::new());
        let hear = |attempt: u32, text: &str| told.lock().unwrap().push((attempt, text.to_owned()));
        let (messages, metadata) = (hello(), BTreeMap::new());
        let request = Request {
            agent: "a",
            reply: 0,
            messages: &messages,
            tools: &[],
            metadata: &metadata,
            listener: Listener::new(&hear),
        };
        patient(api, &server).complete(request).await.unwrap();
        let told = told.into_inner().unwrap();
        let of = |wanted: u32| -> String {
            told.iter().filter(|(attempt, _)| *attempt == wanted).map(|(_, text)| text.as_str()).collect()
        };
        assert_eq!((of(1).as_str(), of(2)), ("It is", long), "{api:?}");
        assert!(told.iter().all(|(_, text)| text.len() <= 16 << 10));
    }
}

#[tokio::test]
async fn a_reply_costs_what_its_tokens_do() {
    let price = |text: &str| text.parse().unwrap();
    let price = Price {
        input: price("3"),
        output: price("15"),
        cache_read: price("0.3"),
        cache_write: price("3.75"),
    };
    let server = server(ok(Api::Anthropic)).await;
    let mut remote = remote(endpoint(Api::Anthropic, &server.uri(), |_| {}));
    remote.candidates[0].price = Some(price);
    let reply = ask(&remote, &hello(), &[]).await.unwrap();
    // 10 tokens that no cache had, 7 written, 4 of the cache, 2 into it.
    assert_eq!(reply.cost().to_string(), "0.0001437");
}
