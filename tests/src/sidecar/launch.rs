//! The description of a sidecar's start.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::process::{Process, SidecarExit, default_signals};
use super::{Sidecar, inspect};
use crate::scratch::TempDir;

/// The key that a sidecar gets unless the test gives it another.
pub const CANARY: &str = "sk-sluice-canary-7Qm2xV9pLr4T";

/// The user that a sidecar becomes if root starts it without `--user`.
pub const UNPRIVILEGED: u32 = 65_521;

/// A sidecar that is still being described.
#[derive(Debug)]
#[must_use = "a launch does nothing until it is started"]
pub struct Launch {
    dir: TempDir,
    binary: Option<PathBuf>,
    wrapper: Vec<String>,
    subcommand: Vec<String>,
    /// The flags that every launch has, each with its value.
    flags: Vec<(String, String)>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    key: String,
    stdin: Option<Vec<u8>>,
}

/// A sidecar that has ended without ever being ready.
#[derive(Debug, Clone)]
pub struct FailedStart {
    /// The exit code.
    pub code: i32,
    /// Everything on stdout.
    pub stdout: String,
    /// Everything on stderr.
    pub stderr: String,
}

impl Launch {
    pub(super) fn new(url: &str) -> Self {
        let dir = TempDir::new();
        let path = |name: &str| dir.join(name).display().to_string();
        // The audit file may not lie in the directory of the socket.
        std::fs::create_dir(dir.join("run")).expect("a fresh directory takes another");
        let flags = [
            ("--socket", path("run/llm.sock")),
            ("--upstream", url.to_owned()),
            ("--audit", path("audit.jsonl")),
            ("--run-id", "r1".to_owned()),
            ("--account", "acct-1".to_owned()),
        ];
        Self {
            flags: flags.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            dir,
            binary: None,
            wrapper: Vec::new(),
            subcommand: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            key: CANARY.to_owned(),
            stdin: None,
        }
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

    /// Leaves out a flag that every launch has, such as `--account`.
    pub fn without(mut self, flag: &str) -> Self {
        self.flags.retain(|(name, _)| name != flag);
        self
    }

    /// Another binary than the one that [`Launch`] finds by itself: `SLUICE_PROXY_BIN`, else the one
    /// that cargo built beside the test.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// A subcommand such as `check`, before all flags.
    pub fn subcommand(mut self, name: &str) -> Self {
        self.subcommand = vec![name.to_owned()];
        self
    }

    /// Another `--run-id` than r1.
    pub fn run_id(self, id: &str) -> Self {
        self.flag("--run-id", id)
    }

    /// Another `--account` than acct-1.
    pub fn account(self, account: &str) -> Self {
        self.flag("--account", account)
    }

    /// Another `--upstream`.
    pub fn upstream(self, url: &str) -> Self {
        self.flag("--upstream", url)
    }

    /// Another `--audit` than audit.jsonl in the directory of the sidecar.
    pub fn audit_path(self, path: impl AsRef<Path>) -> Self {
        self.flag("--audit", &path.as_ref().display().to_string())
    }

    /// Another `--socket` than run/llm.sock in the directory of the sidecar.
    pub fn socket_path(self, path: impl AsRef<Path>) -> Self {
        self.flag("--socket", &path.as_ref().display().to_string())
    }

    /// Another key than [`CANARY`]; it is searched for everywhere too.
    pub fn key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// Content of stdin, if not exactly the key.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// An environment variable. The environment is empty but for these and `PATH`.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the number of file descriptors (`prlimit --nofile`).
    pub fn nofile(self, count: u64) -> Self {
        self.wrapper(["prlimit".to_owned(), format!("--nofile={count}:{count}")])
    }

    /// Limits the size of files in bytes (`prlimit --fsize`).
    pub fn fsize(self, bytes: u64) -> Self {
        self.wrapper(["prlimit".to_owned(), format!("--fsize={bytes}:{bytes}")])
    }

    /// A command that wraps the sidecar, such as `strace -f`; a later one wraps an earlier one.
    pub fn wrapper<A: AsRef<str>>(mut self, command: impl IntoIterator<Item = A>) -> Self {
        let command = command.into_iter().map(|word| word.as_ref().to_owned());
        self.wrapper = command.chain(std::mem::take(&mut self.wrapper)).collect();
        self
    }

    /// The directory of the sidecar, to prepare files in it before the start. The key is not
    /// searched for in files named `*.key`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts it and waits for its ready line; panics with its stderr if none comes.
    pub async fn start(self) -> Sidecar {
        let process = self.spawn();
        let Some(line) = process.stdout.first_line().await else {
            let exit = process.wait().await;
            panic!("the sidecar did not become ready: {exit:?}\n{}", process.stderr.text());
        };
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("no ready line ({error}) but {line}"));
        assert_eq!(ready["event"], "ready", "the first line of stdout");
        let pid = itself(&process, &ready);
        let sidecar = Sidecar {
            pid,
            ready,
            socket: self.path("--socket"),
            audit: self.path("--audit"),
            key: self.key.clone(),
            passed_headers: self.passed_headers(),
            process,
            dir: self.dir,
        };
        sidecar.inspect();
        sidecar
    }

