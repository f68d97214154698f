//! Contestants side by side: each works off the same turns on topics of its own, in turn, several rounds.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::BaseConsumer;
use rdkafka::message::Message as _;
use rdkafka::producer::Producer as _;
use serde_json::Value;

use crate::contestant::Contestant;
use crate::report::{RATE, Report};
use crate::run::{Result, Run, Work, each, well};

/// Who takes part, and with how many turns: as many as it works off in some seconds.
pub struct Entrant {
    pub name: &'static str,
    pub contestant: Contestant,
    pub turns: usize,
}

/// What is raced.
pub struct Race<'a> {
    pub brokers: &'a str,
    pub name: &'a str,
    pub work: Work,
    pub partitions: i32,
    pub sessions: usize,
    pub rounds: usize,
}

impl Race<'_> {
    fn run(&self) -> Result<Run> {
        Run::new(self.brokers, "race", self.partitions, self.sessions)
    }

    /// How many turns a second each works off that come all at once, from when the first is sent to when the last
    /// result is read. What a record says of its time is when a client took it in, which may be long before. The medians, by
    /// name.
    pub fn burst(&self, entrants: &[Entrant], report: &mut Report) -> Result<HashMap<&'static str, f64>> {
        println!("\n{}: over {} sessions on {} partitions", self.name, self.sessions, self.partitions);
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); entrants.len()];
        // The first round is for the broker, and for what compiles as it runs.
        for round in 0..=self.rounds {
            for (entrant, rates) in entrants.iter().zip(&mut rates) {
                let turns = if round == 0 { entrant.turns / 4 + 1 } else { entrant.turns };
                let rate = self.rate(&entrant.contestant, turns)?;
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        Ok(tell(self.name, entrants, RATE, rates, report))
    }

    /// As [`Self::burst`], of one run of one contestant.
    pub fn rate(&self, contestant: &Contestant, turns: usize) -> Result<f64> {
        let mut run = self.run()?;
        let running = contestant.start(&run)?;
        let results = self.warm(&mut run)?;
        let made = run.make(self.work, turns);
        let begun = Instant::now();
        run.send_all(&made)?;
        each(&results, turns, well)?;
        let took = begun.elapsed();
        running.stop()?;
        Ok(turns as f64 / took.as_secs_f64())
    }

    /// How long turns take that come steadily, from when each is sent until its result is read: the medians, by name.
    pub fn steady(
        &self,
        per_second: usize,
        seconds: usize,
        entrants: &[Entrant],
        report: &mut Report,
    ) -> Result<HashMap<&'static str, f64>> {
        println!("\n{}: {per_second} turns/s for {seconds} s", self.name);
        let (mut p50s, mut p99s) = (vec![Vec::new(); entrants.len()], vec![Vec::new(); entrants.len()]);
        for _ in 0..self.rounds {
            for (index, entrant) in entrants.iter().enumerate() {
                let run = self.run()?;
                let running = entrant.contestant.start(&run)?;
                let mut took = self.latencies(run, per_second, seconds)?;
                running.stop()?;
                took.sort_by(f64::total_cmp);
                let quantile =
                    |q: f64| took.get((took.len() as f64 * q) as usize).copied().unwrap_or(f64::NAN);
                p50s[index].push(quantile(0.5));
                p99s[index].push(quantile(0.99));
            }
        }
        let p50s = tell(&format!("{}, p50", self.name), entrants, "ms", p50s, report);
        tell(&format!("{}, p99", self.name), entrants, "ms", p99s, report);
        Ok(p50s)
    }

    /// Some turns one after the other: everything is connected then. Returns a reader of the results after those.
    fn warm(&self, run: &mut Run) -> Result<BaseConsumer> {
        let (results, producer) = (run.results()?, run.producer("0")?);
        for _ in 0..20 {
            run.send(&producer, self.work)?;
            each(&results, 1, well)?;
        }
        Ok(results)
    }

    /// In milliseconds. What comes in the first third is not counted.
    fn latencies(&self, mut run: Run, per_second: usize, seconds: usize) -> Result<Vec<f64>> {
        let results = self.warm(&mut run)?;
        let producer = run.producer("0")?;
        let count = per_second * seconds;
        let (first, begin) = (run.turns, Instant::now());
        let sender = std::thread::spawn({
            let work = self.work;
            move || -> std::result::Result<(Vec<Instant>, Run), String> {
                let mut sent = Vec::with_capacity(count);
                for n in 0..count {
                    let due = begin + Duration::from_secs_f64(n as f64 / per_second as f64);
                    producer.poll(Duration::ZERO);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    sent.push(Instant::now());
                    run.send(&producer, work).map_err(|e| e.to_string())?;
                }
                producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())?;
                Ok((sent, run))
            }
        });
        let mut came = Vec::with_capacity(count);
        each(&results, count, |message| {
            well(message)?;
            let result: Value = serde_json::from_slice(message.payload().unwrap_or_default())?;
            let turn = result["turn_id"].as_str().and_then(|id| id.strip_prefix("t-")).ok_or("no turn id")?;
            came.push((turn.parse::<usize>()? - first, Instant::now()));
            Ok(())
        })?;
        let (sent, _run) = sender.join().map_err(|_| "the sender panicked")??;
        let counted = came.into_iter().filter(|(turn, _)| *turn >= count / 3);
        Ok(counted.map(|(turn, at)| at.duration_since(sent[turn]).as_secs_f64() * 1e3).collect())
    }
}

fn tell(
    workload: &str,
    entrants: &[Entrant],
    unit: &str,
    figures: Vec<Vec<f64>>,
    report: &mut Report,
) -> HashMap<&'static str, f64> {
    let rows = entrants.iter().zip(figures);
    rows.map(|(entrant, figures)| (entrant.name, report.row(workload, entrant.name, unit, figures))).collect()
}
