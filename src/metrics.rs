//! What Prometheus scrapes: one registry for the process, as Prometheus clients have it. Labels are bounded: agents and
//! tools by the names that they are configured under, partitions, codes, clients; never an id or a key.
//!
//! `docs/operations.md` says what each means.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::Collector;
use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// The metrics of this process.
pub(crate) fn metrics() -> &'static Metrics {
    static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &METRICS
}

/// From a millisecond to an hour: a reply that is read back, a model that thinks, a tool that takes its time.
const DURATIONS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
    3600.0,
];
/// From a tenth of a millisecond: acknowledgements.
const LATENCIES: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// A tool that no agent is offered: the name is the model's invention, and not bounded.
pub(crate) const UNKNOWN: &str = "unknown";

/// Every metric, registered.
pub(crate) struct Metrics {
    registry: Registry,
    pub turns: IntCounterVec,
    pub turn_duration: HistogramVec,
    pub turn_end_to_end: HistogramVec,
    pub turn_reruns: IntCounterVec,
    pub turns_skipped: IntCounter,
    pub dead_letters: IntCounterVec,
    pub steps: IntCounterVec,
    pub steps_replayed: IntCounterVec,
    pub model_calls: IntCounterVec,
    pub model_faults: IntCounterVec,
    pub model_duration: HistogramVec,
    pub model_tokens: IntCounterVec,
    pub tool_calls: IntCounterVec,
    pub tool_duration: HistogramVec,
    pub tool_attempts: IntCounterVec,
    pub tool_reruns: IntCounterVec,
    pub cache_lookups: IntCounterVec,
    pub cache_errors: IntCounterVec,
    pub status_dropped: IntCounter,
    pub in_flight: IntGauge,
    pub queued: IntGauge,
    oldest: Gauge,
    pub lag: IntGaugeVec,
    pub span: IntGaugeVec,
    pub events_behind: IntGaugeVec,
    pub restore_duration: Histogram,
    pub restored_events: IntCounter,
    pub restarts: IntCounterVec,
    pub claims_lost: IntCounter,
    pub void_events: IntCounter,
    pub transactions: IntCounterVec,
    pub transaction_duration: Histogram,
    pub append_duration: HistogramVec,
    pub commits_failed: IntCounter,
    pub brokers: IntGaugeVec,
    pub queue_messages: IntGaugeVec,
    pub queue_bytes: IntGaugeVec,
    pub poll_age: Gauge,
    running: Mutex<Running>,
}

