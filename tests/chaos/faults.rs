//! What befalls the workers and the broker, by chance from the seed.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::fleet::{Fleet, State};
use crate::rng::Rng;
use crate::turns::Progress;

/// As many workers as run at one time, those that are stopped not counted.
const WORKERS: usize = 4;
/// From the end of a broker's restart to the next one at least.
const BROKER_REST: Duration = Duration::from_secs(25);
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    Stop,
    End,
    Add,
    Broker,
}

/// What is dealt out, again and again in another order, so that a short time has its share of each.
const DECK: [Fault; 12] = {
    use Fault::{Add, End, Kill, Stop};
    [Kill, Kill, Kill, Kill, Kill, Kill, Stop, Stop, Stop, End, Add, Add]
};

pub struct Faults<'a> {
    pub fleet: &'a mut Fleet,
    pub broker: &'a Broker,
    pub progress: &'a Progress,
    pub rng: Rng,
    pub counts: BTreeMap<Fault, usize>,
    deck: Vec<Fault>,
    restarting: Option<JoinHandle<()>>,
    rested: Instant,
}

impl<'a> Faults<'a> {
    pub fn new(fleet: &'a mut Fleet, broker: &'a Broker, progress: &'a Progress, rng: Rng) -> Self {
        Self {
            fleet,
            broker,
            progress,
            rng,
            counts: BTreeMap::new(),
            deck: Vec::new(),
            restarting: None,
            rested: Instant::now() - BROKER_REST,
        }
    }

    /// Does harm for `time`, and on until there were so many kills, for twice as long at most; then mends everything.
    pub fn run(&mut self, time: Duration, kills: usize, mut watch: impl FnMut()) {
        let begin = Instant::now();
        let mut next = begin + Duration::from_secs(2);
        while begin.elapsed() < time || (self.count(Fault::Kill) < kills && begin.elapsed() < 2 * time) {
            self.tick();
            watch();
            if Instant::now() < next {
                continue;
            }
            // Once at least, however short the time.
            if self.rng.percent(4) || (begin.elapsed() > time / 2 && self.count(Fault::Broker) == 0) {
                self.inflict(Fault::Broker);
            }
            // Some at once, then a calm in which somebody may get somewhere.
            for _ in 0..=self.rng.below(3) {
                let fault = self.deal();
                self.inflict(fault);
            }
            next = Instant::now() + self.rng.millis(1_500..4_500);
        }
        self.fleet.go_on(true);
        while self.restarting.is_some() {
            self.tick();
        }
    }

    pub fn count(&self, fault: Fault) -> usize {
        self.counts.get(&fault).copied().unwrap_or(0)
    }

    fn tick(&mut self) {
        if let Some(thread) = self.restarting.take_if(|thread| thread.is_finished()) {
            thread.join().unwrap();
            self.rested = Instant::now() + BROKER_REST;
        }
        let wait = self.rng.millis(0..400);
        self.fleet.claimed(self.progress.claims.load(Ordering::SeqCst), wait);
        self.fleet.tick(self.restarting.is_none());
        // Somebody is there at all times.
        if self.fleet.count() == 0 {
            self.fleet.start_after(Duration::ZERO);
        }
        sleep(TICK);
    }

    fn deal(&mut self) -> Fault {
        if self.deck.is_empty() {
            self.deck = DECK.to_vec();
        }
        let index = self.rng.index(self.deck.len());
        self.deck.swap_remove(index)
    }

    fn inflict(&mut self, fault: Fault) {
        let done = match fault {
            Fault::Kill => self.kill(),
            Fault::Stop => {
                let time = self.rng.millis(3_500..6_000);
                let claims = self.rng.percent(75).then(|| self.progress.claims.load(Ordering::SeqCst));
                let stopped = self.pick(|s| s == State::Running);
                let stopped = stopped.inspect(|number| self.fleet.stop(*number, time, claims));
                stopped.map(|_| self.replace()).is_some()
            }
            Fault::End => {
                let ended = self.pick(|s| s == State::Running);
                ended.inspect(|number| self.fleet.end(*number)).map(|_| self.replace()).is_some()
            }
            Fault::Add => {
                let room = self.fleet.count() < WORKERS;
                room.then(|| self.fleet.start_after(Duration::ZERO)).is_some()
            }
            Fault::Broker => self.restart(),
        };
        if done {
            *self.counts.entry(fault).or_default() += 1;
        }
    }

    /// A worker in whatever state, now and then two at once.
    fn kill(&mut self) -> bool {
        let mut killed = false;
        for _ in 0..if self.rng.percent(10) { 2 } else { 1 } {
            let Some(number) = self.pick(|_| true) else {
                break;
            };
            if killed {
                *self.counts.entry(Fault::Kill).or_default() += 1;
            }
            let before = self.fleet.count();
            self.fleet.kill(number);
            // One that was leaving needs no successor.
            if self.fleet.count() < before {
                self.replace();
            }
            killed = true;
        }
        killed
    }

    /// Another one, mostly at once.
    fn replace(&mut self) {
        let wait = if self.rng.percent(70) { Duration::ZERO } else { self.rng.millis(200..2_500) };
        if self.fleet.count() < 2 || self.rng.percent(85) {
            self.fleet.start_after(wait);
        }
    }

    fn pick(&mut self, fits: impl Fn(State) -> bool) -> Option<usize> {
        let those = self.fleet.those(fits);
        (!those.is_empty()).then(|| those[self.rng.index(those.len())])
    }

    fn restart(&mut self) -> bool {
        if self.restarting.is_some() || self.rested > Instant::now() {
            return false;
        }
        let signal = if self.rng.percent(60) { "KILL" } else { "TERM" };
        let restart = self.broker.restart();
        self.restarting = restart.map(|restart| std::thread::spawn(move || restart(signal)));
        self.restarting.is_some()
    }
}
