//! One history: seeded choices of what happens next, then an end in which nothing goes wrong any more.

use std::time::Duration;

use super::check;
use super::log::Of;
use super::process::Process;
use super::world::{Fate, Gate, Rule, Sent, Sim};
use crate::journal;

/// How many steps the end may take before somebody waits for ever.
const PATIENCE: usize = 20_000;

/// What a history came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Told {
    pub turns: usize,
    pub claims: usize,
    pub processes: usize,
    pub events: usize,
}

/// Plays the history of a seed.
///
/// # Errors
/// The first promise that was broken.
pub(super) async fn play(seed: u64, exactly_once: bool, without: Option<Rule>) -> Result<Told, String> {
    let sim = Sim::new(seed, exactly_once, without);
    let mut history = History::new(&sim);
    let played = history.play().await;
    if history.aloud {
        sim.lock().print();
    }
    history.processes.iter_mut().for_each(Process::kill);
    // Nobody waits for anything any more.
    sim.lock().waiting.clear();
    sim.lock().clients.clear();
    settle().await;
    played?;
    let world = sim.lock();
    check::whole(&world)?;
    let claims = world.events.records.iter().filter(|record| record.key.starts_with("claim@")).count();
    let (turns, events) = (world.turns.len(), world.events.records.len());
    Ok(Told { turns, claims, processes: history.started, events })
}

/// Everything that can happen now has happened: the clock is paused, and moves only then.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

struct History {
    sim: Sim,
    processes: Vec<Process>,
    started: usize,
    /// How many turns are still to be produced.
    turns: usize,
    /// How many things may still go wrong.
    faults: usize,
    /// Whether each step is printed.
    aloud: bool,
}

/// What may happen next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Produce,
    Join,
    Expire,
    Poll(usize),
    Continue(usize),
    Release(usize),
    Land(usize, usize),
    Acknowledge(usize),
    Read(usize),
    Commit(usize),
    EndCommit(usize),
    Fault,
}

impl History {
    fn new(sim: &Sim) -> Self {
        let mut world = sim.lock();
        let turns = 1 + world.rng.below(4);
        let faults = 2 + world.rng.below(12);
        let aloud = std::env::var_os("TURNMILL_ALOUD").is_some();
        drop(world);
        let mut history = Self { sim: sim.clone(), processes: Vec::new(), started: 0, turns, faults, aloud };
        history.start();
        history.start();
        history
    }

    fn start(&mut self) {
        self.processes.push(Process::start(&self.sim, self.started));
        self.started += 1;
    }

    async fn play(&mut self) -> Result<(), String> {
        while self.faults > 0 || self.turns > 0 {
            self.step().await?;
        }
        for process in &mut self.processes {
            process.stopped = false;
            process.switch(false);
        }
        for _ in 0..PATIENCE {
            if self.is_over() {
                // Whoever does not know it yet goes on.
                for _ in 0..20 {
                    self.step().await?;
                }
                return Ok(());
            }
            self.step().await?;
        }
        let world = self.sim.lock();
        match world.unanswered() {
            Some(sent) => {
                Err(format!("{}/{} has no result, and nothing is left to do", sent.session, sent.turn))
            }
            None => Err(format!("all have results, and {:?} is what is committed", world.group.committed)),
        }
    }

    fn is_over(&self) -> bool {
        let world = self.sim.lock();
        let end = world.turns.len();
        let read = match &world.group.committed {
            Some((offset, _)) => *offset == end as i64,
            // The group was reset, and retention has taken all turns.
            None => world.turns_begin == end,
        };
        read && world.unanswered().is_none()
    }

