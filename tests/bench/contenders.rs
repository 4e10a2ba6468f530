//! The compared programs: configuration, start, and check of readiness.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::unistd::Uid;

use crate::Outcome;
use crate::callgrind::{self, Profile};
use crate::measure;
use crate::process::Running;
use crate::programs;
use crate::wire::{self, CallKind};

/// One column of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    Sluice,
    SluiceSync,
    Nginx,
    NginxTemplate,
    Haproxy,
    Hyper,
    Relay,
}

/// The processor that runs a contender's program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Processor {
    Real,
    /// Valgrind's processor, which counts and writes a profile of each process.
    Callgrind,
}

/// The bench's directory, and the upstream's port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchSite<'a> {
    pub(crate) scratch: &'a Path,
    pub(crate) port: u16,
}

/// A contender that answers.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) socket: PathBuf,
    /// From before the fork to the first answered `GET /health`.
    pub(crate) answers: Duration,
    /// From before the fork to the ready line, if the program prints one.
    pub(crate) announced: Option<Duration>,
    /// All its processes.
    pub(crate) pids: Vec<i32>,
    running: Running,
    /// File of its stderr.
    errors: PathBuf,
}

impl Started {
    /// Ends the contender. Returns the disk syncs per call, if it is a sidecar, which reports them.
    pub(crate) fn end(self) -> Outcome<Option<f64>> {
        drop(self.running);
        let said = fs::read_to_string(&self.errors)?;
        let figure = |name: &str| -> Option<f64> {
            let (_, rest) = said.lines().last()?.split_once(name)?;
            rest.split(' ').next()?.parse().ok()
        };
        // There is one record before the first call, one after the last call, and two for each call.
        Ok(figure("records=").zip(figure("syncs=")).map(|(records, syncs)| syncs / ((records - 2.0) / 2.0)))
    }

    /// Ends a contender on [`Processor::Callgrind`], and returns the cost of all its processes.
    pub(crate) fn profile(self) -> Outcome<Profile> {
        drop(self.running);
        let dir = self.errors.parent().ok_or("a contender lives in a directory")?;
        Profile::sum(dir, self.pids.len())
    }
}

/// Longest time of a start.
const PATIENCE: Duration = Duration::from_secs(10);

