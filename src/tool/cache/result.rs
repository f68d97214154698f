//! Results of calls, for other calls with the same arguments.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Cache, key};
use crate::metrics::metrics;
use crate::tool::{Output, Registered, ToolContext};

/// What is made under each key right now, and heard of by whoever else wants it.
#[derive(Clone, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<String, watch::Receiver<Flight>>>>);

/// How a result that is being made comes out.
#[derive(Debug, Clone)]
enum Flight {
    Up,
    Landed(Output),
    /// There is none: whoever waits runs its own call.
    Failed,
}

/// The one that makes a result for all.
struct Lead {
    key: String,
    flights: Flights,
    tell: watch::Sender<Flight>,
}

enum Role {
    Leads(Lead),
    Waits(watch::Receiver<Flight>),
}

impl Flights {
    fn join(&self, key: &str) -> Role {
        match self.lock().entry(key.to_owned()) {
            Entry::Occupied(flight) => Role::Waits(flight.get().clone()),
            Entry::Vacant(free) => {
                let (tell, hear) = watch::channel(Flight::Up);
                free.insert(hear);
                Role::Leads(Lead { key: key.to_owned(), flights: self.clone(), tell })
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Before anybody hears: who comes then finds the result in the store, or makes it.
impl Drop for Lead {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

impl Lead {
    fn land(self, flight: Flight) {
        let tell = self.tell.clone();
        drop(self);
        tell.send_replace(flight);
    }
}

/// What the cache says about a call.
pub(in crate::tool) enum Lookup {
    /// It need not run.
    Hit(Output),
    /// It has to run, and then [`Ticket::done`].
    Miss(Ticket),
    /// Nobody wants it any longer: it was cancelled while it waited for another call's result.
    Cancelled,
}

/// A call that runs because no result of it was there.
pub(in crate::tool) struct Ticket {
    cache: Cache,
    key: String,
    /// None: others make their own.
    lead: Option<Lead>,
    /// Whether the store answered.
    available: bool,
}

impl Cache {
    /// Looks for a result of the tool for these arguments. While another call of this process makes one, it is waited
    /// for; where that call fails or is dropped, this one runs.
    ///
    /// Cancel safety: whoever waits for a dropped call goes on without it.
    pub(in crate::tool) async fn lookup(
        &self,
        tool: &Registered,
        context: &ToolContext,
        arguments: &serde_json::Value,
    ) -> Option<Lookup> {
        tool.spec.cache_ttl?;
        let key = key::of(&tool.spec, arguments)?;
        let count = |outcome: &str| {
            metrics().cache_lookups.with_label_values(&[tool.spec.name.as_str(), outcome]).inc()
        };
        loop {
            match self.0.flights.join(&key) {
                Role::Leads(lead) => {
                    let kept = self.get(&key).await;
                    let available = kept.is_ok();
                    // What was kept by another version of the tool, or is broken, is none.
                    let kept = kept.ok().flatten().and_then(|json| Output::from_json(&json).ok());
                    if let Some(output) = kept.filter(|output| tool.check_result(output).is_ok()) {
                        lead.land(Flight::Landed(output.clone()));
                        count("hit");
                        return Some(Lookup::Hit(output));
                    }
                    count("miss");
                    let cache = self.clone();
                    return Some(Lookup::Miss(Ticket { cache, key, lead: Some(lead), available }));
                }
                Role::Waits(mut flight) => {
                    let landed = tokio::select! {
                        landed = flight.wait_for(|flight| !matches!(flight, Flight::Up)) => {
                            landed.map(|flight| flight.clone())
                        }
                        () = context.cancelled() => return Some(Lookup::Cancelled),
                    };
                    if context.is_cancelled() && !matches!(landed, Ok(Flight::Landed(_))) {
                        return Some(Lookup::Cancelled);
                    }
                    match landed {
                        Ok(Flight::Landed(output)) => {
                            count("hit");
                            return Some(Lookup::Hit(output));
                        }
                        Ok(_) => {
                            count("miss");
                            let cache = self.clone();
                            return Some(Lookup::Miss(Ticket { cache, key, lead: None, available: true }));
                        }
                        // It was dropped: the next one makes it.
                        Err(_) => {}
                    }
                }
            }
        }
    }
}

impl Ticket {
    /// Keeps the call's result for others, and lets those go on that wait for it. A failure is not kept.
    pub(in crate::tool) async fn done(self, tool: &Registered, output: Option<&Output>) {
        if let (Some(output), Some(ttl), true) = (output, tool.spec.cache_ttl, self.available) {
            self.cache.set(&self.key, output.as_json().to_owned(), ttl).await;
        }
        if let Some(lead) = self.lead {
            lead.land(output.cloned().map_or(Flight::Failed, Flight::Landed));
        }
    }
}
