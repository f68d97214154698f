//! How far the turns' partitions are behind: their ends are asked for, since librdkafka hears of the end of a
//! partition only while it reads it, and a paused one is what matters.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::access::Operation;
use super::client::Isolation;
use super::lookup::Lookup;
use crate::config::Kafka;
use crate::metrics::metrics;

/// How often the ends are asked for.
const EVERY: Duration = Duration::from_secs(5);

/// The watermark of each partition that is ours. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Watermarks(Arc<Mutex<BTreeMap<i32, i64>>>);

impl Watermarks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a partition is.
    pub(super) fn set(&self, partition: i32, watermark: i64) {
        self.lock().insert(partition, watermark);
    }

    /// A partition is not ours any more.
    pub(super) fn forget(&self, partition: i32) {
        self.lock().remove(&partition);
        metrics().forget_partition(partition);
    }

    fn measure(&self, lookup: &Lookup, topic: &str) -> Result<(), super::error::Error> {
        let ours: Vec<i32> = self.lock().keys().copied().collect();
        let bounds = lookup.bounds(topic, &ours)?;
        // Held on to, so that no partition that goes meanwhile gets a series again.
        let watermarks = self.lock();
        for (partition, bounds) in bounds {
            if let Some(watermark) = watermarks.get(&partition) {
                let lag = bounds.end.saturating_sub(bounds.begin.max(*watermark)).max(0);
                metrics().lag.with_label_values(&[&partition.to_string()]).set(lag);
            }
        }
        Ok(())
    }
}

/// Measures for as long as it is polled.
pub(crate) async fn follow(kafka: Kafka, topic: String, watermarks: Watermarks) -> Infallible {
    let lookup = match Lookup::new(&kafka, Isolation::ReadCommitted, Operation::Read) {
        Ok(lookup) => Arc::new(lookup),
        Err(error) => {
            tracing::warn!(%error, "the lag of the partitions is not measured");
            return std::future::pending().await;
        }
    };
    loop {
        let (lookup, topic, watermarks) = (Arc::clone(&lookup), topic.clone(), watermarks.clone());
        let measured = tokio::task::spawn_blocking(move || watermarks.measure(&lookup, &topic)).await;
        if let Ok(Err(error)) = measured {
            tracing::debug!(%error, "the lag of the partitions could not be measured");
        }
        tokio::time::sleep(EVERY).await;
    }
}
