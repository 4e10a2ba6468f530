//! The machine and the programs of a run.

use std::fs;
use std::process::Command;

use serde::Serialize;

use crate::contenders::Contender;
use crate::options::Options;

/// The machine and the programs, as words for the report.
#[derive(Debug, Serialize)]
pub(crate) struct MachineInfo {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) versions: Vec<String>,
    /// Load average at the start: a sign of other work on the machine.
    pub(crate) load: String,
    pub(crate) pinning: String,
    pub(crate) command: String,
    pub(crate) date: String,
}

impl MachineInfo {
    pub(crate) fn gather(options: &Options) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let kib = field(&meminfo, "MemTotal").split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        let nginx = Contender::Nginx.binary().unwrap_or_default();
        let haproxy = Contender::Haproxy.binary().unwrap_or_default();
        let mut versions = vec![
            first_line(Command::new(nginx).arg("-v")),
            first_line(Command::new(haproxy).arg("-v")),
            first_line(Command::new("rustc").arg("--version")),
        ];
        if let Ok(sidecar) = Contender::Sluice.binary() {
            versions.insert(0, first_line(Command::new(sidecar).arg("--version")));
        }
        versions.retain(|version| !version.is_empty());
        Self {
            cpu: field(&cpuinfo, "model name"),
            cores: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: kib.unwrap_or(0).div_ceil(1024 * 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: read("/etc/os-release")
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .unwrap_or("unknown")
                .trim_matches('"')
                .to_owned(),
            versions,
            load: read("/proc/loadavg").split(' ').take(2).collect::<Vec<_>>().join(" "),
            pinning: String::new(),
            command: match options.words.as_slice() {
                [] => "make bench".to_owned(),
                words => format!("sluice-bench {}", words.join(" ")),
            },
            date: first_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the value of the first line `name : value`.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// Returns the first line that a program prints, on either stream; an empty text if it cannot be run.
fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else {
        return String::new();
    };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned()
}
