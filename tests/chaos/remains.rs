//! Leftovers of ended processes: processes and sockets that the kernel knows.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::fault::ChaosFault;

/// A process that was killed is gone within this time.
const DYING: Duration = Duration::from_secs(60);

/// Fails if anything that runs names this directory, or listens in it or at this address.
pub(crate) fn nothing_of(directory: &Path, host: Option<&str>) -> Result<(), ChaosFault> {
    let mut left = processes_naming(directory);
    left.extend(sockets_in(directory));
    left.extend(host.into_iter().flat_map(listening_at));
    if left.is_empty() { Ok(()) } else { Err(ChaosFault::new(format!("left behind: {}", left.join(", ")))) }
}

/// Waits until nothing of this directory is left: processes that were just killed need a moment to end.
pub(crate) async fn gone(directory: &Path) -> Result<(), ChaosFault> {
    let begun = Instant::now();
    loop {
        match nothing_of(directory, None) {
            Err(_) if begun.elapsed() < DYING => tokio::time::sleep(Duration::from_millis(10)).await,
            done => return done,
        }
    }
}

/// Returns the other processes that have a path in this directory among their arguments.
pub(crate) fn pids_naming(directory: &Path) -> Vec<(i32, String)> {
    let directory = directory.display().to_string();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        // A process that waits to be reaped shows nothing.
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (line.contains(&directory) && pid != std::process::id().cast_signed()).then_some((pid, line))
    })
    .collect()
}

fn processes_naming(directory: &Path) -> Vec<String> {
    let named = pids_naming(directory).into_iter();
    named.map(|(pid, line)| format!("process {pid} ({})", line.chars().take(200).collect::<String>())).collect()
}

/// Unix sockets that a process still holds; the file of a killed process's socket is only a name.
fn sockets_in(directory: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let directory = directory.display().to_string();
    table.lines().filter(|line| line.contains(&directory)).map(|line| format!("socket {line}")).collect()
}

/// TCP listeners at this address of IPv4.
fn listening_at(host: &str) -> Vec<String> {
    const LISTEN: &str = "0A";
    let Ok(address) = host.parse::<std::net::Ipv4Addr>() else { return vec![format!("no address: {host}")] };
    let ours = format!("{:08X}:", u32::from_le_bytes(address.octets()));
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let of = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.starts_with(&ours)) && words.nth(1) == Some(LISTEN)
    };
    table.lines().filter(of).map(|line| format!("listener {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found() {
        let directory = std::env::temp_dir().join(format!("slcx{}", std::process::id()));
        fs::create_dir(&directory).expect("it is not there yet");
        let nothing = nothing_of(&directory, Some("127.83.76.67"));
        let unix = std::os::unix::net::UnixListener::bind(directory.join("s")).expect("our own directory");
        let tcp = std::net::TcpListener::bind(("127.83.76.67", 0)).expect("all of 127/8 is ours");
        let both = nothing_of(&directory, Some("127.83.76.67"));
        drop((unix, tcp));
        let again = nothing_of(&directory, Some("127.83.76.67"));
        fs::remove_dir_all(&directory).expect("it is ours");

        assert!(nothing.is_ok() && again.is_ok());
        let message = both.expect_err("two sockets").to_string();
        assert!(message.contains("listener ") && message.contains("socket "), "{message}");
    }
}
