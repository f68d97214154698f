//! What librdkafka says of itself, as metrics.

use rdkafka::Statistics;

use crate::metrics::metrics;

/// Takes in the statistics of a client.
pub(super) fn observe(client: &str, stats: &Statistics) {
    // Those that it has only heard of, or was told to begin with, it has no connection to and needs none.
    let wanted = stats.brokers.values().filter(|broker| broker.nodeid >= 0 && broker.state != "INIT");
    let (up, down): (Vec<_>, Vec<_>) = wanted.partition(|broker| broker.state == "UP");
    let set = |state: &str, count: usize| {
        metrics().brokers.with_label_values(&[client, state]).set(i64::try_from(count).unwrap_or(i64::MAX));
    };
    set("up", up.len());
    set("down", down.len());
    let partitions = || stats.topics.values().flat_map(|topic| topic.partitions.values());
    let ahead: i64 = partitions().map(|partition| partition.fetchq_cnt).sum();
    let ahead_bytes: u64 = partitions().map(|partition| partition.fetchq_size).sum();
    let messages = i64::try_from(stats.msg_cnt).unwrap_or(i64::MAX).saturating_add(ahead);
    let bytes = stats.msg_size.saturating_add(ahead_bytes);
    metrics().queue_messages.with_label_values(&[client]).set(messages);
    metrics().queue_bytes.with_label_values(&[client]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
}
