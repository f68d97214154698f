//! Creating and checking topics.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | check, apply, and the check that a worker makes when it binds |
//! | `plan` | which topics there must be and what is wrong with those there are; pure |
//! | `admin` | the requests to the brokers |

mod admin;
mod plan;

pub(crate) use plan::{Found, TopicPlan, count, desired};

use tokio::runtime::Handle;

use super::access::{Denied, Operation};
use super::client::{self, Isolation};
use super::error::Error;
use super::lookup::Lookup;
use crate::config::{Config, Kafka};
use admin::Admin;
use plan::{Role, Settings, Wrong, needs, problems, wrong_settings};

/// How many partitions the topics get that `topics apply` creates.
pub(crate) const DEFAULT_PARTITIONS: u32 = 12;

/// The topics as they are, beside what they should be.
#[derive(Debug)]
pub(crate) struct Report {
    /// Each topic as we would create it and as it is; none where it does not exist.
    pub topics: Vec<(TopicPlan, Option<Found>)>,
    /// What is wrong.
    pub problems: Vec<String>,
    /// What the brokers do not tell, so that it may be wrong.
    pub unknown: Vec<String>,
    /// What a worker must do and the brokers refuse, where that was asked for. Some topics are hidden then, and
    /// nothing is said about any.
    pub denied: Vec<Denied>,
}

/// What `apply` is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// How many partitions turns and events are to have at least.
    pub partitions: Option<u32>,
    /// How many replicas a new topic gets; -1 is the brokers' default.
    pub replication: i32,
}

/// What `apply` did.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Each thing that it did. Empty where nothing had to be done.
    pub actions: Vec<String>,
    /// What is still wrong, and is not ours to mend.
    pub problems: Vec<String>,
    /// What the brokers do not tell, so that it may be wrong.
    pub unknown: Vec<String>,
}

/// Why a worker cannot bind to the topics.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// No broker answered. Worth another try.
    #[error("no broker at {brokers} can be talked to: {reason}")]
    Unreachable {
        /// What was tried.
        brokers: String,
        /// The last thing librdkafka said.
        reason: String,
    },
    /// Something must be mended first.
    #[error("{}", .0.join("\n"))]
    Problems(Vec<String>),
    /// Something must be granted first.
    #[error("{}", .0.join("\n"))]
    Denied(Vec<String>),
    /// The settings make no client.
    #[error("{0}")]
    Config(String),
}

/// How many partitions a topic has that is to be written to.
///
/// # Errors
/// There is no such topic, no broker answered within seconds, or they refuse.
pub(crate) async fn partitions(kafka: &Kafka, topic: &str) -> Result<u32, Error> {
    let (kafka, topic) = (kafka.clone(), topic.to_owned());
    blocking(move |_| Lookup::new(&kafka, Isolation::ReadCommitted, Operation::Write)?.partitions(&topic))
        .await
}

/// Looks at the topics.
///
/// # Errors
/// No broker answered within seconds, or they refuse.
pub(crate) async fn check(config: &Config) -> Result<Report, Error> {
    let config = config.clone();
    blocking(move |runtime| look(&config, &Admin::new(&config.kafka, runtime)?, DEFAULT_PARTITIONS, -1)).await
}

/// As [`check`], and looks at what a worker may do.
///
/// # Errors
/// The same.
pub(crate) async fn check_for_worker(config: &Config) -> Result<Report, Error> {
    let config = config.clone();
    blocking(move |runtime| {
        let admin = Admin::new(&config.kafka, runtime)?;
        let report = look(&config, &admin, DEFAULT_PARTITIONS, -1);
        let denied = match report {
            Ok(_) | Err(Error::Denied(_)) => admin.not_granted(&needs(&config)),
            Err(_) => Vec::new(),
        };
        match report {
            Ok(report) => Ok(Report { denied, ..report }),
            Err(Error::Denied(first)) if denied.is_empty() => Ok(Report::denied(vec![first])),
            Err(Error::Denied(_)) => Ok(Report::denied(denied)),
            Err(error) => Err(error),
        }
    })
    .await
}

/// Checks what a worker rests on. Returns how many partitions turns and events have.
///
/// # Errors
/// No broker answered, the brokers refuse what a worker must do, or topics are missing or have settings that lose
/// records.
pub(crate) async fn bind_check(config: &Config) -> Result<u32, BindError> {
    let report = check_for_worker(config).await.map_err(|error| match error {
        Error::Unreachable { brokers, reason } => BindError::Unreachable { brokers, reason },
        Error::Config(why) => BindError::Config(why),
        other => BindError::Problems(vec![other.to_string()]),
    })?;
    let denied: Vec<String> = report.denied.iter().map(ToString::to_string).collect();
    if !report.problems.is_empty() {
        return Err(BindError::Problems([report.problems, denied].concat()));
    }
    if !denied.is_empty() {
        return Err(BindError::Denied(denied));
    }
    for unknown in report.unknown {
        tracing::warn!("{unknown}");
    }
    let turns = report.topics.into_iter().find(|(plan, _)| plan.role == Role::Turns);
    Ok(turns.and_then(|(_, found)| found).map_or(0, |found| found.partitions))
}

