//! Which topics there must be and what is wrong with those there are. Pure.

use std::collections::BTreeMap;

use crate::config::{Config, Topics};
use crate::kafka::access::{Operation, Resource};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// How long events are kept at least.
const EVENTS_RETENTION: i64 = 7 * DAY;
/// How long turns are kept on a topic that we create. With a segment it must stay below the events'.
const TURNS_RETENTION: i64 = 5 * DAY;
/// The segments of a turns topic that we create: what is kept beyond the retention at most.
const TURNS_SEGMENT: i64 = DAY;
/// What the longest turn is granted beyond the retention of its record.
const LONGEST_TURN: i64 = DAY;
/// Kafka's own default of `max.message.bytes`.
pub(super) const MAX_MESSAGE_BYTES: i64 = 1_048_588;
/// What a batch adds around a single record, generously.
const BATCH_OVERHEAD: i64 = 16_384;

/// What a topic is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Turns come in.
    Turns,
    /// The journal.
    Events,
    /// Results go out.
    Results,
    /// Records that cannot be run.
    DeadLetters,
    /// Ephemeral status.
    Status,
    /// Cancels.
    Control,
}

impl Role {
    /// Its field in `[topics]` of the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Events => "events",
            Self::Results => "results",
            Self::DeadLetters => "dead_letters",
            Self::Status => "status",
            Self::Control => "control",
        }
    }
}

/// A topic as we would create it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicPlan {
    /// What it is for.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// How many partitions.
    pub partitions: u32,
    /// How many replicas; -1 is the brokers' default.
    pub replication: i32,
    /// Its settings.
    pub settings: Vec<(&'static str, String)>,
}

/// The six topics as we would create them, turns first.
pub(crate) fn desired(topics: &Topics, partitions: u32, replication: i32) -> Vec<TopicPlan> {
    let plan = |role, name: &str, partitions, settings: &[(&'static str, i64)]| {
        let policy = if role == Role::Events { "compact,delete" } else { "delete" };
        let mut all = vec![("cleanup.policy", policy.to_owned())];
        all.extend(settings.iter().map(|(name, value)| (*name, value.to_string())));
        // With three replicas two must have a record before it counts as written.
        if replication >= 3 {
            all.push(("min.insync.replicas", "2".into()));
        }
        TopicPlan { role, name: name.into(), partitions, replication, settings: all }
    };
    let turns = [("retention.ms", TURNS_RETENTION), ("segment.ms", TURNS_SEGMENT)];
    let events = [
        ("retention.ms", EVENTS_RETENTION),
        ("min.compaction.lag.ms", HOUR),
        ("delete.retention.ms", DAY),
        ("segment.ms", HOUR),
    ];
    vec![
        plan(Role::Turns, &topics.turns, partitions, &turns),
        plan(Role::Events, &topics.events, partitions, &events),
        plan(Role::Results, &topics.results, partitions, &[]),
        plan(Role::DeadLetters, &topics.dead_letters, partitions, &[]),
        plan(Role::Status, &topics.status, partitions, &[("retention.ms", HOUR)]),
        // Every worker reads all of it, so more partitions would gain nothing.
        plan(Role::Control, &topics.control, 1, &[("retention.ms", DAY)]),
    ]
}

/// What a worker must be allowed to do, as far as brokers tell beforehand. Reading and writing include describing.
pub(crate) fn needs(config: &Config) -> Vec<(Operation, Resource)> {
    let topics = &config.topics;
    let topic = |operation, name: &String| (operation, Resource::Topic(name.clone()));
    vec![
        topic(Operation::Read, &topics.turns),
        (Operation::Read, Resource::Group(config.kafka.group_id.clone())),
        topic(Operation::Read, &topics.events),
        topic(Operation::Write, &topics.events),
        topic(Operation::Write, &topics.results),
        topic(Operation::Write, &topics.dead_letters),
        topic(Operation::Read, &topics.control),
        topic(Operation::Describe, &topics.status),
    ]
}

/// A setting as the brokers report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Its value.
    pub value: String,
    /// Set on the topic itself, not a default of the brokers'.
    pub own: bool,
}

/// The settings of a topic that are in force, by name.
pub(crate) type Settings = BTreeMap<String, Setting>;

/// A topic as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many partitions.
    pub partitions: u32,
    /// Its settings; none where the brokers do not tell.
    pub settings: Option<Settings>,
}

/// A setting of the events topic that a guarantee does not stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub is: String,
    /// What it should be.
    pub should: String,
    /// Why.
    pub why: String,
}

