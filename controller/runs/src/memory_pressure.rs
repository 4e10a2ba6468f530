//! Whether a sandbox is short of memory: all of its memory is used, and it reads pages again that it had to give up.
//!
//! Without swap the kernel kills a program whose own data do not fit. One whose data fit, and whose code and files do
//! not, is not killed: it hangs, and reads the same pages again and again. The kernel's count of failed charges stays 0
//! on some versions, so the pages are counted. Where nothing can be read, nothing is known.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a container is looked at.
const EVERY: Duration = Duration::from_millis(900);
/// How many looks count, and how many of them make a verdict.
const LOOKS: usize = 5;
const SHORT_LOOKS: usize = 3;
/// Pages a second that come back: 2 MB. A program with enough memory has next to none.
const REFAULTS_PER_S: f64 = 500.0;
/// The share of the limit that is used, in percent.
const USED: u64 = 90;

/// What the kernel says of the memory of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    /// Bytes in use, with the pages of files.
    used: u64,
    /// How many there may be.
    limit: u64,
    /// Pages of files that were read again after they had been given up.
    refaults: u64,
}

/// What was seen of one container.
#[derive(Debug, Default)]
pub struct Pressure {
    place: Option<Place>,
    last: Option<(Instant, Sample)>,
    looks: VecDeque<bool>,
}

/// The files of a control group.
#[derive(Debug)]
struct Place {
    used: PathBuf,
    limit: PathBuf,
    stat: PathBuf,
}

impl Pressure {
    /// Looks at the container whose first process this is, if it is time to.
    pub fn look(&mut self, init: i32) {
        let now = Instant::now();
        if self.last.is_some_and(|(then, _)| now.duration_since(then) < EVERY) {
            return;
        }
        if self.place.is_none() {
            self.place = Place::of(init);
        }
        if let Some(sample) = self.place.as_ref().and_then(Place::sample) {
            self.take(now, sample);
        }
    }

    fn take(&mut self, now: Instant, sample: Sample) {
        if let Some((then, before)) = self.last.replace((now, sample)) {
            if self.looks.len() == LOOKS {
                self.looks.pop_front();
            }
            self.looks.push_back(is_short(before, sample, now.duration_since(then)));
        }
    }

    /// Whether the container was short of memory most of the last seconds.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.looks.iter().filter(|is_short| **is_short).count() >= SHORT_LOOKS
    }
}

fn is_short(before: Sample, after: Sample, within: Duration) -> bool {
    let is_full = after.used >= after.limit / 100 * USED;
    let refaults = after.refaults.saturating_sub(before.refaults);
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let rate = refaults as f64 / within.as_secs_f64().max(0.001);
    is_full && rate >= REFAULTS_PER_S
}

impl Place {
    /// Of version 1 or 2, at their usual places.
    fn of(pid: i32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let (root, group, used, limit) = place(&groups)?;
        let directory = Path::new(root).join(group);
        Some(Self { used: directory.join(used), limit: directory.join(limit), stat: directory.join("memory.stat") })
    }

    fn sample(&self) -> Option<Sample> {
        let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
        let refaults = refaults(&fs::read_to_string(&self.stat).ok()?)?;
        Some(Sample { used: number(&self.used)?, limit: number(&self.limit)?, refaults })
    }
}

/// Where the memory group of a process is, by the lines of its `/proc/PID/cgroup`, with the names of two of its files.
fn place(groups: &str) -> Option<(&'static str, &str, &'static str, &'static str)> {
    let fields = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(":/"));
    let of = |wanted: &dyn Fn(&str) -> bool| fields().find(|(names, _)| wanted(names)).map(|(_, group)| group);
    if let Some(group) = of(&|names| names.split(',').any(|name| name == "memory")) {
        return Some(("/sys/fs/cgroup/memory", group, "memory.usage_in_bytes", "memory.limit_in_bytes"));
    }
    of(&str::is_empty).map(|group| ("/sys/fs/cgroup", group, "memory.current", "memory.max"))
}

/// The count in `memory.stat`; kernels before 5.9 have one for all pages.
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

    fn sample(used: u64, refaults: u64) -> Sample {
        Sample { used: used * MIB, limit: 64 * MIB, refaults }
    }

    #[test]
    fn memory_is_short_where_it_is_full_and_pages_come_back() {
        for (used, refaults, expected) in
            [(64, 10_000, true), (60, 500, true), (64, 499, false), (50, 10_000, false), (64, 0, false)]
        {
            let after = sample(used, 7 + refaults);
            assert_eq!(is_short(sample(64, 7), after, Duration::from_secs(1)), expected, "{used} {refaults}");
        }
        // A group that was made anew counts from 0.
        assert!(!is_short(sample(64, 9000), sample(64, 0), Duration::from_secs(1)));
    }

    #[test]
    fn a_moment_is_not_enough() {
        let (mut pressure, begun) = (Pressure::default(), Instant::now());
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
        assert_eq!(place(both), Some(v1));
        let v2 = ("/sys/fs/cgroup", "system.slice/docker-abc.scope", "memory.current", "memory.max");
        assert_eq!(place("0::/system.slice/docker-abc.scope\n"), Some(v2));
        assert_eq!(place("4:pids:/x\n"), None);
        assert_eq!(place(""), None);
    }

    #[test]
    fn refaults_of_old_and_new_kernels_are_read() {
        assert_eq!(refaults("cache 1\nworkingset_refault_anon 3\nworkingset_refault_file 31639\n"), Some(31_639));
        assert_eq!(refaults("anon 1\nworkingset_refault 7\n"), Some(7));
        assert_eq!(refaults("cache 1\n"), None);
    }
}
