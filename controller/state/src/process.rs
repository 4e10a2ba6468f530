//! Processes that can be found again: after a reboot or a reuse of its number, a pid alone means another process.

use std::path::Path;
use std::{fs, io};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// One process, distinguished from all later ones with the same pid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Id of the boot.
    pub boot: String,
}

impl Process {
    /// Returns the process that has this pid now.
    ///
    /// # Errors
    /// When no process has it.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start: ProcStat::read(pid)?.start, boot: boot_id()? })
    }

    /// Returns this process.
    ///
    /// # Errors
    /// `/proc` is not available.
    pub fn current() -> io::Result<Self> {
        Self::of(Pid::this().as_raw())
    }

    /// Returns true if the process runs. A process that only waits to be reaped has ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot)
            && ProcStat::read(self.pid).is_ok_and(|stat| stat.start == self.start && stat.state != b'Z')
    }

    /// Sends a signal, unless the process has ended.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        use rustix::process::{Pid, PidfdFlags, Signal as KernelSignal, pidfd_open, pidfd_send_signal};
        let ended =
            |error: rustix::io::Errno| if error == rustix::io::Errno::SRCH { Ok(()) } else { Err(error.into()) };
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        // The descriptor stays bound to the process that is checked next: no later process with this pid gets the signal.
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(error) => return ended(error),
        };
        if !self.is_alive() {
            return Ok(());
        }
        let signal = KernelSignal::from_named_raw(signal as i32).ok_or(io::ErrorKind::InvalidInput)?;
        pidfd_send_signal(descriptor, signal).or_else(ended)
    }

    /// Finds the process of this program that has these two words in a row among its arguments.
    ///
    /// A controller that was killed between a fork and its record has written no pid.
    #[must_use]
    pub fn find(program: &Path, flag: &str, value: &Path) -> Option<Self> {
        let program = fs::canonicalize(program).ok()?;
        let wanted = [flag.as_bytes(), value.as_os_str().as_encoded_bytes()];
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // A sandbox can give its processes any name; it cannot run a file of the host.
            if fs::read_link(entry.path().join("exe")).ok()? != program {
                return None;
            }
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            if words.windows(2).any(|pair| pair == wanted) { Self::of(pid).ok().filter(Self::is_alive) } else { None }
        })
    }
}

struct ProcStat {
    state: u8,
    start: u64,
}

impl ProcStat {
    /// Reads fields 3 and 22 of proc(5). The name before them may hold anything, also parentheses.
    fn read(pid: i32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{pid}/stat"))?;
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat");
        let end = text.iter().rposition(|byte| *byte == b')').ok_or_else(malformed)?;
        let rest = String::from_utf8_lossy(&text[end + 1..]);
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next().and_then(|field| field.bytes().next()).ok_or_else(malformed)?;
        let start = fields.nth(18).and_then(|field| field.parse().ok()).ok_or_else(malformed)?;
        Ok(Self { state, start })
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_of_this_boot_is_alive() {
        let this = Process::current().expect("there is /proc");
        assert!(this.is_alive());
        assert!(!Process { boot: "another".into(), ..this.clone() }.is_alive());
        assert!(!Process { start: this.start + 1, ..this }.is_alive());
    }

    #[test]
    fn an_unreaped_child_is_not_alive() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let process = Process::of(i32::try_from(child.id()).expect("a pid")).expect("it waits for input");
        assert!(process.is_alive());
        process.signal(Signal::SIGKILL).expect("it is ours");
        let done = nix::sys::wait::waitid(
            nix::sys::wait::Id::Pid(Pid::from_raw(process.pid)),
            nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
        );
        assert!(done.is_ok());
        assert!(!process.is_alive());
        child.wait().expect("it ended");
    }
}