/// What is wrong with the events topic's settings, given those of the turns topic and the largest
/// record that we send.
pub(crate) fn wrong_settings(events: &Settings, turns: Option<&Settings>, record_bytes: usize) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let mut expect = |name: &'static str, fits: &dyn Fn(&str) -> bool, should: String, why: &str| {
        // An old broker may not know the setting: there is nothing to compare.
        if let Some(setting) = events.get(name)
            && !fits(&setting.value)
        {
            wrong.push(Wrong { name, is: setting.value.clone(), should, why: why.into() });
        }
    };
    expect(
        "cleanup.policy",
        &|is| policies(is) == ["compact", "delete"],
        "compact,delete".into(),
        "the last event of each step must be kept, and what is older than the retention must go",
    );
    let (retention, why) = events_retention(turns);
    let fits = |is: &str| retention.is_some_and(|shortest| number(is) >= shortest) || is == "-1";
    let enough = retention.map_or(-1, |shortest| shortest.max(EVENTS_RETENTION));
    expect("retention.ms", &fits, enough.to_string(), &why);
    let why = "a bound in bytes would delete the events of turns that are still on the turns topic";
    expect("retention.bytes", &|is| is == "-1", "-1".into(), why);
    let why = "a worker must be able to restore before a record it still needs is compacted away";
    expect("min.compaction.lag.ms", &at_least(HOUR), HOUR.to_string(), why);
    let why = "a reader must have time to see a deletion";
    expect("delete.retention.ms", &at_least(DAY), DAY.to_string(), why);
    let why = "a replica that has lost events must not become the leader";
    expect("unclean.leader.election.enable", &|is| is == "false", "false".into(), why);
    let record = i64::try_from(record_bytes).unwrap_or(i64::MAX);
    let room = MAX_MESSAGE_BYTES.max(record.saturating_add(BATCH_OVERHEAD));
    let why = "the client sends records as large as kafka.properties' message.max.bytes";
    expect("max.message.bytes", &at_least(record), room.to_string(), why);
    wrong
}

/// How long events must be kept at least, in milliseconds, and why; for ever, where there is none.
fn events_retention(turns: Option<&Settings>) -> (Option<i64>, String) {
    let read = |name| turns.and_then(|turns| turns.get(name)).map(|setting| number(&setting.value));
    let (Some(retention), segment) = (read("retention.ms"), read("segment.ms").unwrap_or(0)) else {
        let why = "the outcome of a turn must be kept longer than the turn".into();
        return (Some(EVENTS_RETENTION), why);
    };
    if retention < 0 {
        return (None, "turns are kept for ever, so their outcomes must be".into());
    }
    let why = format!(
        "the outcome of a turn must be kept longer than the turn: the turns topic's retention.ms \
         {retention} + segment.ms {segment} + a day for the longest turn"
    );
    (Some(retention.saturating_add(segment).saturating_add(LONGEST_TURN)), why)
}

/// What is wrong with the topics, in the order of `plans`. `found` are the same topics as they are.
pub(crate) fn problems(plans: &[TopicPlan], found: &[Option<Found>], record_bytes: usize) -> Vec<String> {
    let mut problems = same_names(plans);
    let topics = || plans.iter().zip(found);
    let by_role = |role| topics().find(|(plan, _)| plan.role == role).and_then(|(_, f)| f.as_ref());
    let turns = by_role(Role::Turns);
    for (plan, found) in topics() {
        let (name, role) = (&plan.name, plan.role.as_str());
        let Some(found) = found else {
            problems.push(format!("topic {name} ({role}) does not exist"));
            continue;
        };
        if plan.role != Role::Events {
            problems.extend(found.settings.as_ref().and_then(|s| compacted(plan, s)));
            continue;
        }
        if let Some(turns) = turns
            && turns.partitions != found.partitions
        {
            problems.push(format!(
                "topic {name} ({role}) has {}, the turns topic has {}: it must have as many",
                count(found.partitions),
                count(turns.partitions)
            ));
        }
        let turns = turns.and_then(|turns| turns.settings.as_ref());
        for wrong in found.settings.iter().flat_map(|s| wrong_settings(s, turns, record_bytes)) {
            let Wrong { name: setting, is, should, why } = wrong;
            problems.push(format!("topic {name} ({role}) has {setting}={is}, it should be {should}: {why}"));
        }
    }
    problems
}

/// `3 partitions`, `1 partition`.
pub(crate) fn count(partitions: u32) -> String {
    match partitions {
        1 => "1 partition".into(),
        n => format!("{n} partitions"),
    }
}

fn compacted(plan: &TopicPlan, settings: &Settings) -> Option<String> {
    let policy = &settings.get("cleanup.policy")?.value;
    policies(policy).contains(&"compact").then(|| {
        format!(
            "topic {} ({}) has cleanup.policy={policy}, it should be delete: its records of one \
             session share a key, and compaction would delete all but the last",
            plan.name,
            plan.role.as_str()
        )
    })
}

/// Two roles on one topic.
fn same_names(plans: &[TopicPlan]) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut problems = Vec::new();
    for plan in plans {
        if let Some(other) = seen.insert(&plan.name, plan.role) {
            let (a, b) = (other.as_str(), plan.role.as_str());
            problems.push(format!("topics.{a} and topics.{b} are both {}: they must differ", plan.name));
        }
    }
    problems
}