    /// Runs it to its end, for a start that fails; panics if it succeeds.
    pub async fn fail(self) -> FailedStart {
        let finished = self.finish().await;
        assert_ne!(finished.code, 0, "the start was to fail: {}", finished.stdout);
        finished
    }

    /// Runs it to its end, whatever that is.
    pub async fn finish(self) -> FailedStart {
        let process = self.spawn();
        let exit: SidecarExit = process.wait().await;
        let (stdout, stderr) = (process.stdout.text(), process.stderr.text());
        let mut faults = Vec::new();
        inspect::text("stdout", stdout.as_bytes(), &self.key, &mut faults);
        inspect::text("stderr", stderr.as_bytes(), &self.key, &mut faults);
        inspect::files(&self.path("--audit"), &self.key, &mut faults);
        inspect::files(self.dir.path(), &self.key, &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("; "));
        let code = exit.code.unwrap_or_else(|| panic!("ended by signal {:?}: {stderr}", exit.signal));
        FailedStart { code, stdout, stderr }
    }

    fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.retain(|(flag, _)| flag != name);
        self.flags.push((name.to_owned(), value.to_owned()));
        self
    }

    fn path(&self, flag: &str) -> PathBuf {
        let value = self.flags.iter().find(|(name, _)| name == flag).map(|(_, value)| value.as_str());
        value.unwrap_or_default().into()
    }

    /// The names that `--pass-response-header` lets through.
    fn passed_headers(&self) -> Vec<String> {
        let flag = "--pass-response-header";
        let pairs = self.args.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].clone());
        let joined = self.args.iter().filter_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='));
        pairs.chain(joined.map(str::to_owned)).collect()
    }

    fn spawn(&self) -> Process {
        let binary = self.binary.clone().unwrap_or_else(program).display().to_string();
        let words = self.wrapper.iter().chain([&binary]).chain(&self.subcommand).map(String::as_str);
        let mut words = default_signals().iter().copied().chain(words);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command.args(words).args(self.flags.iter().flat_map(|(name, value)| [name, value])).args(&self.args);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value))).current_dir("/");
        for kept in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        Process::spawn(command, Some(self.stdin.clone().unwrap_or_else(|| self.key.clone().into_bytes())))
    }
}

/// The pid that the ready line names, if it is our child or a child of that (a wrapper such as strace).
fn itself(process: &Process, ready: &Value) -> i32 {
    let named = ready["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    named.filter(|pid| inspect::parent(*pid) == Some(process.pid)).unwrap_or(process.pid)
}

/// `SLUICE_PROXY_BIN`, or the binary that cargo built beside this test.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("SLUICE_PROXY_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a running test has an executable");
    let beside = test.ancestors().skip(1).take(2).map(|dir| dir.join("sluice-proxy")).find(|path| path.is_file());
    beside.unwrap_or_else(|| panic!("no sluice-proxy beside {}: run `cargo build` first", test.display()))
}
