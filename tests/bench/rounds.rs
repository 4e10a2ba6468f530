//! Measures one mode: each round has all contenders, one after the other, so that the noise of the machine is the same
//! for all.

use std::time::Duration;

use serde::Serialize;

use crate::Outcome;
use crate::contenders::{BenchSite, Contender, Started};
use crate::load::{Load, LoadResult};
use crate::measure::{self, Cores, Memory};
use crate::modes::Mode;
use crate::options::Options;
use crate::wire;

/// The figures of one contender in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    /// CPU of the contender's process tree, microseconds.
    pub(crate) cpu_us_per_call: f64,
    /// Latency of a call, microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Time to the first byte of the answer, microseconds.
    pub(crate) first_p50_us: f64,
    /// Latency of a chunk, from the upstream's stamp to the client, microseconds; paced streams only.
    pub(crate) chunk_p50_us: Option<f64>,
    pub(crate) chunk_p99_us: Option<f64>,
    pub(crate) calls_per_s: f64,
}

/// The figures of one contender in one mode.
#[derive(Debug, Serialize)]
pub(crate) struct Result {
    pub(crate) contender: &'static str,
    pub(crate) calls_per_round: usize,
    /// Rounds in order: round N of one contender is compared with round N of another.
    pub(crate) rounds: Vec<Round>,
    /// Memory at the end of the mode; the peak is of the complete mode, without the set-up.
    pub(crate) memory: Memory,
    /// Disk syncs per call in the complete mode; only for the contender whose calls wait for the disk.
    pub(crate) syncs_per_call: Option<f64>,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
}

/// One table of the report.
#[derive(Debug, Serialize)]
pub(crate) struct ModeResult {
    pub(crate) mode: &'static str,
    pub(crate) title: &'static str,
    pub(crate) chunks: usize,
    pub(crate) results: Vec<Result>,
}

/// A contender in its mode.
struct ModeEntry {
    contender: Contender,
    started: Started,
    load: Load,
    calls: usize,
    result: Result,
}

/// Starts all contenders anew, warms each up, measures the rounds, and ends them.
pub(crate) async fn measure(
    mode: Mode,
    contenders: &[Contender],
    field: &BenchSite<'_>,
    cores: Option<&Cores>,
    options: &Options,
) -> Outcome<ModeResult> {
    let mut entrants = Vec::new();
    for contender in contenders {
        let mut entrant = ModeEntry::enter(*contender, &mode, field, cores)?;
        entrant.warm_up(&mode).await?;
        entrants.push(entrant);
    }
    for round in 0..options.rounds() {
        let count = entrants.len();
        // Each round begins with another contender.
        for place in 0..count {
            entrants[(place + round) % count].round().await?;
        }
    }
    let results = entrants.into_iter().map(ModeEntry::finish).collect::<Outcome<_>>()?;
    Ok(ModeResult { mode: mode.name, title: mode.title, chunks: mode.chunks(), results })
}

impl ModeEntry {
    fn enter(contender: Contender, mode: &Mode, field: &BenchSite<'_>, cores: Option<&Cores>) -> Outcome<Self> {
        let started = contender.start(field)?;
        if let Some(cores) = cores {
            cores.pin_contender(&started.pids)?;
        }
        let load = Load::new(mode, &started.socket);
        let calls = contender.calls(mode.calls, mode.ask);
        let result = Result {
            contender: contender.name(),
            calls_per_round: calls,
            rounds: Vec::new(),
            memory: Memory::default(),
            syncs_per_call: None,
            errors: 0,
            first_error: None,
        };
        Ok(Self { contender, started, load, calls, result })
    }

    /// Checks which key and account the upstream sees, then makes calls until the contender is warm.
    async fn warm_up(&mut self, mode: &Mode) -> Outcome<()> {
        if let Err(fault) = self.load.signed(self.contender.signs()).await {
            self.fault(format!("the upstream did not see the right key and account: {fault}"));
        }
        measure::reset_peak(&self.started.pids)?;
        let calls = self.contender.calls(mode.quick_calls, mode.ask);
        match self.load.open().await {
            Ok(clients) => {
                let seen = self.load.round(clients, calls).await;
                self.count(seen.faults);
            }
            Err(fault) => self.fault(fault),
        }
        Ok(())
    }

    async fn round(&mut self) -> Outcome<()> {
        if self.result.errors > 0 {
            return Ok(());
        }
        let clients = match self.load.open().await {
            Ok(clients) => clients,
            Err(fault) => {
                self.fault(fault);
                return Ok(());
            }
        };
        self.quiet().await;
        let before = measure::cpu_ns(&self.started.pids)?;
        let seen = self.load.round(clients, self.calls).await;
        self.quiet().await;
        let after = measure::cpu_ns(&self.started.pids)?;
        if seen.faults.is_empty() {
            self.result.rounds.push(figures(&seen, after - before));
        }
        self.count(seen.faults);
        Ok(())
    }

    /// Lets current work end: the kernel's figures are exact for sleeping threads.
    async fn quiet(&self) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    fn count(&mut self, faults: Vec<String>) {
        for fault in faults {
            self.fault(fault);
        }
    }

    fn fault(&mut self, fault: String) {
        self.result.errors += 1;
        self.result.first_error.get_or_insert(fault);
    }

    fn finish(mut self) -> Outcome<Result> {
        self.result.memory = measure::memory(&self.started.pids)
            .map_err(|error| format!("{} did not live to the end: {error}", self.contender.name()))?;
        let syncs = self.started.end()?;
        self.result.syncs_per_call = syncs.filter(|_| self.contender == Contender::SluiceSync);
        Ok(self.result)
    }
}

impl Load {
    /// Fails unless the upstream saw our key and account (`signs`), or the client's own.
    async fn signed(&self, signs: bool) -> std::result::Result<(), String> {
        self.once(&wire::signed_request(), wire::SIGNED[usize::from(!signs)]).await
    }
}

fn figures(seen: &LoadResult, cpu_ns: u64) -> Round {
    let calls = seen.calls_ns.len() as f64;
    let call = |share| percentile(&seen.calls_ns, share).map_or(0.0, |ns| ns as f64 / 1e3);
    let chunk = |share| percentile(&seen.chunks_us, share).map(f64::from);
    Round {
        cpu_us_per_call: cpu_ns as f64 / 1e3 / calls,
        p50_us: call(0.50),
        p99_us: call(0.99),
        first_p50_us: percentile(&seen.firsts_ns, 0.50).map_or(0.0, |ns| ns as f64 / 1e3),
        chunk_p50_us: chunk(0.50),
        chunk_p99_us: chunk(0.99),
        calls_per_s: calls / seen.wall.as_secs_f64(),
    }
}

/// Returns the smallest of the sorted values that at least this share of them does not exceed.
pub(crate) fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}
