//! A child process: its output is captured completely, its end awaited without a race, and it is always removed.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::inspect;
use crate::board::SharedState;
use crate::wait::PATIENCE;

/// The end of a process: an exit code or a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarExit {
    /// The exit code.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
}

/// One captured stream.
#[derive(Debug, Clone)]
pub(crate) struct Output(Arc<SharedState<CapturedBytes>>);

#[derive(Debug, Default)]
struct CapturedBytes {
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    /// Reads a stream to its end on a thread: that works while the test's one thread is busy.
    fn capture(mut stream: impl Read + Send + 'static, alive: Sender<()>) -> Self {
        let output = Self(Arc::new(SharedState::new(CapturedBytes::default())));
        let board = output.0.clone();
        std::thread::spawn(move || {
            let _alive = alive;
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                board.update(|captured| captured.bytes.extend_from_slice(&buffer[..count]));
            }
            board.update(|captured| captured.ended = true);
        });
        output
    }

    pub(crate) fn text(&self) -> String {
        self.0.look(|captured| String::from_utf8_lossy(&captured.bytes).into_owned())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.look(|captured| captured.bytes.clone())
    }

    /// The first line, or None when the stream ended without one.
    pub(crate) async fn first_line(&self) -> Option<String> {
        let line = |captured: &mut CapturedBytes| match captured.bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => Some(Some(String::from_utf8_lossy(&captured.bytes[..end]).into_owned())),
            None => captured.ended.then_some(None),
        };
        self.0.until("the ready line", line).await
    }

    pub(crate) async fn contains(&self, text: &str) {
        let found = |captured: &mut CapturedBytes| {
            let seen = String::from_utf8_lossy(&captured.bytes);
            match seen.contains(text) {
                true => Some(()),
                false if captured.ended => panic!("the stream ended without {text:?}: {seen}"),
                false => None,
            }
        };
        self.0.until(text, found).await;
    }

    async fn ended(&self) {
        self.0.until("the end of the output", |captured| captured.ended.then_some(())).await;
    }
}

/// Words before a command that give it a terminal's default signals. A shell starts its
/// background jobs with these ignored, and their children inherit that.
pub(crate) fn default_signals() -> &'static [&'static str] {
    const TERMINAL: u64 = 1 << (Signal::SIGINT as u64 - 1) | 1 << (Signal::SIGQUIT as u64 - 1);
    static IGNORED: LazyLock<bool> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("it lists ignored signals");
        u64::from_str_radix(mask.trim(), 16).expect("a mask in hex") & TERMINAL != 0
    });
    if *IGNORED { &["/usr/bin/env", "--default-signal=INT,QUIT"] } else { &[] }
}

/// A child and the threads that watch it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    /// `None` until the child is reaped. Signals are sent under this lock, so the pid is still the child's.
    exit: Arc<SharedState<Option<SidecarExit>>>,
    /// Hangs up when the threads that watch the child have all ended.
    watching: Mutex<Receiver<()>>,
}

impl Process {
    /// Starts the command, writes `stdin` to it and closes that; without any, its stdin is `/dev/null`.
    pub(crate) fn spawn(mut command: Command, stdin: Option<Vec<u8>>) -> Self {
        let input = if stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let pid = i32::try_from(child.id()).expect("a pid is an i32");
        let (alive, watching) = channel();
        let stdout = Output::capture(child.stdout.take().expect("stdout is piped"), alive.clone());
        let stderr = Output::capture(child.stderr.take().expect("stderr is piped"), alive.clone());
        let exit = Arc::new(SharedState::new(None));
        // A child that refuses its arguments never reads its key: then this ends by a broken pipe.
        if let (Some(mut input), Some(bytes)) = (child.stdin.take(), stdin) {
            std::thread::spawn(move || drop(input.write_all(&bytes)));
        }
        reap(child, pid, exit.clone(), alive);
        Self { pid, stdout, stderr, exit, watching: Mutex::new(watching) }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.exit.look(Option::is_none)
    }

    /// Signals the child, or `pid`, a descendant of it; nothing once the child has been reaped.
    pub(crate) fn signal(&self, pid: i32, signal: Signal) {
        self.exit.look(|exit| {
            let ours = pid == self.pid || inspect::parent(pid) == Some(self.pid);
            if exit.is_none() && ours {
                // An error means that it has just ended.
                let _ = nix::sys::signal::kill(Pid::from_raw(pid), signal);
            }
        });
    }

    /// Signals the group that the child leads, as a terminal does; nothing once the child has been reaped.
    pub(crate) fn signal_group(&self, signal: Signal) {
        self.exit.look(|exit| {
            if exit.is_none() {
                let _ = nix::sys::signal::killpg(Pid::from_raw(self.pid), signal);
            }
        });
    }

    /// Waits for the end of the process and of its output. A command may make many calls before.
    pub(crate) async fn wait(&self) -> SidecarExit {
        let exit = self.exit.until_within(PATIENCE * 7, "the process to end", |exit| *exit).await;
        self.stdout.ended().await;
        self.stderr.ended().await;
        exit
    }

    /// Kills and reaps the child if it has not ended, and reads its output to the end, without a runtime.
    pub(crate) fn end(&mut self, faults: &mut Vec<String>) {
        self.signal(self.pid, Signal::SIGKILL);
        let watching = self.watching.get_mut().unwrap_or_else(PoisonError::into_inner);
        // This returns at once, since the child is dead, unless a grandchild keeps the pipes open.
        if watching.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            faults.push(format!("something still holds the output of process {}", self.pid));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(&mut Vec::new());
    }
}

/// Waits for the child on a thread. It becomes a zombie first and is reaped under the lock, so that
/// no signal can reach a pid that the kernel has reused.
fn reap(mut child: Child, pid: i32, exit: Arc<SharedState<Option<SidecarExit>>>, alive: Sender<()>) {
    std::thread::spawn(move || {
        let _alive = alive;
        let dead = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(Pid::from_raw(pid)), dead) == Err(nix::errno::Errno::EINTR) {}
        exit.update(|exit| {
            let status = child.wait().expect("our own child can be waited for");
            *exit = Some(SidecarExit { code: status.code(), signal: status.signal() });
        });
    });
}