impl Contender {
    /// All contenders, in the order of the tables.
    pub(crate) const ALL: [Self; 7] =
        [Self::Sluice, Self::SluiceSync, Self::Nginx, Self::NginxTemplate, Self::Haproxy, Self::Hyper, Self::Relay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::SluiceSync => "sluice-sync",
            Self::Nginx => "nginx",
            Self::NginxTemplate => "nginx-template",
            Self::Haproxy => "haproxy",
            Self::Hyper => "hyper",
            Self::Relay => "relay",
        }
    }

    /// Description in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sluice => "sluice-proxy, full policy, `--audit-sync off`",
            Self::SluiceSync => "sluice-proxy, full policy, `--audit-sync call`",
            Self::Nginx => "nginx tuned: 64 kept upstream connections, no spooling, access log (`nginx-tuned.conf`)",
            Self::NginxTemplate => {
                "nginx with the configuration of a run template: 4 kept connections (`nginx-template.conf`)"
            }
            Self::Haproxy => "HAProxy tuned: 1 thread, `http-reuse always`, access log (`haproxy.cfg`)",
            Self::Hyper => {
                "hyper alone: a reverse proxy of hyper's server and client, without policy and log: the least that the library costs"
            }
            Self::Relay => {
                "raw byte relay: no HTTP, no header, no log: the least that a proxy costs, except in `new-connection` (it keeps no connection to the upstream)"
            }
        }
    }

    /// Returns the number of calls of a round. Contenders that wait most of the time get fewer calls, so that their
    /// rounds end too: a durable record is a disk flush or two, and nginx's defaults stall 40 ms for a body.
    pub(crate) fn calls(self, calls: usize, ask: CallKind) -> usize {
        match (self, ask) {
            (_, CallKind::Paced(_)) => calls,
            (Self::SluiceSync, CallKind::Chat | CallKind::Burst(_) | CallKind::Body(_)) => (calls / 5).max(64),
            (Self::NginxTemplate, CallKind::Body(_)) => (calls / 10).max(20),
            _ => calls,
        }
    }

    /// Returns true if it replaces the client's key, as all do but `hyper` and `relay`.
    pub(crate) fn signs(self) -> bool {
        !matches!(self, Self::Hyper | Self::Relay)
    }

    /// Returns the path of its program.
    pub(crate) fn binary(self) -> Outcome<PathBuf> {
        match self {
            Self::Sluice | Self::SluiceSync => programs::sidecar(),
            Self::Nginx | Self::NginxTemplate => programs::installed("nginx"),
            Self::Haproxy => programs::installed("haproxy"),
            Self::Hyper | Self::Relay => Ok(std::env::current_exe()?),
        }
    }

    /// Starts it and returns as soon as it answers.
    pub(crate) fn start(self, field: &BenchSite<'_>) -> Outcome<Started> {
        self.start_on(Processor::Real, field)
    }

    /// Starts it on this processor, and returns as soon as it answers.
    pub(crate) fn start_on(self, processor: Processor, field: &BenchSite<'_>) -> Outcome<Started> {
        let started = self.spawn(processor, field, self.name())?;
        Ok(Started { pids: measure::tree(started.pids[0]), ..started })
    }

    /// Starts it under this name, and returns as soon as its first process answers.
    pub(crate) fn launch(self, field: &BenchSite<'_>, name: &str) -> Outcome<Started> {
        self.spawn(Processor::Real, field, name)
    }

    fn spawn(self, processor: Processor, field: &BenchSite<'_>, name: &str) -> Outcome<Started> {
        let dir = field.scratch.join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir(&dir)?;
        let socket = dir.join("run/llm.sock");
        fs::create_dir(dir.join("run"))?;
        let errors = dir.join("stderr");
        let mut command = self.command(processor, field, &dir, &socket)?;
        command.stderr(File::create(&errors)?);

        let forked = Instant::now();
        let mut running = Running::spawn(&mut command)?;
        let line = self.hand_over(&mut running)?;
        while health(&socket).is_none() {
            let why = match running.ended()? {
                Some(status) => format!("ended ({status})"),
                None if forked.elapsed() > PATIENCE => format!("gave no answer in {} s", PATIENCE.as_secs()),
                None => {
                    #[allow(
                        clippy::disallowed_methods,
                        reason = "outside the runtime: nothing says when a program answers"
                    )]
                    std::thread::sleep(Duration::from_micros(20));
                    continue;
                }
            };
            let said = fs::read_to_string(&errors).unwrap_or_default();
            return Err(format!("{} {why} at its start; stderr: {}", self.name(), said.trim()).into());
        }
        let answers = forked.elapsed();
        let announced = match line {
            Some(line) => Some(line.recv_timeout(PATIENCE)?.duration_since(forked)),
            None => None,
        };
        let pids = vec![running.pid()];
        Ok(Started { socket, answers, announced, pids, running, errors })
    }

    fn command(self, processor: Processor, field: &BenchSite<'_>, dir: &Path, socket: &Path) -> Outcome<Command> {
        let config = |template: &str| -> Outcome<PathBuf> {
            let text = template
                .replace("{{dir}}", &dir.to_string_lossy())
                .replace("{{socket}}", &socket.to_string_lossy())
                .replace("{{port}}", &field.port.to_string())
                .replace("{{key}}", wire::KEY)
                .replace("{{account}}", wire::ACCOUNT)
                .replace("{{metadata}}", wire::METADATA);
            let path = dir.join("config");
            fs::write(&path, text)?;
            Ok(path)
        };
        let mut command = match processor {
            Processor::Real => Command::new(self.binary()?),
            Processor::Callgrind => callgrind::command(&self.binary()?, dir),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        match self {
            Self::Sluice => sidecar_flags(&mut command, field, dir, socket, "off")?,
            Self::SluiceSync => sidecar_flags(&mut command, field, dir, socket, "call")?,
            Self::Nginx | Self::NginxTemplate => {
                let template = match self {
                    Self::Nginx => include_str!("nginx-tuned.conf"),
                    _ => include_str!("nginx-template.conf"),
                };
                command.arg("-p").arg(dir).arg("-e").arg(dir.join("error.log"));
                command.arg("-c").arg(config(template)?);
            }
            Self::Haproxy => {
                command.arg("-db").arg("-f").arg(config(include_str!("haproxy.cfg"))?);
                command.stdout(File::create(dir.join("access.log"))?);
            }
            Self::Hyper => {
                command.arg("__hyper").arg(socket).arg(field.port.to_string());
            }
            Self::Relay => {
                command.arg("__relay").arg(socket).arg(field.port.to_string());
            }
        }
        let is_counted = matches!((self, processor), (Self::Sluice | Self::SluiceSync, Processor::Callgrind));
        if is_counted && Uid::effective().is_root() {
            // callgrind writes its file at the end, into a directory that belongs to root.
            command.args(["--user", "root"]);
        }
        Ok(command)
    }

    /// Writes the key to a sidecar's stdin. Returns the receiver of the time at which the sidecar prints its ready
    /// line; `None` for another contender.
    fn hand_over(self, running: &mut Running) -> Outcome<Option<Receiver<Instant>>> {
        if !matches!(self, Self::Sluice | Self::SluiceSync) {
            return Ok(None);
        }
        if let Some(mut stdin) = running.stdin() {
            // The caller reports a sidecar that has ended already, with its stderr.
            let _written: std::io::Result<()> = stdin.write_all(wire::KEY.as_bytes());
        }
        let stdout = running.stdout().ok_or("the sidecar has no stdout")?;
        let (send, line) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            // A failed start has no line, and no receiver waits for one.
            if BufReader::new(stdout).read_line(&mut text).is_ok_and(|read| read > 0) {
                let _waited_for = send.send(Instant::now());
            }
        });
        Ok(Some(line))
    }
}

fn sidecar_flags(command: &mut Command, field: &BenchSite<'_>, dir: &Path, socket: &Path, sync: &str) -> Outcome<()> {
    let audit = dir.join("audit");
    fs::create_dir(&audit)?;
    command.arg("--socket").arg(socket);
    command.arg("--upstream").arg(format!("http://127.0.0.1:{}", field.port));
    command.arg("--audit").arg(audit.join("bench.0.jsonl"));
    command.args(["--run-id", "bench", "--account", wire::ACCOUNT, "--audit-sync", sync]);
    command.args(["--metadata", r#"{"team":"bench"}"#, "--drain", "1s", "--max-concurrency", "1024"]);
    command.args(["--max-calls", "1000000000", "--max-tokens", "1000000000000000"]);
    for model in wire::MODELS {
        command.args(["--model", model]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(())
}

/// `Some` when the socket answers `GET /health` with a 200.
fn health(socket: &Path) -> Option<()> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    (&answer == b"HTTP/1.1 200").then_some(())
}
