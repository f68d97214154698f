//! A worker process: the shipped supervisor, with a poll thread that is simulated. It decides as the shipped one does
//! (`kafka::consumer`), without its pauses and waits.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::mpsc as async_mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::log::SimLog;
use super::outside::{self, Outside, TOOLS};
use super::world::{Fate, Rule, Sim};
use crate::agent::{Agent, ModelLoop};
use crate::config::{Switches as Settings, Topics, WhenOff};
use crate::health::Health;
use crate::journal::Member;
use crate::kafka::consumer::{Command, Event, Handle};
use crate::kafka::tracker::Tracker;
use crate::tool::{Deps, Environment};
use crate::turn::{Limits as TurnLimits, OnToolError};
use crate::worker::bind::BoundAgent;
use crate::worker::cancels::Cancels;
use crate::worker::driver::Shared;
use crate::worker::outbox::Outbox;
use crate::worker::supervisor::{Error, Limits, OpenTransactions, Points, Supervisor};
use crate::worker::switches::Switches;

/// How long a drain waits, in steps of the history, which take a millisecond each.
const DRAIN: Duration = Duration::from_millis(25);

pub(super) struct Process {
    pub id: usize,
    sim: Sim,
    points: Arc<Points>,
    commands: mpsc::Receiver<Command>,
    events: async_mpsc::UnboundedSender<Event>,
    pub shutdown: CancellationToken,
    switches: Switches,
    supervisor: Option<JoinHandle<(Handle, Result<(), Error>)>>,
    partition: Option<Partition>,
    epoch: u64,
    commit: Option<Commit>,
    /// By SIGSTOP: nothing of it happens.
    pub stopped: bool,
}

struct Partition {
    generation: u64,
    epoch: u64,
    tracker: Tracker,
    next: usize,
    committed: (i64, String),
    ready: bool,
    revoked: bool,
    lost: bool,
    drained: bool,
    last_commit: bool,
    restart: bool,
}

impl Partition {
    fn new(generation: u64, epoch: u64, from: Option<i64>, metadata: String) -> Self {
        let start = from.unwrap_or(0);
        Self {
            generation,
            epoch,
            tracker: Tracker::new(start),
            next: start as usize,
            committed: (start, metadata),
            ready: false,
            revoked: false,
            lost: false,
            drained: false,
            last_commit: false,
            restart: false,
        }
    }
}

/// A commit that is on its way.
struct Commit {
    generation: u64,
    epoch: u64,
    offset: i64,
    metadata: String,
    proof: bool,
}

