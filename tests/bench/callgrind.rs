//! Runs a program on valgrind's processor, which counts its instructions, and reads the profile that valgrind writes.
//!
//! Valgrind does not pass on system calls that it does not know. So a sidecar finds neither Landlock nor seccomp: it
//! says so in its ready line, and goes on. With Landlock, it could not write its profile.

use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::process::Command;

use crate::Outcome;

/// Beginning of a profile's name; the process id follows.
const PREFIX: &str = "callgrind.";
/// The allocation functions of Rust and C programs. An enlarged `realloc` counts again, as in valgrind.
const ALLOCATORS: [&str; 6] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];
/// Function with all of the hashing; inside it, `sha2` chooses an implementation.
const SHA256: &str = "sha2::sha256::compress256";

/// Cost of processes, from their start to their end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Profile {
    /// Instructions in user space, without those of SHA-256.
    pub(crate) instructions: u64,
    /// Instructions of SHA-256.
    pub(crate) sha256: u64,
    /// Calls of functions that allocate.
    pub(crate) allocations: u64,
}

/// Returns the command of a program under callgrind, without its arguments. Processes that it forks are counted, too.
pub(crate) fn command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}/{PREFIX}%p", dir.display()));
    command.args(["--compress-strings=no", "--compress-pos=no"]).arg(program);
    command
}

impl Profile {
    /// Sums the profiles in this directory: there must be one for each of the `processes` processes.
    pub(crate) fn sum(dir: &Path, processes: usize) -> Outcome<Self> {
        let (mut sum, mut found) = (Self::default(), 0);
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                let one = Self::parse(&fs::read_to_string(entry.path())?).ok_or("a profile without totals")?;
                sum.instructions += one.instructions;
                sum.sha256 += one.sha256;
                sum.allocations += one.allocations;
                found += 1;
            }
        }
        if found != processes {
            return Err(format!("{found} profiles of {processes} processes").into());
        }
        // No program starts without an allocation.
        if sum.allocations == 0 {
            return Err(
                "no function has a name: `make dist` leaves a .debug beside the program, which belongs there".into()
            );
        }
        Ok(sum)
    }

    /// Parses a profile. Each observed call has three lines: `cfn=NAME`, `calls=COUNT POSITION`, `POSITION
    /// INSTRUCTIONS`.
    fn parse(text: &str) -> Option<Self> {
        let mut profile = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("cfn=") {
                let calls = number(lines.next()?.strip_prefix("calls=")?, 0)?;
                let instructions = number(lines.next()?, 1)?;
                if ALLOCATORS.contains(&name) {
                    profile.allocations += calls;
                }
                if name == SHA256 {
                    profile.sha256 += instructions;
                }
            } else if let Some(totals) = line.strip_prefix("totals:") {
                profile.instructions = number(totals, 0)?;
            }
        }
        profile.instructions = profile.instructions.checked_sub(profile.sha256)?;
        Some(profile)
    }
}

impl Sub for Profile {
    type Output = Self;

    /// Returns the difference between a longer and a shorter run.
    fn sub(self, shorter: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(shorter.instructions),
            sha256: self.sha256.saturating_sub(shorter.sha256),
            allocations: self.allocations.saturating_sub(shorter.allocations),
        }
    }
}

/// Returns the number at this place of a line.
fn number(line: &str, place: usize) -> Option<u64> {
    line.split_ascii_whitespace().nth(place)?.parse().ok()
}
