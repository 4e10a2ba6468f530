//! The processes of a program that was started in a container.
//!
//! API 1.41 has no call that ends an exec, so its processes are found on the host: in the container's namespace, the
//! program, those that have its marker in their environment, and those that descend from such a process or are in its
//! session. A process that escaped all three (a new session, an orphan, a new environment) is not found; it ends with
//! the run, and cannot leave the limits of the run.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sluice_state::process::Process;

/// Maximum time for which processes are searched: one may fork while it is killed, and ends late on a busy machine.
const SEARCHED_FOR: Duration = Duration::from_secs(5);
/// Maximum number of bytes of an environment that are searched for the marker.
const MARKER_ENV_MAX: u64 = 1 << 20;
const PASS_AGAIN: Duration = Duration::from_millis(10);

/// Finds and kills the processes of one program, identified by its marker.
#[derive(Debug, Clone)]
pub(super) struct ProcessTree {
    /// First process of the container.
    pub(super) init: Option<i32>,
    /// Variable with its value, or the beginning of that.
    pub(super) marker: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct ProcessLinks {
    parent: i32,
    session: i32,
}

impl ProcessTree {
    /// Kills all processes that are found, until none is. `pid` is the program's own, if it is known.
    pub(super) async fn kill(&self, pid: Option<i32>) {
        let begun = Instant::now();
        while begun.elapsed() < SEARCHED_FOR {
            let tree = self.clone();
            let pass = tokio::task::spawn_blocking(move || tree.kill_once(pid));
            if pass.await.unwrap_or(0) == 0 {
                return;
            }
            tokio::time::sleep(PASS_AGAIN).await;
        }
    }

    /// Kills the processes that are found, and returns their number.
    fn kill_once(&self, pid: Option<i32>) -> usize {
        let found = self.find(pid);
        // The handle of an ended process never signals a later process with its pid.
        found.iter().filter(|process| process.signal(Signal::SIGKILL).is_ok()).count()
    }

    fn find(&self, pid: Option<i32>) -> Vec<Process> {
        let Some(init) = self.init else { return Vec::new() };
        let Some(namespace) = namespace_of(init) else { return Vec::new() };
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let inside: HashMap<i32, ProcessLinks> = pids
            .filter(|pid| *pid != init && namespace_of(*pid).as_ref() == Some(&namespace))
            .filter_map(|pid| Some((pid, links_of(pid)?)))
            .collect();
        let mut found: HashSet<i32> = inside
            .iter()
            .filter(|(id, links)| pid.is_some_and(|pid| **id == pid || links.session == pid) || self.has_marker(**id))
            .map(|(id, _)| *id)
            .collect();
        loop {
            let belongs = |links: &ProcessLinks| found.contains(&links.parent) || found.contains(&links.session);
            let others: Vec<i32> =
                inside.iter().filter(|(id, links)| !found.contains(id) && belongs(links)).map(|(id, _)| *id).collect();
            if others.is_empty() {
                break;
            }
            found.extend(others);
        }
        found.into_iter().filter_map(|id| Process::of(id).ok()).filter(Process::is_alive).collect()
    }

    fn has_marker(&self, pid: i32) -> bool {
        let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else { return false };
        let mut environment = Vec::new();
        let _ = file.take(MARKER_ENV_MAX).read_to_end(&mut environment);
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&self.marker))
    }
}

fn namespace_of(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// Reads parent and session from the text of `/proc/PID/stat`. The name before them may hold anything.
fn links_of(pid: i32) -> Option<ProcessLinks> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
    let mut fields = rest.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(ProcessLinks { parent, session })
}