impl Process {
    pub(super) fn start(sim: &Sim, id: usize) -> Self {
        let outside = Outside { sim: sim.clone(), process: id };
        let (exactly_once, without) = {
            let mut world = sim.lock();
            world.clients.entry(id).or_default();
            (world.exactly_once, world.without)
        };
        let agent = |name: &str, code: Arc<dyn Agent>| BoundAgent {
            name: name.into(),
            code,
            definition: Arc::new(crate::worker::steps::definition(name, None)),
            sub_agents: if name == "a" { vec!["b".into()] } else { Vec::new() },
            system: None,
            model: Arc::new(outside.clone()),
            stream_text: false,
            tools: TOOLS.iter().cloned().collect(),
            limits: TurnLimits::tool_calls(32),
            max_run_time: None,
            on_tool_error: OnToolError::TellModel,
            max_duration: Duration::from_secs(3600),
            turn_tools: Vec::new(),
        };
        let switches = Switches::new(&Settings::default());
        let shared = Shared {
            agents: [
                agent("a", Arc::new(ModelLoop)),
                agent("b", Arc::new(ModelLoop)),
                agent("c", Arc::new(super::coded::play)),
            ]
            .into_iter()
            .map(|agent| (agent.name.clone(), Arc::new(agent)))
            .collect(),
            registry: TOOLS.clone(),
            environment: Environment { deps: Deps::new(outside.clone()), ..Environment::new() },
            outbox: Outbox::new(Arc::new(outside.clone()), &Topics::default()),
            cancels: Cancels::default(),
            turns_topic: "agent.turns".into(),
            health: Health::default(),
            switches: switches.clone(),
            clock: crate::worker::driver::now_ms,
            load: crate::kafka::paced::Load::default(),
            step_boundary_durability: without != Some(Rule::StepBoundary),
            max_redeliveries: 1_000,
        };
        let member = Member {
            group: "g".into(),
            turns_topic: "agent.turns".into(),
            name: format!("p{id}"),
            topic_id: "t".into(),
            exactly_once: exactly_once && without != Some(Rule::CommittedEnd),
        };
        let points = Arc::new(Points::default());
        let (handle, commands) = Handle::detached();
        let transactional = exactly_once.then(|| Arc::new(outside) as Arc<dyn OpenTransactions>);
        let supervisor = Supervisor::new(
            Arc::new(shared),
            Limits { max_in_flight: 8, drain_timeout: DRAIN },
            handle,
            Arc::new(SimLog { sim: sim.clone(), process: id, through: 0 }),
            member,
            Arc::clone(&points),
            transactional,
        );
        let (events, incoming) = async_mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let supervisor = tokio::spawn(supervisor.run(incoming, shutdown.clone()));
        Self {
            id,
            sim: sim.clone(),
            points,
            commands,
            events,
            shutdown,
            switches,
            supervisor: Some(supervisor),
            partition: None,
            epoch: 0,
            commit: None,
            stopped: false,
        }
    }

    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// One round of the poll thread: commands, rebalances, and at most this many records.
    pub(super) fn poll(&mut self, records: usize) {
        self.take_commands();
        self.rebalance();
        let Some(state) = &mut self.partition else {
            return;
        };
        if !state.ready || state.revoked || self.shutdown.is_cancelled() {
            return;
        }
        let world = self.sim.lock();
        let mut batch = Vec::new();
        state.next = state.next.max(world.turns_begin);
        while batch.len() < records && state.next < world.turns.len() {
            let offset = state.next as i64;
            if state.tracker.dispatch(offset) {
                batch.push(outside::record(&world.turns[state.next].value, offset, state.epoch));
            }
            state.next += 1;
        }
        drop(world);
        if !batch.is_empty() {
            self.tell(Event::Records(batch));
        }
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            let (Command::Ready { epoch, .. }
            | Command::Finished { epoch, .. }
            | Command::Drained { epoch, .. }
            | Command::Restart { epoch, .. }) = command
            else {
                continue;
            };
            let Some(state) = self.partition.as_mut().filter(|state| state.epoch == epoch) else {
                continue;
            };
            match command {
                Command::Ready { .. } => {
                    state.ready = true;
                    self.sim.lock().restoring.remove(&self.id);
                }
                Command::Finished { offset, .. } => state.tracker.finish(offset),
                Command::Drained { .. } => state.drained = state.revoked,
                Command::Restart { .. } if !state.revoked => (state.ready, state.restart) = (false, true),
                Command::Restart { .. } | Command::Stop | Command::Close => {}
            }
        }
    }

    fn rebalance(&mut self) {
        let (mine, generation, revoking) = {
            let group = &self.sim.lock().group;
            (group.owner == Some(self.id), group.generation, group.revoking)
        };
        let Some(state) = &mut self.partition else {
            if mine && revoking {
                self.give_back();
            } else if mine && !self.shutdown.is_cancelled() {
                self.assigned(generation);
            }
            return;
        };
        let lost = !mine || state.generation != generation;
        if !state.revoked && (lost || revoking) {
            (state.revoked, state.lost, state.restart) = (true, lost, false);
            let epoch = state.epoch;
            self.tell(Event::Revoked { partition: 0, epoch });
            return;
        }
        if !state.revoked || !state.drained {
            return;
        }
        let give_up = state.lost;
        if !give_up && self.commit.is_none() && !state.last_commit {
            state.last_commit = true;
            self.send_commit();
        }
        if give_up || self.commit.is_none() {
            self.partition = None;
            self.sim.lock().restoring.remove(&self.id);
            if mine && !lost {
                self.give_back();
            }
        }
    }

    fn give_back(&self) {
        let group = &mut self.sim.lock().group;
        (group.owner, group.revoking) = (None, false);
        group.generation += 1;
    }

    fn assigned(&mut self, generation: u64) {
        let committed = self.sim.lock().group.committed.clone();
        let (from, metadata) =
            committed.map_or((None, String::new()), |(from, metadata)| (Some(from), metadata));
        self.epoch += 1;
        let epoch = self.epoch;
        self.partition = Some(Partition::new(generation, epoch, from, metadata.clone()));
        self.tell(Event::Assigned { partition: 0, epoch, from, metadata });
    }

    /// Asks for a commit of what has finished, unless one is on its way.
    pub(super) fn send_commit(&mut self) {
        self.take_commands();
        let Some(state) = self.partition.as_mut().filter(|state| !state.lost && self.commit.is_none()) else {
            return;
        };
        let proof = state.restart;
        if proof && !state.tracker.has_begun() {
            state.tracker = Tracker::new(self.sim.lock().turns_begin as i64);
        }
        let offset = state.tracker.watermark();
        let point = self.points.of(0, state.epoch, offset);
        let due = self.shutdown.is_cancelled() || self.sim.lock().rng.once_in(8);
        let moved = point.as_ref().is_some_and(|point| point.metadata != state.committed.1);
        let refresh = due && moved && state.tracker.has_begun();
        if offset == state.committed.0 && !proof && !refresh {
            return;
        }
        let unchanged = || (proof && offset == state.committed.0).then(|| state.committed.1.clone());
        let metadata = point.map(|point| point.metadata).or_else(unchanged).or(proof.then(String::new));
        let Some(metadata) = metadata else {
            return;
        };
        let (generation, epoch) = (state.generation, state.epoch);
        self.commit = Some(Commit { generation, epoch, offset, metadata, proof });
    }

    pub(super) fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    /// The commit that is on its way is answered.
    pub(super) fn end_commit(&mut self, fate: Fate) {
        let Some(commit) = self.commit.take() else {
            return;
        };
        let Commit { generation, epoch, offset, metadata, proof } = commit;
        {
            let mut world = self.sim.lock();
            let member = world.group.owner == Some(self.id) && world.group.generation == generation;
            if !member || fate == Fate::Fails {
                return;
            }
            let stored = world.point_without(self.id, &metadata);
            world.group.committed = Some((offset, stored));
        }
        let current = self.partition.as_mut().filter(|state| state.epoch == epoch);
        let Some(state) = current.filter(|_| fate == Fate::Goes) else {
            return;
        };
        state.committed = (offset, metadata.clone());
        if proof && state.restart {
            self.epoch += 1;
            let epoch = self.epoch;
            self.partition = Some(Partition::new(generation, epoch, Some(offset), metadata.clone()));
            self.tell(Event::Assigned { partition: 0, epoch, from: Some(offset), metadata });
        }
    }

    /// Turns the agent off, so that its turns wait, or on.
    pub(super) fn switch(&self, off: bool) {
        let agents = off.then(|| ("a".to_owned(), WhenOff::Wait)).into_iter().collect();
        self.switches.set(Settings { agents, ..Settings::default() });
    }

    /// Whether the supervisor has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.supervisor.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// The supervisor has ended: commits, and leaves the group.
    pub(super) async fn leave(&mut self, fate: Fate) {
        if let Some(supervisor) = self.supervisor.take() {
            match supervisor.await {
                Ok((_, Ok(()))) => {}
                Ok((_, Err(error))) => self.sim.lock().broken(|| format!("a worker stopped: {error}")),
                Err(error) => self.sim.lock().broken(|| format!("a supervisor failed: {error}")),
            }
        }
        self.end_commit(Fate::Goes);
        self.send_commit();
        self.end_commit(fate);
        let mine = self.sim.lock().group.owner == Some(self.id);
        if mine {
            self.give_back();
        }
        self.sim.lock().forget(self.id);
    }

    /// By `kill -9`. A commit that is on its way may still land.
    pub(super) fn kill(&mut self) {
        if self.sim.lock().rng.once_in(2) {
            self.end_commit(Fate::Unheard);
        }
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.abort();
        }
        self.sim.lock().forget(self.id);
    }
}
