//! The cost of a run: `sluice run -- true` beside `docker run` of the same image, in turns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde::Serialize;

use crate::Outcome;
use crate::options::Options;
use crate::programs;
use crate::startup::median;

/// The name in `--only`.
pub(crate) const NAME: &str = "runs";

const IMAGE: &str = "sluice-runtime:latest";

/// The figures of one way to run `true`.
#[derive(Debug, Serialize)]
pub(crate) struct Runs {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Wall-clock time of the whole command, in milliseconds, round by round.
    pub(crate) ms: Vec<f64>,
}

/// The timings that `sluice run` reports: name, milliseconds of each round.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Phases(pub(crate) Vec<(String, Vec<f64>)>);

/// Complete runs per minute.
#[derive(Debug, Serialize)]
pub(crate) struct Rate {
    /// Runs at a time.
    pub(crate) at_once: usize,
    /// `docker run --rm`, per minute.
    pub(crate) docker: f64,
    /// `sluice run`, per minute.
    pub(crate) sluice: f64,
}

/// The figures of complete runs.
#[derive(Debug, Serialize)]
pub(crate) struct RunComparison {
    pub(crate) ways: Vec<Runs>,
    pub(crate) phases: Phases,
    pub(crate) rates: Vec<Rate>,
}

/// Measures all ways in turns, so that other work on the machine affects all alike.
pub(crate) fn measure(scratch: &Path, upstream: u16, options: &Options) -> Outcome<RunComparison> {
    let sluice = SluiceRuns::prepare(scratch, upstream)?;
    let mut rows = [
        ("docker-run", "`docker run --rm --network=none IMAGE true`"),
        ("docker-run-hardened", "the same, with the limits, mounts and filters of a sandbox"),
        ("sluice-run", "`sluice run -- true`: sidecar, sandbox, audit log, record, clean-up"),
    ]
    .map(|(name, title)| Runs { name, title, ms: Vec::new() });
    let mut phases = Phases::default();
    // The first run of each is cold, and not counted.
    for round in 0..=if options.quick { 5 } else { 21 } {
        let times = [bare(), hardened(scratch), sluice.command()].map(|mut command| timed(&mut command));
        for (row, time) in rows.iter_mut().zip(times) {
            let (ms, stdout) = time?;
            if round > 0 {
                row.ms.push(ms);
                if row.name == "sluice-run" {
                    phases.add(&stdout)?;
                }
            }
        }
    }
    let rates = [1, 4, 16].map(|at_once| {
        let runs = if options.quick { at_once } else { 4 * at_once.max(4) };
        let docker = per_minute(at_once, runs, bare)?;
        Ok(Rate { at_once, docker, sluice: per_minute(at_once, runs, || sluice.command())? })
    });
    Ok(RunComparison { ways: rows.into(), phases, rates: rates.into_iter().collect::<Outcome<_>>()? })
}

fn per_minute(at_once: usize, runs: usize, command: impl Fn() -> Command + Sync) -> Outcome<f64> {
    let left = AtomicUsize::new(runs);
    let begun = Instant::now();
    let work = || -> Result<(), String> {
        while left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            timed(&mut command()).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a run has panicked".to_owned())?)
    })?;
    Ok(runs as f64 * 60.0 / begun.elapsed().as_secs_f64())
}

struct SluiceRuns {
    program: PathBuf,
    key: PathBuf,
    state: PathBuf,
    upstream: String,
}

impl SluiceRuns {
    fn prepare(scratch: &Path, upstream: u16) -> Outcome<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let key = scratch.join("key");
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key)?;
        std::io::Write::write_all(&mut file, b"sk-bench-0123456789")?;
        Ok(Self {
            program: programs::controller()?,
            key,
            state: scratch.join("state"),
            upstream: format!("http://127.0.0.1:{upstream}"),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["run", "--json", "--quiet", "--upstream", &self.upstream, "--key-file"]);
        command.arg(&self.key).arg("--state-dir").arg(&self.state);
        if let Ok(proxy) = programs::sidecar() {
            command.arg("--proxy").arg(proxy);
        }
        command.args(["--", "true"]);
        command
    }
}

fn bare() -> Command {
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--network=none", IMAGE, "true"]);
    command
}

fn hardened(scratch: &Path) -> Command {
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--network=none", "--init", "--read-only", "--cap-drop=ALL", "--user=1001:1001"]);
    command.args(["--security-opt=no-new-privileges", "--pids-limit=256", "--memory=512m", "--memory-swap=512m"]);
    command.args(["--cpus=1", "--tmpfs=/tmp", "--tmpfs=/run", "--log-driver=local"]);
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/seccomp.json");
    command.arg(format!("--security-opt=seccomp={profile}"));
    command.arg(format!("--volume={}:/workspace", scratch.display()));
    command.args([IMAGE, "true"]);
    command
}

fn timed(command: &mut Command) -> Outcome<(f64, Vec<u8>)> {
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    if output.status.success() {
        Ok((ms, output.stdout))
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{} failed: {}", command.get_program().display(), said.trim()).into())
    }
}

impl Phases {
    fn add(&mut self, report: &[u8]) -> Outcome<()> {
        let report: serde_json::Value = serde_json::from_slice(report)?;
        let timings = report["timings"].as_object().ok_or("a report without timings")?;
        for (name, ms) in timings {
            let ms = ms.as_f64().ok_or("a phase without a time")?;
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(ms),
                None => self.0.push((name.clone(), vec![ms])),
            }
        }
        Ok(())
    }

    /// Returns the medians of the phases, in words.
    pub(crate) fn describe(&self) -> String {
        let words: Vec<_> = self.0.iter().filter_map(|(name, ms)| Some(format!("{name} {:.1}", median(ms)?))).collect();
        words.join(", ")
    }
}

impl Runs {
    /// Returns the median of the ratios to another row, round by round.
    pub(crate) fn ratio(&self, to: &Self) -> Option<f64> {
        median(&self.ms.iter().zip(&to.ms).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }
}
