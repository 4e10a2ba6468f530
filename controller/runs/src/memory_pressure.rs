//! Detects a shortage of memory: all memory of a sandbox is used, and it reads evicted pages again.
//!
//! Without swap the kernel kills a program whose own data do not fit. A program whose data fit, but not its code and
//! files, is not killed: it hangs, and reads the same pages again and again. The kernel's count of failed charges stays 0
//! on some versions, so the pages are counted. Without readable counters no shortage is reported.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval between two samples.
const EVERY: Duration = Duration::from_millis(900);
/// Number of intervals that count.
const INTERVALS: usize = 5;
/// Minimum number of intervals with too little memory that make a shortage.
const SHORT_INTERVALS: usize = 3;
/// Minimum number of evicted pages that are read again per second in such an interval: 2 MB. A program with enough
/// memory has almost none.
const REFAULTS_PER_S: f64 = 500.0;
/// Minimum used share of the limit in such an interval, in percent.
const USED: u64 = 90;

/// Memory counters of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemorySample {
    /// Bytes in use, including the pages of files.
    used: u64,
    /// Maximum number of bytes.
    limit: u64,
    /// Number of evicted pages of files that were read again.
    refaults: u64,
}

/// Memory samples of one container.
#[derive(Debug, Default)]
pub struct MemoryPressure {
    files: Option<MemoryFiles>,
    last: Option<(Instant, MemorySample)>,
    intervals: VecDeque<bool>,
}

/// Files of a control group.
#[derive(Debug)]
struct MemoryFiles {
    used: PathBuf,
    limit: PathBuf,
    stat: PathBuf,
}

impl MemoryPressure {
    /// Samples the container with this first process, if the interval has passed.
    pub fn look(&mut self, init: i32) {
        let now = Instant::now();
        if self.last.is_some_and(|(then, _)| now.duration_since(then) < EVERY) {
            return;
        }
        if self.files.is_none() {
            self.files = MemoryFiles::of(init);
        }
        if let Some(sample) = self.files.as_ref().and_then(MemoryFiles::sample) {
            self.take(now, sample);
        }
    }

    fn take(&mut self, now: Instant, sample: MemorySample) {
        if let Some((then, before)) = self.last.replace((now, sample)) {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(is_short(before, sample, now.duration_since(then)));
        }
    }

    /// Returns true if the container was short of memory in most of the last intervals.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.intervals.iter().filter(|is_short| **is_short).count() >= SHORT_INTERVALS
    }
}

fn is_short(before: MemorySample, after: MemorySample, within: Duration) -> bool {
    let is_full = after.used >= after.limit / 100 * USED;
    let refaults = after.refaults.saturating_sub(before.refaults);
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let rate = refaults as f64 / within.as_secs_f64().max(0.001);
    is_full && rate >= REFAULTS_PER_S
}

impl MemoryFiles {
    /// Finds the files in a hierarchy of version 1 or 2, at its usual path.
    fn of(pid: i32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let (root, group, used, limit) = memory_group(&groups)?;
        let directory = Path::new(root).join(group);
        Some(Self { used: directory.join(used), limit: directory.join(limit), stat: directory.join("memory.stat") })
    }

    fn sample(&self) -> Option<MemorySample> {
        let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
        let refaults = refaults(&fs::read_to_string(&self.stat).ok()?)?;
        Some(MemorySample { used: number(&self.used)?, limit: number(&self.limit)?, refaults })
    }
}

/// Returns the root and the path of a process's memory group from `/proc/PID/cgroup`, and the names of two of its files.
fn memory_group(groups: &str) -> Option<(&'static str, &str, &'static str, &'static str)> {
    let fields = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(":/"));
    let of = |wanted: &dyn Fn(&str) -> bool| fields().find(|(names, _)| wanted(names)).map(|(_, group)| group);
    if let Some(group) = of(&|names| names.split(',').any(|name| name == "memory")) {
        return Some(("/sys/fs/cgroup/memory", group, "memory.usage_in_bytes", "memory.limit_in_bytes"));
    }
    of(&str::is_empty).map(|group| ("/sys/fs/cgroup", group, "memory.current", "memory.max"))
}

/// Returns the count of `memory.stat`. Kernels before 5.9 have one count for all pages.
fn refaults(stat: &str) -> Option<u64> {
    let value = |wanted: &str| {
        let (_, value) = stat.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == wanted)?;
        value.trim().parse().ok()
    };
    value("workingset_refault_file").or_else(|| value("workingset_refault"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sample(used: u64, refaults: u64) -> MemorySample {
        MemorySample { used: used * MIB, limit: 64 * MIB, refaults }
    }

    #[test]
    fn full_memory_with_refaults_is_a_shortage() {
        for (used, refaults, expected) in
            [(64, 10_000, true), (60, 500, true), (64, 499, false), (50, 10_000, false), (64, 0, false)]
        {
            let after = sample(used, 7 + refaults);
            assert_eq!(is_short(sample(64, 7), after, Duration::from_secs(1)), expected, "{used} {refaults}");
        }
        // A new group counts from 0.
        assert!(!is_short(sample(64, 9000), sample(64, 0), Duration::from_secs(1)));
    }

    #[test]
    fn a_short_moment_is_not_a_shortage() {
        let (mut pressure, begun) = (MemoryPressure::default(), Instant::now());
        let mut refaults = 0;
        for (second, (is_pressed, expected)) in
            [(false, false), (true, false), (true, false), (true, true), (false, true), (false, true), (false, false)]
                .into_iter()
                .enumerate()
        {
            refaults += if is_pressed { 5000 } else { 0 };
            pressure.take(begun + Duration::from_secs(second as u64), sample(64, refaults));
            assert_eq!(pressure.is_short(), expected, "after {second} s");
        }
    }

    #[test]
    fn the_group_is_found_in_both_versions() {
        let both = "9:name=systemd:/x\n4:cpu,memory:/docker/abc\n0::/docker/abc\n";
        let v1 = ("/sys/fs/cgroup/memory", "docker/abc", "memory.usage_in_bytes", "memory.limit_in_bytes");
        assert_eq!(memory_group(both), Some(v1));
        let v2 = ("/sys/fs/cgroup", "system.slice/docker-abc.scope", "memory.current", "memory.max");
        assert_eq!(memory_group("0::/system.slice/docker-abc.scope\n"), Some(v2));
        assert_eq!(memory_group("4:pids:/x\n"), None);
        assert_eq!(memory_group(""), None);
    }

    #[test]
    fn refaults_of_old_and_new_kernels_are_read() {
        assert_eq!(refaults("cache 1\nworkingset_refault_anon 3\nworkingset_refault_file 31639\n"), Some(31_639));
        assert_eq!(refaults("anon 1\nworkingset_refault 7\n"), Some(7));
        assert_eq!(refaults("cache 1\n"), None);
    }
}
