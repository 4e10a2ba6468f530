//! One audit file, from its first sidecar through all its successors to its end.
//!
//! Each round has a time of load, one or more kills, a check of the file, and a restart of the killed processes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_contract::PublicKey;

use crate::cast::{self, EpisodeFiles, SidecarFlags};
use crate::check::{FileContents, goes_on, takes_over};
use crate::fault::ChaosFault;
use crate::figures::{ChaosFigures, Target};
use crate::process::ChaosProcess;
use crate::random::{moment, pick};
use crate::record::calls_of;
use crate::upstream::UpstreamAddress;
use crate::{Shared, opinions};
use fastrand::Rng;

/// The processes that a round kills; an entry that appears more often is chosen more often.
const STROKES: [&[Target]; 14] = {
    use Target::{Client, Sidecar, Upstream};
    [
        &[Sidecar],
        &[Sidecar],
        &[Sidecar],
        &[Sidecar],
        &[Sidecar],
        &[Sidecar],
        &[Client],
        &[Client],
        &[Upstream],
        &[Upstream],
        &[Upstream],
        &[Sidecar, Client],
        &[Upstream, Sidecar],
        &[Client, Upstream, Sidecar],
    ]
};

/// Approximate length of a call in the upstream's record.
const LINE: u64 = 46;

/// Longest wait for a call.
const LONGEST: Duration = Duration::from_secs(1);

/// Longest times of load after that wait, in milliseconds; most are short.
const MOMENTS: [u64; 4] = [1, 5, 20, 80];

/// Longest time from a start to its kill. A start takes some milliseconds; a kill within them interrupts its recovery.
const START: Duration = Duration::from_millis(12);

/// Runs one episode, to its end or to its first fault.
pub(crate) async fn play(shared: &Shared, stage: EpisodeFiles, host: &str, mut random: Rng) -> Result<(), ChaosFault> {
    let key = cast::audit_key(&stage.dir.join("audit.key"), &mut random)?;
    let address = if random.bool() {
        UpstreamAddress::Unix(stage.dir.join("up.sock"))
    } else {
        UpstreamAddress::Tcp(format!("{host}:0"))
    };
    let (upstream, address) = cast::upstream(&shared.programs, &address, &stage.seen(), random.u64(..)).await?;
    let launch = SidecarFlags::new(&stage, &address, &mut random);
    let workers = 2 + random.u64(..9);
    let client = cast::client(&shared.programs, &stage, random.u64(..), workers)?;
    let mut episode = Episode {
        shared,
        key,
        address,
        launch,
        workers,
        random,
        upstream: Some(upstream),
        client: Some(client),
        sidecar: None,
        known: FileBefore::default(),
        figures: ChaosFigures { files: 1, ..ChaosFigures::default() },
        stage,
    };
    let played = episode.rounds().await;
    // The figures of a wrong file count too.
    shared.add(&episode.figures);
    played
}

/// The content of the file at the last look.
#[derive(Debug, Default)]
struct FileBefore {
    whole: Vec<u8>,
    /// The bytes after the complete lines, or the bytes that a killed start has cut off there.
    torn: Vec<u8>,
    account: Option<FileContents>,
}

struct Episode<'a> {
    shared: &'a Shared,
    stage: EpisodeFiles,
    key: PublicKey,
    address: UpstreamAddress,
    launch: SidecarFlags,
    workers: u64,
    random: Rng,
    upstream: Option<ChaosProcess>,
    client: Option<ChaosProcess>,
    sidecar: Option<ChaosProcess>,
    known: FileBefore,
    figures: ChaosFigures,
}

