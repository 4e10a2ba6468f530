//! System calls of a call, as `strace` counts them while it watches.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::Outcome;
use crate::contenders::{BenchSite, Contender};
use crate::load::Load;
use crate::modes::{self, Mode};
use crate::process::Running;

/// The name in `--only`.
pub(crate) const NAME: &str = "syscalls";

/// The measured modes, over one connection, so that calls share no wake-up.
const MODES: [&str; 2] = ["chat-1", "burst-100"];
const CALLS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(10);

/// System calls of one contender in one mode.
#[derive(Debug, Serialize)]
pub(crate) struct SyscallCount {
    pub(crate) mode: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) per_call: f64,
    /// The most frequent ones, in words.
    pub(crate) mostly: String,
}

/// Counts for one contender after the other. Each is slow under strace, so nothing else is measured here.
pub(crate) async fn measure(contenders: &[Contender], field: &BenchSite<'_>) -> Outcome<Vec<SyscallCount>> {
    let mut counted = Vec::new();
    for mode in MODES.iter().filter_map(|name| modes::named(name)) {
        for contender in contenders {
            eprintln!("{NAME}: {}, {}", mode.name, contender.name());
            counted.push(count(*contender, mode, field).await?);
        }
    }
    Ok(counted)
}

async fn count(contender: Contender, mode: Mode, field: &BenchSite<'_>) -> Outcome<SyscallCount> {
    let started = contender.start(field)?;
    let load = Load::new(&mode, &started.socket);
    let clients = load.open().await?;
    let seen = field.scratch.join(NAME);
    let mut strace = watch(&started.pids, &seen)?;
    let round = load.round(clients, CALLS).await;
    if let Some(fault) = round.faults.first() {
        return Err(format!("{} under strace: {fault}", contender.name()).into());
    }
    kill(Pid::from_raw(strace.pid()), Signal::SIGINT)?;
    let asked = Instant::now();
    while strace.ended()?.is_none() && asked.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rows = table(&fs::read_to_string(&seen)?);
    let total: u64 = rows.iter().map(|(_, calls)| calls).sum();
    let per_call = |calls: u64| calls as f64 / CALLS as f64;
    let mostly: Vec<_> = rows
        .iter()
        .filter(|(_, calls)| per_call(*calls) >= 0.05)
        .map(|(name, calls)| format!("{name} {:.1}", per_call(*calls)))
        .collect();
    Ok(SyscallCount {
        mode: mode.name,
        contender: contender.name(),
        per_call: per_call(total),
        mostly: mostly.join(", "),
    })
}

/// Starts strace, and returns once it watches all threads of these processes.
fn watch(pids: &[i32], to: &Path) -> Outcome<Running> {
    let mut command = Command::new("strace");
    command.args(["-f", "-q", "-c", "-o"]).arg(to);
    for pid in pids {
        command.args(["-p", &pid.to_string()]);
    }
    let strace = Running::spawn(command.stdin(Stdio::null()))?;
    let begun = Instant::now();
    while !pids.iter().all(|pid| is_watched(*pid)) {
        if begun.elapsed() > PATIENCE {
            return Err("strace does not get hold of the contender; it takes root".into());
        }
        std::thread::yield_now();
    }
    Ok(strace)
}

/// Returns true if every thread of a process has a tracer.
fn is_watched(pid: i32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    })
}

/// Returns names and numbers of system calls, the most frequent first. The columns of the text: share, seconds, µs a
/// call, calls, errors if any, name.
fn table(text: &str) -> Vec<(String, u64)> {
    let mut rows: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let name = words.last().filter(|name| **name != "total")?;
            words.first()?.parse::<f64>().ok()?;
            Some(((*name).to_owned(), words.get(3)?.parse().ok()?))
        })
        .collect();
    rows.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    rows
}
