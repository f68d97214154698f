//! One call, on a clock that stands still until nothing else can happen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tool::{Registry, Retry, RetryWait, Spec, Tool, macro_support};
use crate::turn::{Position, SessionId, TurnId};

type Behaviour = Box<dyn Fn(ToolContext) -> BoxFuture<'static, Result<Output, ToolError>> + Send + Sync>;

/// A tool that notes its attempts and does what the test says.
struct Probe {
    spec: Spec,
    behaviour: Behaviour,
    attempts: Arc<Mutex<Vec<(u32, String)>>>,
}

#[async_trait]
impl Tool for Probe {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }

    async fn call(&self, context: &ToolContext, _: Value) -> Result<Output, ToolError> {
        self.attempts.lock().unwrap().push((context.attempt(), context.idempotency_key().into()));
        (self.behaviour)(context.clone()).await
    }
}

const LIMIT: Duration = Duration::from_secs(10);

struct Call {
    tool: Arc<Registered>,
    attempts: Arc<Mutex<Vec<(u32, String)>>>,
    cancelled: CancellationToken,
}

impl Call {
    fn new<F>(
        change: impl Fn(&mut Spec),
        behaviour: impl Fn(ToolContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Output, ToolError>> + Send + 'static,
    {
        let mut spec = Spec::new("probe", "A tool.", json!({"type": "object"}));
        spec.timeout = LIMIT;
        change(&mut spec);
        let attempts = Arc::default();
        let behaviour: Behaviour = Box::new(move |context| Box::pin(behaviour(context)));
        let mut registry = Registry::new();
        registry.register(Arc::new(Probe { spec, behaviour, attempts: Arc::clone(&attempts) })).unwrap();
        let tool = Arc::clone(registry.get("probe").unwrap());
        Self { tool, attempts, cancelled: CancellationToken::new() }
    }

    fn retrying<F>(
        retry: impl Into<Retry>,
        behaviour: impl Fn(ToolContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Output, ToolError>> + Send + 'static,
    {
        let retry = retry.into();
        Self::new(|spec| spec.retry = retry, behaviour)
    }

    async fn run(&self, first_attempt: u32) -> Execution {
        let (session, turn) = (SessionId::new("s").unwrap(), TurnId::new("t").unwrap());
        let context = ToolContext::builder(session, turn, &Position::call(0, 0))
            .timeout(self.tool.spec.timeout)
            .cancelled(self.cancelled.clone())
            .build();
        execute(&self.tool, &context, json!({}), first_attempt).await
    }

    /// The numbers of the attempts so far; all under one key.
    fn attempts(&self) -> Vec<u32> {
        let attempts = self.attempts.lock().unwrap();
        assert!(attempts.iter().all(|(_, key)| key == "s/t/m0.c0"), "{attempts:?}");
        attempts.iter().map(|(number, _)| *number).collect()
    }
}

fn failure(execution: &Execution) -> (&str, &str) {
    let failure = execution.result.as_ref().unwrap_err();
    (&failure.code, &failure.message)
}

fn done() -> Result<Output, ToolError> {
    Output::of(&"done")
}

#[tokio::test(start_paused = true)]
async fn a_retryable_error_is_tried_again_as_often_as_the_tool_says_and_without_a_wait() {
    for retry in [0, 1, 3] {
        let call = Call::retrying(retry, |context| async move {
            Err(ToolError::retryable(format!("attempt {}", context.attempt())))
        });
        let began = Instant::now();
        let execution = call.run(1).await;
        assert_eq!(call.attempts(), (1..=retry + 1).collect::<Vec<_>>());
        assert_eq!(execution.attempts, retry + 1);
        assert_eq!(failure(&execution), (code::TOOL_ERROR, format!("attempt {}", retry + 1).as_str()));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_success_is_the_last_attempt() {
    let call = Call::retrying(5, |context| async move {
        if context.attempt() < 3 { Err(ToolError::retryable("not yet")) } else { done() }
    });
    let execution = call.run(1).await;
    assert_eq!(execution.result.unwrap().as_json(), "\"done\"");
    assert_eq!((execution.attempts, call.attempts()), (3, vec![1, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn a_rerun_after_a_crash_counts_on_and_has_all_its_retries() {
    let call = Call::retrying(2, |_| async { Err(ToolError::retryable("no")) });
    assert_eq!(call.run(4).await.attempts, 6);
    assert_eq!(call.attempts(), [4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_can_mend_is_not_retried() {
    let cases: [(fn() -> ToolError, _, _); 4] = [
        (|| ToolError::fatal("why"), code::TOOL_FATAL, "tool probe: why"),
        (|| ToolError::poison("why"), code::POISON, "tool probe: why"),
        (|| ToolError::invalid_arguments("why"), code::INVALID_ARGUMENTS, "invalid arguments for probe: why"),
        (
            || Output::of(&f64::NAN).unwrap_err(),
            code::INVALID_RESULT,
            "the result of tool probe cannot be written as JSON: \
             it has a number that JSON cannot carry: NaN",
        ),
    ];
    for (error, code, text) in cases {
        let call = Call::retrying(5, move |_| async move { Err(error()) });
        let execution = call.run(1).await;
        assert_eq!(failure(&execution), (code, text));
        assert_eq!((execution.attempts, call.attempts()), (1, vec![1]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_attempt_and_its_text_stays_here() {
    let call = Call::retrying(1, |_| async { panic!("a secret") });
    let execution = call.run(1).await;
    assert_eq!(failure(&execution), (code::TOOL_PANICKED, "tool probe failed unexpectedly"));
    assert_eq!(call.attempts(), [1, 2]);

    let call = Call::retrying(1, |context| async move {
        assert!(context.attempt() > 1, "only the first");
        done()
    });
    assert!(call.run(1).await.result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_async_tool_that_does_not_answer_is_tried_again_each_attempt_with_its_own_limit() {
    let call = Call::retrying(2, |_| std::future::pending());
    let began = Instant::now();
    let execution = call.run(1).await;
    assert_eq!(failure(&execution), (code::TOOL_TIMEOUT, "tool probe did not answer within 10s"));
    assert_eq!(call.attempts(), [1, 2, 3]);
    assert_eq!(began.elapsed().as_secs(), 3 * LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn an_answer_just_in_time_counts_and_a_later_one_does_not() {
    for (after, answered) in [(LIMIT - Duration::from_millis(1), true), (LIMIT * 2, false)] {
        let call = Call::retrying(0, move |_| async move {
            tokio::time::sleep(after).await;
            done()
        });
        assert_eq!(call.run(1).await.result.is_ok(), answered, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_learns_that_its_time_is_over_and_the_next_one_does_not() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&told);
    let call = Call::retrying(1, move |context| {
        let note = Arc::clone(&note);
        async move {
            assert!(!context.is_cancelled(), "attempt {} began cancelled", context.attempt());
            // Work that outlives the attempt.
            let outside = context.clone();
            tokio::spawn(async move {
                outside.cancelled().await;
                note.lock().unwrap().push(outside.attempt());
            });
            if context.attempt() == 1 {
                return std::future::pending().await;
            }
            tokio::time::sleep(LIMIT / 2).await;
            assert!(!context.is_cancelled(), "the end of attempt 1 cancelled attempt 2");
            done()
        }
    });
    let running = call.run(1);
    tokio::pin!(running);
    assert!(tokio::time::timeout(LIMIT + LIMIT / 4, &mut running).await.is_err());
    assert_eq!(*told.lock().unwrap(), [1]);
    assert!(running.await.result.is_ok());
    tokio::task::yield_now().await;
    assert_eq!(*told.lock().unwrap(), [1, 2], "nobody waits for what an attempt left behind");
    assert!(!call.cancelled.is_cancelled(), "the call itself was not cancelled");
}

#[tokio::test(start_paused = true)]
async fn the_cancellation_of_the_call_reaches_its_attempt() {
    let call = Call::retrying(0, |context| async move {
        context.cancelled().await;
        Err(ToolError::retryable("cancelled"))
    });
    let token = call.cancelled.clone();
    tokio::spawn(async move {
        tokio::time::sleep(LIMIT / 2).await;
        token.cancel();
    });
    assert_eq!(failure(&call.run(1).await), (code::TOOL_ERROR, "cancelled"));
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_drops_the_tools_future() {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dropped);
    let call = Call::retrying(0, move |_| {
        let guard = OnDrop(Arc::clone(&flag));
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    assert!(tokio::time::timeout(LIMIT / 2, call.run(1)).await.is_err());
    tokio::task::yield_now().await;
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_blocking_tool_that_does_not_answer_is_not_tried_again_and_its_late_result_is_discarded() {
    let begun = Arc::new(Notify::new());
    let (release, released) = mpsc::channel::<()>();
    let (report, reported) = mpsc::channel();
    let (released, report) = (Arc::new(Mutex::new(released)), Arc::new(Mutex::new(report)));
    let on_begin = Arc::clone(&begun);
    let behaviour = move |context: ToolContext| {
        let (begun, released, report) = (Arc::clone(&on_begin), Arc::clone(&released), Arc::clone(&report));
        macro_support::blocking(move || {
            begun.notify_one();
            released.lock().unwrap().recv().unwrap();
            report.lock().unwrap().send(context.is_cancelled()).unwrap();
            done()
        })
    };
    let call = Arc::new(Call::new(
        |spec| {
            spec.retry = 5.into();
            spec.blocking = true;
        },
        behaviour,
    ));
    let running = tokio::spawn({
        let call = Arc::clone(&call);
        async move { call.run(1).await }
    });
    begun.notified().await;
    // While a thread is busy the clock does not go on by itself.
    tokio::time::advance(LIMIT + Duration::from_millis(1)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(running.is_finished(), "it is tried again: {:?}", call.attempts());
    let execution = running.await.unwrap();
    assert_eq!(failure(&execution), (code::TOOL_TIMEOUT, "tool probe did not answer within 10s"));
    assert_eq!((execution.attempts, call.attempts()), (1, vec![1]));

    release.send(()).unwrap();
    let learned = tokio::task::spawn_blocking(move || reported.recv_timeout(Duration::from_secs(60)));
    assert!(learned.await.unwrap().unwrap(), "the thread learns that nobody waits");
    assert_eq!(call.attempts(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_blocking_tool_that_fails_in_time_is_tried_again() {
    let behaviour = |context: ToolContext| {
        macro_support::blocking(move || match context.attempt() {
            1 => Err(ToolError::retryable("no")),
            2 => panic!("on its thread"),
            _ => done(),
        })
    };
    let call = Call::new(
        |spec| {
            spec.retry = 2.into();
            spec.blocking = true;
        },
        behaviour,
    );
    assert!(call.run(1).await.result.is_ok());
    assert_eq!(call.attempts(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_waits_longer_and_longer_and_the_waits_are_no_part_of_the_timeout() {
    let wait = RetryWait { initial: Duration::from_millis(800), max_delay: Duration::from_secs(600) };
    let probe = Call::retrying(Retry { max: 8, wait: Some(wait) }, |context| async move {
        if context.attempt() < 9 { Err(ToolError::retryable("not yet")) } else { done() }
    });
    let begun = Instant::now();
    let execution = probe.run(1).await;
    assert!(execution.result.is_ok() && execution.attempts == 9, "{execution:?}");
    // 0.8 s, doubled seven times, is 204 s in all, give or take a half; far more than the limit of an attempt.
    let took = begun.elapsed();
    assert!(took > LIMIT && took > Duration::from_secs(100) && took < Duration::from_secs(310), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_longer_than_the_policy_says_and_a_cancel_ends_it() {
    let wait = RetryWait { initial: Duration::from_secs(1), max_delay: Duration::from_secs(2) };
    let probe =
        Call::retrying(Retry { max: 20, wait: Some(wait) }, |_| async { Err(ToolError::retryable("no")) });
    let begun = Instant::now();
    assert_eq!(probe.run(1).await.attempts, 21);
    assert!(begun.elapsed() <= Duration::from_secs(40), "{:?}", begun.elapsed());

    let (cancelled, begun) = (probe.cancelled.clone(), Instant::now());
    let later = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancelled.cancel();
    };
    let (execution, ()) = tokio::join!(probe.run(1), later);
    assert_eq!((execution.attempts, failure(&execution).0), (1, code::TOOL_ERROR));
    assert!(begun.elapsed() < Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn the_model_and_the_operator_read_different_texts() {
    let call = Call::new(
        |_| {},
        |_| async {
            Err(ToolError::permanent("row 17 of db-3 is locked").for_model("The account is locked."))
        },
    );
    let execution = call.run(1).await;
    assert_eq!(failure(&execution), (code::TOOL_ERROR, "The account is locked."));
    assert_eq!(execution.result.unwrap_err().for_operator(), "row 17 of db-3 is locked");
    let call = Call::new(|_| {}, |_| async { Err(ToolError::fatal("db-3 is gone").for_model("closed")) });
    let failure = call.run(1).await.result.unwrap_err();
    assert_eq!((failure.code.as_ref(), failure.message.as_str()), (code::TOOL_FATAL, "tool probe: closed"));
    assert_eq!(failure.for_operator(), "db-3 is gone");
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_it_is_asked_to_unless_that_is_too_long() {
    let seconds = Duration::from_secs;
    let policy = Retry { max: 1, wait: Some(RetryWait { initial: seconds(1), max_delay: seconds(5) }) };
    for (retry, asked, attempts) in
        [(Retry::from(1), 60, 2), (Retry::from(1), 61, 1), (policy, 5, 2), (policy, 6, 1)]
    {
        let call = Call::retrying(retry, move |_| async move {
            Err(ToolError::retryable("busy").retry_after(seconds(asked)))
        });
        let began = Instant::now();
        assert_eq!(call.run(1).await.attempts, attempts, "{asked} s");
        assert_eq!(began.elapsed(), seconds(if attempts == 2 { asked } else { 0 }), "{asked} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_breaks_its_schema_is_an_error_and_is_not_tried_again() {
    let strict = |spec: &mut Spec| {
        spec.output = Some(json!({"type": "string"}));
        spec.retry = 3.into();
    };
    let call = Call::new(strict, |_| async { Output::of(&()) });
    let execution = call.run(1).await;
    assert_eq!(call.attempts(), [1]);
    let expected =
        "the result of tool probe does not hold against its schema: null is not of type \"string\"";
    assert_eq!(failure(&execution), (code::INVALID_RESULT, expected));
    assert!(Call::new(strict, |_| async { done() }).run(1).await.result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_is_not_tried_again_at_once_either() {
    let call = Call::retrying(1000, |context| async move {
        context.cancelled().await;
        Err(ToolError::retryable("given up"))
    });
    call.cancelled.cancel();
    assert_eq!(call.run(1).await.attempts, 1);
}