impl Episode<'_> {
    async fn rounds(&mut self) -> Result<(), ChaosFault> {
        self.look().await?;
        self.mend().await?;
        for round in 0..4 + self.random.u64(..20) {
            let stroke = pick(&mut self.random, &STROKES);
            if !self.shared.takes(stroke.len() as u64) {
                break;
            }
            self.moment().await;
            let during = format!("round {round}, {stroke:?}");
            self.strike(stroke).await.map_err(|fault| fault.during(&during))?;
            self.look().await.map_err(|fault| fault.during(&during))?;
            self.mend().await.map_err(|fault| fault.during(&during))?;
        }
        self.end().await.map_err(|fault| fault.during("the end"))
    }

    /// Waits for some load: for a time, or until some calls have come. Otherwise, a busy machine would kill only idle
    /// processes.
    async fn moment(&mut self) {
        let seen = || fs::metadata(self.stage.seen()).map_or(0, |meta| meta.len());
        let enough = seen() + self.random.u64(..8) * LINE;
        let (waits, begun) = (self.random.u64(..3) > 0, Instant::now());
        while waits && seen() < enough && begun.elapsed() < LONGEST {
            // No signal reports a new call.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let longest = Duration::from_millis(pick(&mut self.random, &MOMENTS));
        tokio::time::sleep(moment(&mut self.random, longest)).await;
    }

    /// Kills all targets at once.
    async fn strike(&mut self, targets: &[Target]) -> Result<(), ChaosFault> {
        let mut struck = Vec::new();
        for target in targets {
            let slot = match target {
                Target::Sidecar => &mut self.sidecar,
                Target::Client => &mut self.client,
                Target::Upstream => &mut self.upstream,
                Target::Controller => return Err(ChaosFault::new("an episode has no controller")),
            };
            let mut victim = slot.take().ok_or_else(|| ChaosFault::new(format!("no {target:?} to kill")))?;
            victim.strike()?;
            struck.push((*target, victim));
        }
        for (target, victim) in struck {
            victim.die().await?;
            self.figures.killed(target);
            self.shared.killed();
        }
        Ok(())
    }

    /// Compares the file with the records of both ends and with its earlier content.
    async fn look(&mut self) -> Result<(), ChaosFault> {
        // The records are read first: calls that were seen by now must be in a file that is read afterwards.
        let whole_answers = calls_of(&self.stage.whole(), &self.stage.run_id)?;
        let seen = calls_of(&self.stage.seen(), &self.stage.run_id)?;
        let bytes = read(&self.stage.audit())?;
        goes_on(&self.known.whole, &bytes)?;
        let account = FileContents::of(&bytes, &self.key)?;
        self.figures.calls = seen.len() as u64;
        self.figures.answers = whole_answers.len() as u64;
        self.figures.intents = account.intents.len() as u64;
        self.figures.outcomes = account.outcomes.len() as u64;
        account.answers_for(&seen, &whole_answers)?;
        let (whole, torn) = bytes.split_at(account.whole);
        self.known = FileBefore {
            torn: if torn.is_empty() { read(&self.stage.aside(whole.len()))? } else { torn.to_vec() },
            whole: whole.to_vec(),
            account: Some(account),
        };
        if self.sidecar.is_none() {
            self.figures.torn += u64::from(!torn.is_empty());
            if self.random.u64(..24) == 0 {
                self.ask_others().await?;
            }
        }
        Ok(())
    }

    async fn ask_others(&self) -> Result<(), ChaosFault> {
        match &self.known.account {
            Some(account) if !self.known.whole.is_empty() => {
                opinions::agree(&self.shared.programs, &self.stage.audit(), &self.key, &account.verdict).await
            }
            _ => Ok(()),
        }
    }

    /// Restarts the killed processes, in any order.
    async fn mend(&mut self) -> Result<(), ChaosFault> {
        if self.random.bool() {
            self.mend_sidecar().await?;
        }
        if self.upstream.is_none() {
            let seed = self.random.u64(..);
            let (upstream, address) =
                cast::upstream(&self.shared.programs, &self.address, &self.stage.seen(), seed).await?;
            (self.upstream, self.address) = (Some(upstream), address);
        }
        if self.client.is_none() {
            let seed = self.random.u64(..);
            self.client = Some(cast::client(&self.shared.programs, &self.stage, seed, self.workers)?);
        }
        self.mend_sidecar().await
    }

    /// Starts a sidecar that takes over. Some sidecars are killed while they do.
    async fn mend_sidecar(&mut self) -> Result<(), ChaosFault> {
        while self.sidecar.is_none() {
            let mut sidecar = self.launch.begin(&self.shared.programs).await?;
            let pid = sidecar.pid();
            if self.random.u64(..5) == 0 && self.shared.takes(1) {
                tokio::time::sleep(moment(&mut self.random, START)).await;
                self.sidecar = Some(sidecar);
                self.strike(&[Target::Sidecar]).await?;
                self.took_over(pid)?;
                self.look().await?;
                continue;
            }
            let line = sidecar.first_line().await.map_err(|fault| self.blame(fault))?;
            if !line.contains("\"event\":\"ready\"") {
                return Err(ChaosFault::new(format!("no ready line, but {line}")));
            }
            self.sidecar = Some(sidecar);
            let missing = self.took_over(pid)?;
            // `open` and `epoch` are written before the sidecar is ready.
            if missing > 0 {
                return Err(ChaosFault::new(format!(
                    "the sidecar is ready, and {missing} of its first lines are missing"
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of missing lines among those that a start writes.
    fn took_over(&mut self, pid: u32) -> Result<usize, ChaosFault> {
        let Some(before) = &self.known.account else { return Err(ChaosFault::new("the file was not read before")) };
        let bytes = read(&self.stage.audit())?;
        let missing = takes_over(before, &self.known.torn, goes_on(&self.known.whole, &bytes)?, pid)?;
        self.figures.restarts += u64::from(missing == 0 && before.whole > 0);
        Ok(missing)
    }

    /// Stops the sidecar in order if it runs; a file whose sidecar was killed last has no end, which is not a fault.
    async fn end(&mut self) -> Result<(), ChaosFault> {
        if self.random.bool()
            && let Some(mut client) = self.client.take()
        {
            client.kill().await?;
        }
        if let Some(sidecar) = self.sidecar.take() {
            let status = sidecar.stop().await?;
            if !matches!(status.code(), Some(0 | 3)) {
                return Err(self.blame(ChaosFault::new(format!("the sidecar ended with {status}"))));
            }
            self.look().await?;
            if let Some(account) = &self.known.account {
                account.is_settled()?;
            }
        }
        self.ask_others().await?;
        for mut rest in [self.client.take(), self.upstream.take()].into_iter().flatten() {
            rest.strike()?;
            rest.die().await?;
        }
        let log = fs::read_to_string(self.stage.log())?;
        match log.lines().find(|line| line.contains("panicked")) {
            Some(line) => Err(ChaosFault::new(format!("a sidecar has panicked: {line}"))),
            None => Ok(()),
        }
    }

    /// Adds the last line of the sidecar's log to a fault.
    fn blame(&self, fault: ChaosFault) -> ChaosFault {
        let log = fs::read_to_string(self.stage.log()).unwrap_or_default();
        fault.during(log.lines().next_back().unwrap_or("it has said nothing"))
    }
}

/// Reads a file; a file that does not exist yet counts as empty.
fn read(path: &Path) -> Result<Vec<u8>, ChaosFault> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        bytes => Ok(bytes?),
    }
}