/// Creates what is missing, widens what is too narrow, mends the settings of the events topic. What is
/// right is left alone, so a second run does nothing.
///
/// # Errors
/// No broker answered within seconds, they refuse, or partitions would have to be taken away. What was
/// done before an error stays done.
pub(crate) async fn apply(config: &Config, wish: Wish) -> Result<Applied, Error> {
    let config = config.clone();
    blocking(move |runtime| apply_blocking(&config, &Admin::new(&config.kafka, runtime)?, wish)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce(Handle) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let runtime = Handle::current();
    let done = tokio::task::spawn_blocking(move || work(runtime)).await;
    done.unwrap_or_else(|e| Err(Error::Config(format!("the thread that asks the brokers ended: {e}"))))
}

fn look(config: &Config, admin: &Admin, partitions: u32, replication: i32) -> Result<Report, Error> {
    let plans = desired(&config.topics, partitions, replication);
    let found = admin.survey(&plans)?;
    let problems = problems(&plans, &found, client::max_record_bytes(&config.kafka));
    let topics: Vec<_> = plans.into_iter().zip(found).collect();
    let hidden = topics.iter().filter(|(_, f)| f.as_ref().is_some_and(|f| f.settings.is_none()));
    let names: Vec<&str> = hidden.map(|(plan, _)| plan.name.as_str()).collect();
    let unknown = match names.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "the brokers do not tell the settings of {}, so they are not checked (it takes \
             DESCRIBE_CONFIGS on each of them)",
            names.join(", ")
        )],
    };
    Ok(Report { topics, problems, unknown, denied: Vec::new() })
}

impl Report {
    /// Nothing but what is refused.
    fn denied(denied: Vec<Denied>) -> Self {
        Self { topics: Vec::new(), problems: Vec::new(), unknown: Vec::new(), denied }
    }
}

fn apply_blocking(config: &Config, admin: &Admin, wish: Wish) -> Result<Applied, Error> {
    let before = look(config, admin, DEFAULT_PARTITIONS, wish.replication)?;
    let target = target(&before, wish.partitions)?;
    let mut applied = Applied::default();
    let record_bytes = client::max_record_bytes(&config.kafka);
    // In the order of the plans: turns are there, and their settings known, before events are made.
    for (mut plan, found) in desired(&config.topics, target, wish.replication)
        .into_iter()
        .zip(before.topics.iter().map(|(_, found)| found))
    {
        match found {
            None => {
                if plan.role == Role::Events {
                    fit(&mut plan, turns_settings(&before), record_bytes);
                }
                if admin.create(&plan)? {
                    applied.actions.push(created(&plan));
                }
            }
            Some(found) => {
                let paired = matches!(plan.role, Role::Turns | Role::Events);
                if paired && found.partitions < target {
                    admin.widen(&plan.name, target)?;
                    applied.actions.push(widened(&plan, found.partitions));
                }
            }
        }
    }
    repair_events(config, admin, &before, &mut applied)?;
    let after = look(config, admin, target, wish.replication)?;
    applied.problems = after.problems;
    applied.unknown = after.unknown;
    Ok(applied)
}

fn find(report: &Report, role: Role) -> Option<(&TopicPlan, &Found)> {
    let (plan, found) = report.topics.iter().find(|(plan, _)| plan.role == role)?;
    Some((plan, found.as_ref()?))
}

fn turns_settings(report: &Report) -> Option<&Settings> {
    find(report, Role::Turns)?.1.settings.as_ref()
}

/// How many partitions turns and events are to have: never fewer than there are.
fn target(report: &Report, wish: Option<u32>) -> Result<u32, Error> {
    let turns = find(report, Role::Turns);
    let events = find(report, Role::Events);
    let wanted = match (wish, turns, events) {
        (Some(wish), ..) => wish,
        (None, Some((_, turns)), _) => turns.partitions,
        (None, None, Some((_, events))) => events.partitions,
        (None, None, None) => DEFAULT_PARTITIONS,
    };
    for (plan, found) in [turns, events].into_iter().flatten() {
        if found.partitions > wanted {
            return Err(Error::Config(format!(
                "topic {} ({}) has {}, and Kafka cannot take any away: run it with --partitions {} \
                 or more, or use another topic",
                plan.name,
                plan.role.as_str(),
                count(found.partitions),
                found.partitions
            )));
        }
    }
    Ok(wanted)
}