    async fn step(&mut self) -> Result<(), String> {
        let next = self.choose();
        if self.aloud {
            let world = self.sim.lock();
            let waiting: Vec<_> = world.waiting.iter().map(|w| (w.gate, w.process)).collect();
            let (owner, committed) = (world.group.owner, &world.group.committed);
            let (begin, turns) = (world.events.begin, world.turns_begin..world.turns.len());
            println!(
                "{next:?}: turns {turns:?}, events from {begin}, owner {owner:?}, committed {committed:?}, \
                 waiting {waiting:?}"
            );
        }
        self.happen(next);
        settle().await;
        for index in (0..self.processes.len()).rev() {
            if self.processes[index].has_ended() {
                let mut process = self.processes.swap_remove(index);
                let fate = if self.faults > 0 && self.once_in(3) { Fate::Fails } else { Fate::Goes };
                process.leave(fate).await;
            }
        }
        while self.processes.len() < 2 {
            self.start();
        }
        match self.sim.lock().broken.take() {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    fn once_in(&self, n: usize) -> bool {
        self.sim.lock().rng.once_in(n)
    }

    fn below(&self, n: usize) -> usize {
        self.sim.lock().rng.below(n)
    }

    fn choose(&mut self) -> Next {
        let world = &mut *self.sim.lock();
        let mut all: Vec<(usize, Next)> = Vec::with_capacity(24);
        if self.turns > 0 {
            all.push((3, Next::Produce));
        }
        if self.faults > 0 {
            all.push((2, Next::Fault));
        }
        match world.group.owner {
            None => all.push((6, Next::Join)),
            Some(owner) if self.processes.iter().all(|process| process.id != owner) => {
                all.push((2, Next::Expire))
            }
            Some(_) => {}
        }
        let end = world.events.records.len();
        for (index, process) in self.processes.iter().enumerate() {
            if process.stopped {
                all.push((1, Next::Continue(index)));
                continue;
            }
            all.push((4, Next::Poll(index)));
            all.push((
                if process.is_committing() { 4 } else { 2 },
                match process.is_committing() {
                    true => Next::EndCommit(index),
                    false => Next::Commit(index),
                },
            ));
            if world.clients.get(&process.id).is_some_and(|client| *client.seen.borrow() < end) {
                all.push((8, Next::Read(index)));
            }
        }
        let runs = |id: usize| self.processes.iter().any(|process| process.id == id && !process.stopped);
        // What a process sent before it stopped or died lands all the same.
        for (id, client) in &world.clients {
            for (through, _) in client.appends.iter().enumerate().filter(|(_, appends)| !appends.is_empty()) {
                all.push((if runs(*id) { 8 } else { 1 }, Next::Land(*id, through)));
            }
        }
        for (index, waiting) in world.waiting.iter().enumerate() {
            if runs(waiting.process) {
                all.push((5, Next::Release(index)));
            }
        }
        for (index, ack) in world.acks.iter().enumerate() {
            if runs(ack.process) {
                all.push((6, Next::Acknowledge(index)));
                break;
            }
        }
        let total = all.iter().map(|(weight, _)| weight).sum();
        let mut pick = world.rng.below(total);
        for (weight, next) in all {
            match pick.checked_sub(weight) {
                None => return next,
                Some(left) => pick = left,
            }
        }
        Next::Produce
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Produce => self.produce(),
            Next::Join => {
                let up: Vec<usize> = self.processes.iter().filter(|p| !p.stopped).map(|p| p.id).collect();
                let world = &mut *self.sim.lock();
                if !up.is_empty() {
                    let owner = up[world.rng.below(up.len())];
                    world.group.owner = Some(owner);
                    world.group.generation += 1;
                    world.group.revoking = false;
                }
            }
            Next::Expire => self.expire(),
            Next::Poll(index) => {
                let records = if self.once_in(2) { 1 } else { self.below(4) };
                self.processes[index].poll(records);
            }
            Next::Continue(index) => self.processes[index].stopped = false,
            Next::Release(index) => self.release(index),
            Next::Land(id, through) => self.land(id, through),
            Next::Acknowledge(index) => {
                let world = &mut *self.sim.lock();
                let process = world.acks[index].process;
                let all = !world.rng.once_in(3);
                let mut left = Vec::new();
                let mut done = 0;
                for ack in std::mem::take(&mut world.acks) {
                    if ack.process == process && (all || done == 0) {
                        done += 1;
                        let _ = ack.ack.send(Ok(ack.offset));
                    } else {
                        left.push(ack);
                    }
                }
                world.acks = left;
            }
            Next::Read(index) => {
                let world = &mut *self.sim.lock();
                let end = world.events.records.len();
                let id = self.processes[index].id;
                let seen = *world.clients[&id].seen.borrow();
                let to = if world.rng.once_in(3) { seen + 1 + world.rng.below(end - seen) } else { end };
                world.clients[&id].seen.send_replace(to);
            }
            Next::Commit(index) => self.processes[index].send_commit(),
            Next::EndCommit(index) => {
                let fate = match self.below(24) {
                    0 if self.faults > 0 => Fate::Fails,
                    1 if self.faults > 0 => Fate::Unheard,
                    _ => Fate::Goes,
                };
                self.processes[index].end_commit(fate);
            }
            Next::Fault => {
                self.faults -= 1;
                self.fault();
            }
        }
    }

    fn produce(&mut self) {
        let world = &mut *self.sim.lock();
        if world.turns.len() > world.turns_begin && world.rng.once_in(12) {
            // A producer sends it again.
            let again = world.turns_begin + world.rng.below(world.turns.len() - world.turns_begin);
            let Sent { session, turn, value } = &world.turns[again];
            let copy = Sent { session: session.clone(), turn: turn.clone(), value: value.clone() };
            world.turns.push(copy);
            return;
        }
        self.turns -= 1;
        let session = format!("s{}", world.rng.below(2));
        let turn = format!("t{}", world.turns.len());
        const SHAPES: [&str; 9] = ["", "", "x", "x", "xr", "x,x", "r,xx", "nx", "b"];
        const CODED: [&str; 9] = ["x,x", "xx,xr", "s,x", "o,i", "v,xi", "m,x", "b,x", "n,x", "x,bs"];
        let (agent, shapes) = if world.rng.once_in(4) { ("c", &CODED) } else { ("a", &SHAPES) };
        let shape = shapes[world.rng.below(shapes.len())];
        let value = format!(
            r#"{{"session_id":"{session}","turn_id":"{turn}","agent":"{agent}","input":"go","metadata":{{"session":"{session}","turn":"{turn}","shape":"{shape}"}}}}"#
        );
        world.turns.push(Sent { session, turn, value });
    }

    fn release(&mut self, index: usize) {
        let world = &mut *self.sim.lock();
        let fails = self.faults > 0 && world.rng.once_in(25);
        let waiting = world.waiting.swap_remove(index);
        let fate = match (fails, waiting.gate) {
            (false, _) => Fate::Goes,
            (true, Gate::Publish | Gate::Commit) if world.rng.once_in(2) => Fate::Unheard,
            (true, _) => Fate::Fails,
        };
        let _ = waiting.tell.send(fate);
    }

    /// Some of what a process has sent through a producer arrives, in order.
    fn land(&mut self, id: usize, through: usize) {
        let world = &mut *self.sim.lock();
        let waiting = world.clients[&id].appends[through].len();
        let count = if world.rng.once_in(3) { 1 + world.rng.below(waiting) } else { waiting };
        for _ in 0..count {
            let client = world.clients.get_mut(&id);
            let Some(append) = client.and_then(|client| client.appends[through].pop_front()) else {
                return;
            };
            let fails = self.faults > 0 && world.rng.once_in(60);
            let lost = fails && world.rng.once_in(2);
            if !lost {
                let is_claim = append.key.starts_with("claim@");
                let offset = world.events.push(append.key, append.value, Of::None);
                if is_claim && self.processes.iter().any(|process| process.id == id) {
                    world.restoring.insert(id, offset);
                }
                let offset = offset as i64;
                if !fails {
                    world.acks.push(super::log::Ack { process: id, offset, ack: append.ack });
                    continue;
                }
            }
            let _ = append.ack.send(Err(journal::Error::Log("timed out".into())));
        }
    }

    fn fault(&mut self) {
        let any = self.below(self.processes.len());
        match self.below(18) {
            0 | 1 => {
                let mut process = self.processes.swap_remove(any);
                process.kill();
                // A session times out later; until then the partition is nobody else's.
                if self.once_in(2) {
                    self.expire();
                }
                self.start();
            }
            2 | 3 => {
                self.processes[any].stopped = true;
                if !self.once_in(3) {
                    self.expire();
                }
            }
            4..=6 => self.expire(),
            7 => {
                let group = &mut self.sim.lock().group;
                group.revoking = group.owner.is_some();
            }
            8..=11 => {
                let world = &mut *self.sim.lock();
                let end = world.events.records.len();
                let end = world.restoring.values().copied().fold(end, usize::min);
                let to = if world.rng.once_in(2) { end } else { world.rng.below(end + 1) };
                let without = world.without;
                world.events.compact(to, without);
            }
            12 => self.sim.lock().retain(),
            13 => {
                self.expire();
                let world = &mut *self.sim.lock();
                let kind = world.rng.below(4);
                let begin = world.turns_begin;
                let Some((offset, metadata)) = world.group.committed.clone() else {
                    return;
                };
                let back = begin + world.rng.below(offset as usize + 1 - begin);
                world.group.committed = match kind {
                    0 => None,
                    1 => Some((offset, String::new())),
                    2 => Some((back as i64, metadata)),
                    _ => Some((back as i64, String::new())),
                };
            }
            16 => self.processes[any].switch(true),
            17 => self.processes[any].switch(false),
            14 => self.processes[any].shutdown.cancel(),
            _ => {
                // The coordinator gives an open transaction up.
                let world = &mut *self.sim.lock();
                if world.transactional.open.is_some() {
                    world.end_transaction(false);
                    world.transactional.epoch += 1;
                }
            }
        }
    }

    /// The group goes on without the owner, who does not know yet.
    fn expire(&mut self) {
        let group = &mut self.sim.lock().group;
        (group.owner, group.revoking) = (None, false);
        group.generation += 1;
    }
}