/// When each turn that runs has begun, in the order in which they did.
#[derive(Default)]
struct Running {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

/// A turn that runs, until this is dropped.
pub(crate) struct InFlight(u64);

impl Drop for InFlight {
    fn drop(&mut self) {
        let metrics = metrics();
        metrics.running().begun.remove(&self.0);
        metrics.in_flight.dec();
    }
}

/// What makes and registers metrics. The names are constants of this file, which a test makes all of.
struct Maker(Registry);

#[allow(clippy::expect_used)]
impl Maker {
    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("a metric's name and labels are well-formed");
        self.0.register(Box::new(collector.clone())).expect("a metric's name is unique");
        collector
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn seconds(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }
}

impl Metrics {
    fn new() -> Self {
        let make = Maker(Registry::new());
        #[cfg(target_os = "linux")]
        let _ = make.0.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()));
        let info: GaugeVec = make.add(GaugeVec::new(
            Opts::new(
                "turnmill_build_info",
                "1, with the version of Turnmill that the program was built with.",
            ),
            &["version"],
        ));
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        Self {
            turns: make.counters(
                "turnmill_turns_total",
                "Turns that have ended, by agent and status; dead letters too.",
                &["agent", "status"],
            ),
            turn_duration: make.histograms(
                "turnmill_turn_duration_seconds",
                "How long turns ran in this worker, from the start of the run to its end.",
                &["agent"],
                DURATIONS,
            ),
            turn_end_to_end: make.histograms(
                "turnmill_turn_end_to_end_seconds",
                "How long turns took from the timestamp of their record to their end, waiting included.",
                &["agent"],
                DURATIONS,
            ),
            turn_reruns: make.counters(
                "turnmill_turn_reruns_total",
                "Turns that were begun again after a redelivery.",
                &["agent"],
            ),
            turns_skipped: make
                .counter("turnmill_turns_skipped_total", "Redelivered records whose turn had ended before."),
            dead_letters: make.counters(
                "turnmill_dead_letters_total",
                "Records that went to the dead letters, by code.",
                &["code"],
            ),
            steps: make.counters("turnmill_steps_total", "Steps that were not on the log, by kind: replies that were asked for, calls that ran or were refused.", &["kind"]),
            steps_replayed: make.counters(
                "turnmill_steps_replayed_total",
                "Steps that were returned from the log instead of run, by kind: model and tool calls saved.",
                &["kind"],
            ),
            model_calls: make.counters(
                "turnmill_model_calls_total",
                "Calls of models, by agent and status (ok, error, cut_short by a cancel, a deadline or a drain).",
                &["agent", "status"],
            ),
            model_faults: make.counters(
                "turnmill_model_faults_total",
                "Requests to providers of models that came to nothing, by provider and code; those that were made again too.",
                &["provider", "code"],
            ),
            model_duration: make.histograms(
                "turnmill_model_call_duration_seconds",
                "How long models took to reply.",
                &["agent"],
                DURATIONS,
            ),
            model_tokens: make.counters(
                "turnmill_model_tokens_total",
                "Tokens that models read (input) and wrote (output).",
                &["agent", "direction"],
            ),
            tool_calls: make.counters(
                "turnmill_tool_calls_total",
                "Calls of tools, by tool and status (ok, error); refused ones too.",
                &["tool", "status"],
            ),
            tool_duration: make.histograms(
                "turnmill_tool_call_duration_seconds",
                "How long calls of tools took, retries and the waits between them included.",
                &["tool"],
                DURATIONS,
            ),
            tool_attempts: make.counters(
                "turnmill_tool_attempts_total",
                "Runs of tools: more than calls where tools are tried again.",
                &["tool"],
            ),
            tool_reruns: make.counters(
                "turnmill_tool_reruns_total",
                "Calls that had started before, in a worker that died or gave them up, and run again under their keys.",
                &["tool"],
            ),
            cache_lookups: make.counters(
                "turnmill_tool_cache_lookups_total",
                "Calls of tools that keep their results, by whether one was there: `hit` or `miss`.",
                &["tool", "outcome"],
            ),
            cache_errors: make.counters(
                "turnmill_cache_errors_total",
                "Times that the cache's store was unavailable: `get`, `set` or `remove`. Calls ran as if there were none.",
                &["operation"],
            ),
            status_dropped: make.counter(
                "turnmill_status_dropped_total",
                "Status of tools that did not reach its topic: too much at once, or no brokers.",
            ),
            in_flight: make.gauge("turnmill_turns_in_flight", "Turns that run now."),
            queued: make.gauge("turnmill_turns_queued", "Turns that were read and wait for their lane or for room."),
            oldest: make.seconds(
                "turnmill_oldest_turn_age_seconds",
                "How long the oldest turn that runs now has been running.",
            ),
            lag: make.gauges(
                "turnmill_partition_lag_records",
                "Records of a turns partition from its watermark to its end: not finished yet.",
                &["partition"],
            ),
            span: make.gauges(
                "turnmill_partition_span_records",
                "Records between a partition's watermark and where it is read; intake pauses at the bound.",
                &["partition"],
            ),
            events_behind: make.gauges(
                "turnmill_partition_events_behind",
                "Offsets of an events partition that a restore would read.",
                &["partition"],
            ),
            restore_duration: make.histogram(
                "turnmill_restore_duration_seconds",
                "How long partitions took from their assignment until their records could come.",
                DURATIONS,
            ),
            restored_events: make
                .counter("turnmill_restored_events_total", "Events that were read to restore partitions."),
            restarts: make.counters(
                "turnmill_partition_restarts_total",
                "Partitions that were taken over again in place, by reason: another claim, or a log that could not be written or read.",
                &["reason"],
            ),
            claims_lost: make.counter(
                "turnmill_claims_lost_total",
                "Partitions that another worker claimed while this one wrote to them.",
            ),
            void_events: make.counter(
                "turnmill_void_events_total",
                "Events that were read and do not count: written by a worker that had lost the partition.",
            ),
            transactions: make.counters(
                "turnmill_transactions_total",
                "Transactions of results, by outcome: committed, aborted (a record was too large, the rest goes into the next), failed.",
                &["outcome"],
            ),
            transaction_duration: make.histogram(
                "turnmill_transaction_duration_seconds",
                "How long transactions took, whatever came of them.",
                LATENCIES,
            ),
            append_duration: make.histograms(
                "turnmill_append_duration_seconds",
                "How long records took to be acknowledged or to fail, by what they are: events, results (outside of transactions).",
                &["client"],
                LATENCIES,
            ),
            commits_failed: make
                .counter("turnmill_offset_commits_failed_total", "Commits of offsets that failed and are tried again."),
            brokers: make.gauges(
                "turnmill_kafka_brokers",
                "Brokers that a client is connected to (up) and those that it wants to be and is not (down).",
                &["client", "state"],
            ),
            queue_messages: make.gauges(
                "turnmill_kafka_queue_messages",
                "Records in the queues of a client of librdkafka: to be sent, or read ahead.",
                &["client"],
            ),
            queue_bytes: make.gauges(
                "turnmill_kafka_queue_bytes",
                "Their bytes.",
                &["client"],
            ),
            poll_age: make.seconds(
                "turnmill_poll_age_seconds",
                "How long ago the poll thread of the consumer last went round.",
            ),
            running: Mutex::default(),
            registry: make.0,
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn begins to run.
    pub(crate) fn begin_turn(&self) -> InFlight {
        let mut running = self.running();
        let id = running.next;
        running.next += 1;
        running.begun.insert(id, Instant::now());
        self.in_flight.inc();
        InFlight(id)
    }

    /// A partition is not ours any more: its series end.
    pub(crate) fn forget_partition(&self, partition: i32) {
        let partition = partition.to_string();
        for gauges in [&self.lag, &self.span, &self.events_behind] {
            let _ = gauges.remove_label_values(&[&partition]);
        }
    }

    /// Everything, in Prometheus's text format.
    ///
    /// # Errors
    /// The encoder's; none is known.
    pub(crate) fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let oldest = self.running().begun.values().next().map(Instant::elapsed);
        self.oldest.set(oldest.unwrap_or(Duration::ZERO).as_secs_f64());
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_turn_is_the_one_that_began_first() {
        let first = metrics().begin_turn();
        let second = metrics().begin_turn();
        drop(first);
        let begun = metrics().running().begun.clone();
        assert!(begun.contains_key(&second.0) && begun.keys().next() <= Some(&second.0));
        let text = String::from_utf8(metrics().text().unwrap()).unwrap();
        assert!(text.contains("\nturnmill_oldest_turn_age_seconds "), "{text}");
    }
}
