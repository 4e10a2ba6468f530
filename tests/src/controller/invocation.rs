//! One `sluice` process: described, running, ended.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{RunReport, Sluice};
use crate::sidecar::process::{Process, default_signals};
use crate::sidecar::{SidecarExit, inspect};

/// A command that is still being described.
#[derive(Debug)]
#[must_use = "an invocation does nothing until it is spawned"]
pub struct Invocation<'a> {
    sluice: &'a Sluice,
    wrapper: Vec<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
}

impl<'a> Invocation<'a> {
    pub(super) fn new(sluice: &'a Sluice) -> Self {
        let path = |path: PathBuf| path.display().to_string();
        let mut env = vec![
            ("SLUICE_CONFIG", path(sluice.dir.join("sluice.toml"))),
            ("SLUICE_STATE_DIR", path(sluice.state())),
            ("SLUICE_UPSTREAM", sluice.upstream.clone()),
            ("SLUICE_KEY_FILE", path(sluice.key_file())),
            // Commands must not call a daemon of the host.
            ("SLUICE_RUN_DIR", path(sluice.dir.join("no-daemon"))),
            // The disk of the machine may be nearly full.
            ("SLUICE_EVENT_DISK_FREE", "0".to_owned()),
        ];
        env.extend(std::env::var("SLUICE_PROXY_BIN").ok().map(|bin| ("SLUICE_PROXY", bin)));
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { sluice, wrapper: Vec::new(), args: Vec::new(), env, stdin: None }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<str>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<A: AsRef<str>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// A variable, in place of one that is there.
    pub fn env(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self = self.without(name);
        self.env.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Leaves out a variable that every invocation has, such as `SLUICE_UPSTREAM`.
    pub fn without(mut self, name: &str) -> Self {
        self.env.retain(|(other, _)| other != name);
        self
    }

    /// A pipe for stdin, with these bytes and then its end; otherwise stdin is `/dev/null`.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// A command to put in front, such as `sh -c '"$@" | head -1' sh`.
    pub fn wrapper<A: AsRef<str>>(mut self, command: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Starts it, as the leader of a process group of its own.
    pub fn spawn(self) -> RunningCommand<'a> {
        let binary = binary().display().to_string();
        let words = self.wrapper.iter().chain([&binary]).chain(&self.args).map(String::as_str);
        let mut words = default_signals().iter().copied().chain(words);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command.args(words).env_clear().current_dir(self.sluice.dir()).process_group(0);
        for kept in ["PATH", "LLVM_PROFILE_FILE"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command.envs(self.env);
        RunningCommand { sluice: self.sluice, begun: Instant::now(), process: Process::spawn(command, self.stdin) }
    }

    /// Runs it to its end, whatever that is.
    pub async fn finish(self) -> FinishedCommand {
        self.spawn().finish().await
    }
}

/// A running command; killed when dropped.
#[derive(Debug)]
pub struct RunningCommand<'a> {
    sluice: &'a Sluice,
    begun: Instant,
    process: Process,
}

impl<'a> RunningCommand<'a> {
    /// The state directory that it works on.
    pub fn sluice(&self) -> &'a Sluice {
        self.sluice
    }

    /// Pid, which is also the id of its process group.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Returns true if it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(self.process.pid, signal);
    }

    /// Sends a signal to its process group, as a terminal does.
    pub fn signal_group(&self, signal: Signal) {
        self.process.signal_group(signal);
    }

    /// Sends SIGKILL to it alone, and waits until it is gone.
    pub async fn kill(self) -> FinishedCommand {
        self.signal(Signal::SIGKILL);
        self.finish().await
    }

    /// Waits until stdout contains `text`.
    pub async fn prints(&self, text: &str) {
        self.process.stdout.contains(text).await;
    }

    /// Waits until stderr contains `text`.
    pub async fn says(&self, text: &str) {
        self.process.stderr.contains(text).await;
    }

    /// All of stdout so far.
    pub fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// All of stderr so far.
    pub fn stderr(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits for its end and the end of its output.
    pub async fn finish(self) -> FinishedCommand {
        let SidecarExit { code, signal } = self.process.wait().await;
        let took = self.begun.elapsed();
        let (stdout, stderr) = (self.process.stdout.text(), self.process.stderr.text());
        let mut faults = Vec::new();
        inspect::text("stdout", stdout.as_bytes(), self.sluice.key(), &mut faults);
        inspect::text("stderr", stderr.as_bytes(), self.sluice.key(), &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("; "));
        let code = code.or(signal.map(|signal| -signal)).expect("a process ends one way or the other");
        FinishedCommand { code, bytes: self.process.stdout.bytes(), stdout, stderr, took }
    }
}

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        // This also ends the processes that a wrapper has started.
        self.process.signal_group(Signal::SIGKILL);
    }
}

/// A command that has ended.
#[derive(Debug, Clone)]
pub struct FinishedCommand {
    /// Exit code, or the negative number of the signal that killed it.
    pub code: i32,
    /// Everything on stdout, as text.
    pub stdout: String,
    /// The same, byte for byte.
    pub bytes: Vec<u8>,
    /// Everything on stderr.
    pub stderr: String,
    /// Time from its start to its end.
    pub took: Duration,
}

impl FinishedCommand {
    /// The report of `sluice run --json`; panics when stdout is anything else, also when a member is new.
    #[track_caller]
    pub fn json(&self) -> RunReport {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no report ({error}) but {:?}\n{}", self.stdout, self.stderr))
    }

    /// Stdout as any JSON.
    #[track_caller]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}) but {:?}\n{}", self.stdout, self.stderr))
    }

    /// Returns itself; fails unless it has ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "exit code; stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// `SLUICE_BIN`, or the binary that cargo built beside this test.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("SLUICE_BIN") {
        return std::path::absolute(path).expect("there is a working directory");
    }
    let test = std::env::current_exe().expect("a running test has an executable");
    let beside = test.ancestors().skip(1).take(2).map(|dir| dir.join("sluice")).find(|path| path.is_file());
    beside.unwrap_or_else(|| panic!("no sluice beside {}: run `cargo build` first", test.display()))
}
