//! The parts of a process that others can see, and a search for the key in them.

use std::fs;
use std::path::Path;

/// Adds a fault for each place of `/proc` that shows the key, and for each child of the process.
pub(crate) fn process(pid: i32, key: &str, faults: &mut Vec<String>) {
    for name in ["cmdline", "environ"] {
        // Unreadable: the process has just ended.
        let shown = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        text(&format!("/proc/PID/{name}"), &shown, key, faults);
    }
    let children = children(pid);
    if !children.is_empty() {
        faults.push(format!("the sidecar has children: {children:?}"));
    }
}

/// Adds a fault if the bytes contain the key. Keys under eight bytes may occur by chance and are not searched for.
pub(crate) fn text(place: &str, bytes: &[u8], key: &str, faults: &mut Vec<String>) {
    let shown = String::from_utf8_lossy(bytes);
    if key.len() >= 8 && shown.contains(key) {
        let around: Vec<&str> = shown.lines().filter(|line| line.contains(key)).take(3).collect();
        faults.push(format!("the upstream key is in {place}: {around:?}"));
    }
}

/// Adds a fault for each regular file at or under `path` that contains the key.
pub(crate) fn files(path: &Path, key: &str, faults: &mut Vec<String>) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if meta.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            files(&entry.path(), key, faults);
        }
    } else if meta.is_file() && path.extension().is_none_or(|extension| extension != "key") {
        text(&path.display().to_string(), &fs::read(path).unwrap_or_default(), key, faults);
    }
}

/// The pids of the processes whose parent is `pid`.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|other| parent(*other) == Some(pid)).collect()
}

/// Kills processes that have just been seen.
pub(crate) fn kill(pids: &[i32]) {
    for pid in pids {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn status_kib(pid: i32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is running");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_else(|| panic!("no {field} in {status}"))
}

pub(crate) fn fds(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is running, and we are root").count()
}

pub(crate) fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("the process is running").count()
}