fn policies(text: &str) -> Vec<&str> {
    let mut policies: Vec<&str> = text.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    policies.sort_unstable();
    policies
}

fn number(text: &str) -> i64 {
    text.trim().parse().unwrap_or(0)
}

fn at_least(least: i64) -> impl Fn(&str) -> bool {
    move |is| number(is) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let setting = |value: &str| Setting { value: value.into(), own: true };
        pairs.iter().map(|(name, value)| ((*name).into(), setting(value))).collect()
    }

    /// Everything as we would create it.
    fn created() -> (Vec<TopicPlan>, Vec<Option<Found>>) {
        let plans = desired(&Topics::default(), 12, -1);
        let found = plans.iter().map(|plan| {
            let pairs: Vec<(&str, &str)> = plan.settings.iter().map(|(n, v)| (*n, &**v)).collect();
            Some(Found { partitions: plan.partitions, settings: Some(settings(&pairs)) })
        });
        let found = found.collect();
        (plans, found)
    }

    fn set(found: &mut [Option<Found>], index: usize, name: &str, value: &str) {
        let topic = found[index].as_mut().unwrap();
        let setting = Setting { value: value.into(), own: true };
        topic.settings.as_mut().unwrap().insert(name.into(), setting);
    }

    #[test]
    fn what_we_create_passes_the_check() {
        let (plans, found) = created();
        assert_eq!(problems(&plans, &found, 1_000_000), Vec::<String>::new());
    }

    #[test]
    fn three_replicas_need_two_in_sync() {
        let in_sync = ("min.insync.replicas", "2".to_owned());
        let with = |replication| desired(&Topics::default(), 1, replication);
        assert!(with(3).iter().all(|plan| plan.settings.contains(&in_sync)));
        assert!(!with(-1).iter().any(|plan| plan.settings.contains(&in_sync)));
    }

    #[test]
    fn a_missing_topic_and_a_narrow_one_are_found() {
        let (plans, mut found) = created();
        found[1].as_mut().unwrap().partitions = 6;
        found[3] = None;
        let problems = problems(&plans, &found, 1_000_000);
        assert_eq!(
            problems,
            [
                "topic agent.tool-events (events) has 6 partitions, the turns topic has 12 \
                 partitions: it must have as many",
                "topic agent.turns.dlq (dead_letters) does not exist",
            ]
        );
    }

    #[test]
    fn every_wrong_setting_of_events_is_found() {
        let (plans, mut found) = created();
        for (name, value) in [
            ("cleanup.policy", "delete"),
            ("retention.ms", "3600000"),
            ("retention.bytes", "1000000"),
            ("min.compaction.lag.ms", "0"),
            ("delete.retention.ms", "1000"),
            ("unclean.leader.election.enable", "true"),
            ("max.message.bytes", "999999"),
        ] {
            set(&mut found, 1, name, value);
            let problems = problems(&plans, &found, 1_000_000);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(&format!("{name}={value}")), "{problems:?}");
            let right = plans[1].settings.iter().find(|(n, _)| *n == name);
            match right {
                Some((_, right)) => set(&mut found, 1, name, right),
                None => drop(found[1].as_mut().unwrap().settings.as_mut().unwrap().remove(name)),
            }
        }
        set(&mut found, 1, "cleanup.policy", "delete, compact");
        assert_eq!(problems(&plans, &found, 1_000_000), Vec::<String>::new());
    }

    #[test]
    fn events_outlive_turns() {
        let week = (7 * DAY).to_string();
        let events = settings(&[("retention.ms", &week)]);
        let turns = settings(&[("retention.ms", &week), ("segment.ms", &week)]);
        let wrong = wrong_settings(&events, Some(&turns), 1);
        assert_eq!((wrong[0].name, &wrong[0].should), ("retention.ms", &(15 * DAY).to_string()));
        let repaired = settings(&[("retention.ms", &wrong[0].should)]);
        assert_eq!(wrong_settings(&repaired, Some(&turns), 1), []);

        let for_ever = settings(&[("retention.ms", "-1")]);
        assert_eq!(wrong_settings(&for_ever, Some(&turns), 1), []);
        assert_eq!(wrong_settings(&events, Some(&for_ever), 1)[0].should, "-1");
        assert_eq!(wrong_settings(&for_ever, Some(&for_ever), 1), []);
    }

    #[test]
    fn compaction_of_anything_but_events_is_found() {
        let (plans, mut found) = created();
        set(&mut found, 0, "cleanup.policy", "compact");
        let problems = problems(&plans, &found, 1_000_000);
        assert!(problems[0].starts_with("topic agent.turns (turns) has cleanup.policy=compact"));
    }

    #[test]
    fn one_topic_has_one_role() {
        let topics = Topics { results: "agent.turns".into(), ..Topics::default() };
        let plans = desired(&topics, 1, -1);
        let found = vec![None; plans.len()];
        assert_eq!(
            problems(&plans, &found, 1)[0],
            "topics.turns and topics.results are both agent.turns: they must differ"
        );
    }
}
