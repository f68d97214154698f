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

/// Where the partitions of a topic begin and end, for a reader of committed records, as far as the consumer has heard.
pub(super) fn bounds<'a>(stats: &'a Statistics, topic: &str) -> impl Iterator<Item = (i32, (i64, i64))> + 'a {
    let partitions = stats.topics.get(topic).into_iter().flat_map(|topic| topic.partitions.values());
    let end = |stable: i64, high: i64| if stable >= 0 { stable } else { high };
    partitions.filter_map(move |p| match end(p.ls_offset, p.hi_offset) {
        at @ 0.. => Some((p.partition, (p.lo_offset, at))),
        _ => None,
    })
}
