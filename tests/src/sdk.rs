//! A Python SDK program run against a sidecar's socket, as an agent runs it: through socat.
//!
//! ```ignore
//! Sdk::openai(sidecar.socket()).pass(&["chat_unary", "chat_stream"]).await;
//! Sdk::openai(sidecar.socket()).base_path("").set("SDK_MAX_CALLS", "3").pass(&["over_max_calls"]).await;
//! Sdk::anthropic(sidecar.socket()).pass(&["messages_stream"]).await;
//! ```
//! The cases and their settings are in `tests/python/sdk_openai.py` and `sdk_anthropic.py`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use crate::leash::{Leash, python, python_file};

const LIMIT: Duration = Duration::from_secs(900);

/// An SDK program that is about to run.
#[derive(Debug)]
#[must_use = "call pass() or run()"]
pub struct Sdk {
    program: &'static str,
    base_variable: &'static str,
    base_path: String,
    socket: PathBuf,
    settings: Vec<(String, String)>,
}

impl Sdk {
    /// `sdk_openai.py`, with a base URL that ends in `/v1`.
    pub fn openai(socket: impl AsRef<Path>) -> Self {
        Self::program("sdk_openai.py", "OPENAI_BASE_URL", "/v1", socket.as_ref())
    }

    /// `sdk_anthropic.py`, with a base URL without a path: this SDK adds `/v1` itself.
    pub fn anthropic(socket: impl AsRef<Path>) -> Self {
        Self::program("sdk_anthropic.py", "ANTHROPIC_BASE_URL", "", socket.as_ref())
    }

    fn program(program: &'static str, base_variable: &'static str, base_path: &str, socket: &Path) -> Self {
        let (base_path, socket) = (base_path.to_owned(), socket.to_owned());
        Self { program, base_variable, base_path, socket, settings: Vec::new() }
    }

    /// The part of the base URL after `http://127.0.0.1:PORT`.
    pub fn base_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.base_path);
        self
    }

    /// A setting of the program (`SDK_…`), given as an environment variable.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the cases, in order.
    ///
    /// # Panics
    /// With the program's output unless all of them pass.
    pub async fn pass(self, cases: &[&str]) {
        let program = self.program;
        let output = self.run(cases).await;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let expected = format!("{} cases passed", cases.len());
        assert!(
            output.status.success() && stdout.lines().last() == Some(&expected),
            "{program} {cases:?}: {}, expected `{expected}`\n{stdout}\n{stderr}",
            output.status
        );
    }

    /// Runs the cases and returns the program's output, also after a failure.
    ///
    /// # Panics
    /// When socat or the program cannot be started, or the program does not end within five minutes.
    pub async fn run(self, cases: &[&str]) -> Output {
        let socat = PortToSocket::to(&self.socket).await;
        let mut command = tokio::process::Command::new(python());
        command
            .arg(python_file(self.program))
            .args(cases)
            .env_clear()
            .env("LANG", "C.UTF-8")
            .env(self.base_variable, format!("http://127.0.0.1:{}{}", socat.port(), self.base_path))
            .envs(self.settings)
            .kill_on_drop(true);
        match tokio::time::timeout(LIMIT, command.output()).await {
            Ok(output) => output.unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program)),
            Err(_) => panic!("{} {cases:?} did not end within {LIMIT:?}", self.program),
        }
    }
}

/// A TCP port on 127.0.0.1 that leads to a unix socket, as in the runtime image. Closed when dropped.
#[derive(Debug)]
pub struct PortToSocket {
    port: u16,
    _leash: Leash,
}

impl PortToSocket {
    /// Listens at once, on a port that the kernel picks; the socket need not exist before the first connection.
    ///
    /// # Panics
    /// When socat cannot be started.
    pub async fn to(socket: &Path) -> Self {
        let started = Leash::start_listening(
            |_| {
                let mut command = Command::new("socat");
                command
                    // With two -d, socat prints its port.
                    .args(["-d", "-d", "TCP-LISTEN:0,bind=127.0.0.1,fork,backlog=128"])
                    .arg(format!("UNIX-CONNECT:{}", socket.display()));
                command
            },
            "listening on AF=2 127.0.0.1:",
        );
        match started.await {
            Ok((leash, port)) => Self { port, _leash: leash },
            Err(why) => {
                panic!("no socat: {why}. Is it installed? run `make test`, or tests/setup/packages.sh")
            }
        }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
