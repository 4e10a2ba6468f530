//! The program of a sandbox: started, signalled, waited for.

use std::ffi::OsString;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::BridgeError;

/// Signals that only a fault of the bridge itself sends. They keep their effect.
const FAULTS: [Signal; 7] =
    [Signal::SIGABRT, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGSEGV, Signal::SIGSYS, Signal::SIGTRAP];

/// A running program.
#[derive(Debug)]
pub(super) struct Program {
    pid: Pid,
    signals: SignalFd,
}

impl Program {
    /// Starts a program with the stdin, stdout, stderr, directory and environment of this process.
    pub(super) fn start(words: &[OsString]) -> Result<Self, BridgeError> {
        let (program, args) = words.split_first().expect("clap requires a program");
        let child =
            Command::new(program).args(args).spawn().map_err(|error| BridgeError::Start(program.clone(), error))?;
        // After the start: a program inherits the mask.
        let mut signals = SigSet::all();
        FAULTS.into_iter().for_each(|fault| signals.remove(fault));
        signals.thread_block()?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { pid: Pid::from_raw(child.id().cast_signed()), signals })
    }

    /// Passes signals on until the program ends, and returns its exit code.
    ///
    /// As the first process of a container it also reaps processes that have lost their parent.
    pub(super) fn end(self) -> Result<u8, BridgeError> {
        loop {
            if let Some(code) = self.reap() {
                return Ok(code);
            }
            match self.signals.read_signal() {
                Ok(Some(info)) => self.pass_on(info.ssi_signo, info.ssi_code),
                Ok(None) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Passes a signal on, unless the kernel has sent it: a terminal sends its signals to the program as well.
    fn pass_on(&self, number: u32, code: i32) {
        let signal = i32::try_from(number).ok().and_then(|number| Signal::try_from(number).ok());
        if let Some(signal) = signal.filter(|_| code <= 0) {
            // The program may have ended meanwhile.
            let _ = kill(self.pid, signal);
        }
    }

    /// Takes the exits of all children that have ended, and returns the program's exit code if it is among them.
    fn reap(&self) -> Option<u8> {
        let code = |code: i32| Some(u8::try_from(code).unwrap_or(u8::MAX));
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) if pid == self.pid => return code(status),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => return code(128 + signal as i32),
                Ok(WaitStatus::StillAlive) => return None,
                Ok(_) | Err(Errno::EINTR) => {}
                // A real-time signal ended a child. Its status is taken.
                Err(Errno::EINVAL) => {
                    if kill(self.pid, None).is_err() {
                        return Some(u8::MAX);
                    }
                }
                Err(_) => return Some(u8::MAX),
            }
        }
    }
}