/// Fits the plan of the events topic to a turns topic that someone else made.
fn fit(events: &mut TopicPlan, turns: Option<&Settings>, record_bytes: usize) {
    let planned = |(name, value): &(&str, String)| {
        let setting = plan::Setting { value: value.clone(), own: true };
        ((*name).to_owned(), setting)
    };
    let mut settings: Settings = events.settings.iter().map(planned).collect();
    let room = plan::Setting { value: plan::MAX_MESSAGE_BYTES.to_string(), own: false };
    settings.insert("max.message.bytes".into(), room);
    for wrong in wrong_settings(&settings, turns, record_bytes) {
        events.settings.retain(|(name, _)| *name != wrong.name);
        events.settings.push((wrong.name, wrong.should));
    }
}

fn repair_events(
    config: &Config,
    admin: &Admin,
    before: &Report,
    applied: &mut Applied,
) -> Result<(), Error> {
    let Some((plan, Found { settings: Some(settings), .. })) = find(before, Role::Events) else {
        return Ok(());
    };
    let record_bytes = client::max_record_bytes(&config.kafka);
    let still_wrong = |settings: &Settings| -> Vec<Wrong> {
        wrong_settings(settings, turns_settings(before), record_bytes)
    };
    let wrong = still_wrong(settings);
    if wrong.is_empty() {
        return Ok(());
    }
    admin.repair(&plan.name, settings, &wrong, still_wrong)?;
    for Wrong { name: setting, is, should, .. } in wrong {
        let name = &plan.name;
        applied.actions.push(format!("topic {name} (events): set {setting}={should}, it was {is}"));
    }
    Ok(())
}

fn created(plan: &TopicPlan) -> String {
    let settings: Vec<String> = plan.settings.iter().map(|(n, v)| format!("{n}={v}")).collect();
    format!(
        "topic {} ({}): created with {}, {}",
        plan.name,
        plan.role.as_str(),
        count(plan.partitions),
        settings.join(" ")
    )
}

fn widened(plan: &TopicPlan, was: u32) -> String {
    let mut text = format!(
        "topic {} ({}): widened from {was} to {}",
        plan.name,
        plan.role.as_str(),
        count(plan.partitions)
    );
    if plan.role == Role::Turns {
        text.push_str("; sessions move, so the order within one does not hold across this moment");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::config::Topics;
    use crate::kafka::embedded::Embedded;

    #[tokio::test]
    async fn a_worker_binds_to_an_embedded_broker_at_once() {
        let broker = Embedded::start(&Topics::default(), 3).unwrap();
        let mut config = Config::default();
        config.kafka.brokers = broker.bootstrap_servers().into();
        let begin = Instant::now();
        assert_eq!(bind_check(&config).await.unwrap(), 3);
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        // It cannot tell settings, which is said and is no problem.
        assert_eq!(check(&config).await.unwrap().unknown.len(), 1);

        config.topics.dead_letters = "missing".into();
        match bind_check(&config).await.unwrap_err() {
            BindError::Problems(problems) => {
                assert_eq!(problems, ["topic missing (dead_letters) does not exist"]);
            }
            other => panic!("{other}"),
        }
    }

    fn report(turns: Option<u32>, events: Option<u32>) -> Report {
        let found = |partitions| Some(Found { partitions: partitions?, settings: None });
        let counts = [turns, events];
        let plans = desired(&Topics::default(), 12, -1).into_iter().zip(counts);
        let topics = plans.map(|(plan, count)| (plan, found(count))).collect();
        Report { topics, problems: vec![], unknown: vec![], denied: vec![] }
    }

    #[test]
    fn partitions_are_added_and_never_taken_away() {
        assert_eq!(target(&report(None, None), None).unwrap(), DEFAULT_PARTITIONS);
        assert_eq!(target(&report(None, None), Some(3)).unwrap(), 3);
        assert_eq!(target(&report(Some(6), None), None).unwrap(), 6);
        assert_eq!(target(&report(None, Some(6)), None).unwrap(), 6);
        assert_eq!(target(&report(Some(6), Some(3)), Some(8)).unwrap(), 8);
        assert!(target(&report(Some(6), Some(6)), Some(5)).is_err());
        let wide = target(&report(Some(3), Some(6)), None).unwrap_err();
        assert!(wide.to_string().contains("--partitions 6"), "{wide}");
    }

    #[test]
    fn new_events_fit_the_turns_that_are_there() {
        let mut events = desired(&Topics::default(), 12, -1).remove(1);
        let planned = events.clone();
        fit(&mut events, None, 1_000_000);
        assert_eq!(events, planned);
        let setting = |value: &str| plan::Setting { value: value.into(), own: false };
        let week = setting("604800000");
        let turns = Settings::from([("retention.ms".into(), week.clone()), ("segment.ms".into(), week)]);
        fit(&mut events, Some(&turns), 5_000_000);
        let settings: Vec<String> = events.settings.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert!(settings.contains(&"retention.ms=1296000000".into()), "{settings:?}");
        assert!(settings.contains(&"max.message.bytes=5016384".into()), "{settings:?}");
        assert_eq!(events.settings.len(), planned.settings.len() + 1);
    }
}
