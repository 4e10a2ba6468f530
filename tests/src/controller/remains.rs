//! Leftovers of ended runs.

use std::fs;
use std::path::Path;

use super::Sluice;
use crate::audit::CheckedAuditFile;
use crate::sidecar::inspect;

/// Expected entries of a state directory.
const KNOWN: [&str; 15] = [
    "audit", "budgets.log", "daemon.lock", "decisions.log", "files.lock", "instance", "keys", "kept", "logs.lock",
    "prices", "records", "runs", "sluice.db", "sluice.db-shm", "sluice.db-wal",
];

/// Everything that should not be there, and the audit files, which should.
pub(super) async fn of(sluice: &Sluice) -> (Vec<String>, Vec<CheckedAuditFile>) {
    let mut faults = Vec::new();
    let mut fault = |what: &str, left: Vec<String>| {
        if !left.is_empty() {
            faults.push(format!("{what}: {}", left.join(", ")));
        }
    };
    let state = sluice.state();
    // Before the sweep below, which is a process of its own.
    let processes = processes_naming(&state).into_iter().chain(controllers_of(&state));
    fault("processes", processes.map(|pid| pid.to_string()).collect());
    fault("run directories", sluice.runs().iter().map(|path| path.display().to_string()).collect());
    fault("mounts", mounts_below(&state));
    fault("kept workspaces", names(&state.join("kept")));
    fault("strange files", names(&state).into_iter().filter(|name| !KNOWN.contains(&name.as_str())).collect());
    let found = sluice.leftovers().await;
    fault("sweep finds", found.into_iter().map(|(kind, name)| format!("{kind} {name}")).collect());
    // Commands that only look do not make the name of its containers.
    if state.join("instance").exists() {
        fault("containers", sluice.containers().await);
    }
    inspect::files(&state, sluice.key(), &mut faults);
    let audit = state.join("audit");
    // The log of what people do has lines of its own.
    let files = names(&audit).into_iter().filter(|name| name != "control.jsonl");
    (faults, files.map(|name| CheckedAuditFile::read(audit.join(name))).collect())
}

/// The pids of processes that have a path below `state` in their command line: sidecars.
pub(super) fn processes_naming(state: &Path) -> Vec<i32> {
    let below = format!("{}/", state.display());
    pids_with("cmdline", |word| word.starts_with(&below))
}

/// The pids of processes that have `state` for their state directory: controllers.
pub(super) fn controllers_of(state: &Path) -> Vec<i32> {
    let variable = format!("SLUICE_STATE_DIR={}", state.display());
    pids_with("environ", |word| word == variable)
}

fn pids_with(file: &str, wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let shows = |pid: &i32| {
        // A zombie shows nothing.
        let shown = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&shown).split('\0').any(&wanted)
    };
    pids.filter(shows).collect()
}

fn mounts_below(state: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").expect("there is a /proc");
    let state = state.display().to_string();
    mounts.lines().filter(|line| line.contains(&state)).map(str::to_owned).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
