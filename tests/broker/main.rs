//! The worker against a real broker, through the binaries, as a user would see it.
//!
//! | file | holds |
//! | --- | --- |
//! | `support/` | a test's own topics, configuration and processes; reading and writing topics |
//! | `pipeline` | many turns, several workers, rebalances |
//! | `recovery` | kills, drains, signals: what runs again and what does not |
//! | `agents` | agents in code, tools that call tools, agents that call agents |
//! | `takeover` | workers that die, sleep, or have a twin |
//! | `offsets` | groups, offsets and topics that an admin changes |
//! | `exactly_once` | what readers of committed records see |
//! | `endings` | cancels, deadlines, turns that kill their workers, outcomes that nobody knows |
//! | `network` | what is lost or late on the way, topics that go away, large records |
//! | `records` | what Kafka delivers: records that cannot be run, odd keys, sizes |
//! | `model` | what a model gets wrong |
//! | `tools` | what a tool says ends a call or a turn |
//! | `budgets` | how much a turn may use, over all workers that have a part in it |
//! | `cache` | results that calls leave for other calls, in memory and in Redis |
//! | `status` | what tools tell of themselves while they run |
//! | `http_tools` | tools that are HTTP endpoints of the configuration |
//! | `rolling` | workers that are replaced one by one under load |
//! | `refusal` | tools that require approval |
//! | `admin` | metrics, health, logs, switches |
//! | `cli` | the other commands |
//!
//! The broker is the one that `KAFKA_BOOTSTRAP_SERVERS` names, else the one of `scripts/kafka`. The team's
//! own worker that most tests run is `tests/fixtures/ledger.rs`.

mod admin;
mod agents;
mod budgets;
mod cache;
mod cli;
mod conversations;
mod endings;
mod exactly_once;
mod http_tools;
mod model;
mod network;
mod offsets;
mod pipeline;
mod providers;
mod records;
mod recovery;
mod refusal;
mod rolling;
mod status;
mod support;
mod takeover;
mod tools;
