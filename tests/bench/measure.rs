//! The kernel's figures of a process and its children: CPU time, memory, cores.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde::Serialize;

use crate::Outcome;

/// Returns a process and all its descendants.
pub(crate) fn tree(root: i32) -> Vec<i32> {
    trees(vec![root])
}

/// Returns processes and all their descendants.
pub(crate) fn trees(mut tree: Vec<i32>) -> Vec<i32> {
    let mut parents: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(parents.remove(pid).unwrap_or_default());
        next += 1;
    }
    tree
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; after it come the state and the parent.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the CPU time of all live threads so far, in nanoseconds. It is exact for threads that are asleep.
pub(crate) fn cpu_ns(pids: &[i32]) -> Outcome<u64> {
    let mut sum = 0;
    for pid in pids {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let line = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu = line.split(' ').next().ok_or("empty schedstat")?;
            sum += on_cpu.parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Returns the number of open files of a process.
pub(crate) fn files(pid: i32) -> Outcome<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Memory of a process tree, in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Memory {
    /// Resident memory now; shared pages count in each process.
    pub(crate) rss: u64,
    /// The sum of each process's highest resident size since `reset_peak`.
    pub(crate) peak: u64,
    /// Resident memory now; shared pages are divided among the processes that share them.
    pub(crate) pss: u64,
}

/// Returns the sums of the memory of these processes.
pub(crate) fn memory(pids: &[i32]) -> Outcome<Memory> {
    let mut sum = Memory::default();
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        sum.rss += kib(&status, "VmRSS:").ok_or("no VmRSS")?;
        sum.peak += kib(&status, "VmHWM:").ok_or("no VmHWM")?;
        let maps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        sum.pss += kib(&maps, "Pss:").ok_or("no Pss")?;
    }
    Ok(sum)
}

fn kib(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Resets the peak of resident memory.
pub(crate) fn reset_peak(pids: &[i32]) -> Outcome<()> {
    for pid in pids {
        fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    }
    Ok(())
}

/// Placement of the processes on the machine's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// All on one core; rounds differ by 2 %.
    // Latency and throughput include the work of all three programs.
    One,
    /// The contender on another core; rounds differ by half.
    // Each wake-up of a sleeping core is then an interrupt, which costs more than the call on a virtual machine: with
    // the relay, a chat over one connection takes 56–84 µs instead of 9 µs.
    Split,
    /// As the kernel places them.
    Free,
}

/// The core of the load generator and the upstream, and the core of the contenders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    load: usize,
    contender: usize,
}

impl Cores {
    /// Chooses among the cores that this process may use. Returns `None` if no pinning is wanted, if there are too few
    /// cores, or without `taskset`.
    pub(crate) fn choose(placement: Placement) -> Outcome<Option<Self>> {
        let status = fs::read_to_string("/proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cores = cores(list.unwrap_or_default().trim());
        let taskset = Command::new("taskset").arg("--version").stdout(Stdio::null()).status();
        if !taskset.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        Ok(match (placement, cores.as_slice()) {
            (Placement::Split, [load, contender, ..]) => Some(Self { load: *load, contender: *contender }),
            (Placement::One, [.., only]) => Some(Self { load: *only, contender: *only }),
            _ => None,
        })
    }

    /// Puts all threads of these processes onto the core of load and upstream.
    pub(crate) fn pin_load(&self, pids: &[i32]) -> Outcome<()> {
        pin(pids, self.load)
    }

    /// Puts all threads of these processes onto the contender's core.
    pub(crate) fn pin_contender(&self, pids: &[i32]) -> Outcome<()> {
        pin(pids, self.contender)
    }

    /// One sentence for the report.
    pub(crate) fn describe(cores: Option<&Self>) -> String {
        match cores {
            Some(Self { load, contender }) if load == contender => {
                format!("load generator, upstream and contender on core {load} (taskset)")
            }
            Some(Self { load, contender }) => {
                format!("load generator and upstream on core {load}, contender on core {contender} (taskset)")
            }
            None => "not pinned: the kernel places all processes".to_owned(),
        }
    }
}

fn pin(pids: &[i32], core: usize) -> Outcome<()> {
    for pid in pids {
        let mut command = Command::new("taskset");
        command.args(["-a", "-p", "-c", &core.to_string(), &pid.to_string()]).stdout(Stdio::null());
        if !command.status()?.success() {
            return Err(format!("taskset could not move process {pid} to core {core}; try --placement free").into());
        }
    }
    Ok(())
}

/// Parses a list of cores: `0-1,4` is 0, 1, 4.
fn cores(list: &str) -> Vec<usize> {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}
