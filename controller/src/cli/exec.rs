//! `sluice exec`: a program in a live sandbox.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_client::{ApiClient, ApiRequest, LineStream};
use sluice_contract::exit;
use sluice_runs::terminal::SanitizedWriter;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::object::CommandObject;
use super::output::{DataStream, print_object, say};
use super::server_args::ServerArgs;

mod input;

use input::{ExecTarget, RawTerminal};

/// Exit code of a program that Ctrl-C has ended: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// Message about a program that was not started. The daemon does not give a more exact reason.
const NOT_STARTED: &str = "the program was not started: the sandbox has no such program or directory; look at the name after --, and at --cwd";

const EXAMPLES: &str = "\
Examples:
  sluice exec nightly -- ls -l /workspace
  sluice exec nightly --timeout 30s -- sh -c 'tail -n 20 build.log'
  sluice exec -i nightly -- tar -x < fixtures.tar
  sluice exec -it nightly -- bash";

const EXIT_CODES: &str = "\
Exit codes: the program's own; 124 its time was over; 125 it was not started, or its end is not known;
130 Ctrl-C has ended it; 2 usage.";

/// Runs a program in a live sandbox of a daemon, as the sandbox's own user.
///
/// It is part of the run's work and recorded in the control log, with a digest of its arguments. Ctrl-C ends it; with a terminal
/// of its own, the program gets Ctrl-C, and its time ends it at the latest.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct ExecArgs {
    /// The run: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "ARGV")]
    argv: Vec<String>,
    /// An environment variable of the program; repeat for more
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The directory of the program, below /workspace [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Longest time of the program, at most 3600s [default: 600s]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Pass stdin to the program; otherwise it has none
    #[arg(long, short)]
    interactive: bool,
    /// Give the program a terminal: this one, with its size. Its output is not sanitised
    #[arg(long, short, conflicts_with = "json")]
    tty: bool,
    /// Print one JSON object, with the output, when the program has ended
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// A line of the answer: the first one, output, or the last one.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExecLine {
    Output {
        stream: String,
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        base64: Option<String>,
    },
    End(ExecEndLine),
    Begin {
        exec_id: String,
    },
}

/// The last line.
#[derive(Deserialize)]
struct ExecEndLine {
    exit_code: Option<i64>,
    stopped: Option<String>,
    bytes: Value,
    truncated: bool,
}

pub(super) async fn run(args: &ExecArgs) -> Result<ExitCode, CommandError> {
    execute(args).await.map_err(CommandError::without_program)
}

/// Runs the program, and returns its exit code.
async fn execute(args: &ExecArgs) -> Result<ExitCode, CommandError> {
    args.check_terminal()?;
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let lines = api.open(ApiRequest::post(&["sandboxes", &id, "exec"]).json(&args.body()?)).await?;
    let mut program = Program { api: &api, run: &id, exec_id: String::new(), stdout: Vec::new(), stderr: Vec::new() };
    let raw = args.enter_terminal()?;
    let ended = program.follow(lines, args).await;
    drop(raw);
    let end = ended?;
    if end.truncated {
        say("the output of the program was longer than the daemon passes on; a part is missing");
    }
    Ok(program.report(&end, args.json))
}

impl ExecArgs {
    /// Checks that stdin and stdout are a terminal for a program that gets one.
    fn check_terminal(&self) -> Result<(), CommandError> {
        let is_there = std::io::stdout().is_terminal() && (!self.interactive || std::io::stdin().is_terminal());
        if self.tty && !is_there {
            return Err(CommandError::wrong_usage("--tty needs a terminal on stdin and stdout; leave it out"));
        }
        Ok(())
    }

    /// Sets the terminal of an interactive program to raw mode, and says that the sandbox controls it.
    fn enter_terminal(&self) -> Result<Option<RawTerminal>, CommandError> {
        if !self.tty {
            return Ok(None);
        }
        say("the sandbox controls this terminal until the program ends; its output is not sanitised");
        if !self.interactive {
            return Ok(None);
        }
        RawTerminal::enter().map(Some).map_err(|error| CommandError::failed(&error))
    }

    fn body(&self) -> Result<Value, CommandError> {
        let mut env = BTreeMap::new();
        for given in &self.env {
            let Some((name, value)) = given.split_once('=') else {
                let message = "--env: write NAME=VALUE, and repeat the flag for more";
                return Err(CommandError::wrong_usage(message));
            };
            env.insert(name, value);
        }
        let mut body = json!({ "argv": self.argv, "env": env, "tty": self.tty });
        for (name, value) in [("cwd", &self.cwd), ("timeout", &self.timeout)] {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        Ok(body)
    }
}

/// A program in a sandbox.
struct Program<'a> {
    api: &'a ApiClient,
    run: &'a str,
    exec_id: String,
    /// Output that is kept for an object; the daemon limits it.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Waits for a signal; for ever if it is not caught.
async fn next_of(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

impl Program<'_> {
    /// Passes the output on until the program has ended.
    async fn follow(&mut self, mut lines: LineStream, args: &ExecArgs) -> Result<ExecEndLine, CommandError> {
        let mut stdout = if args.tty { DataStream::raw() } else { DataStream::sanitized() };
        let mut stderr = SanitizedWriter::new(std::io::stderr());
        let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| CommandError::failed(&error))?;
        let mut sizes = signal(SignalKind::window_change()).map_err(|error| CommandError::failed(&error))?;
        // A terminal gets its modes back before this process ends. Without one, these signals keep their meaning.
        let of_terminal =
            |kind| args.tty.then(|| signal(kind)).transpose().map_err(|error| CommandError::failed(&error));
        let (mut terminations, mut hangups) =
            (of_terminal(SignalKind::terminate())?, of_terminal(SignalKind::hangup())?);
        let left = || {
            let message = "the program is left to the daemon, which ends it".to_owned();
            CommandError { code: exit::NOT_STARTED, message }
        };
        let mut asked = 0;
        loop {
            let line = tokio::select! {
                line = lines.next() => line?,
                _ = interrupts.recv() => {
                    asked += 1;
                    if self.exec_id.is_empty() || asked > 1 {
                        return Err(left());
                    }
                    self.cancel().await;
                    continue;
                }
                () = next_of(&mut terminations) => return Err(left()),
                () = next_of(&mut hangups) => return Err(left()),
                _ = sizes.recv(), if args.tty && !self.exec_id.is_empty() => {
                    self.target().resize().await;
                    continue;
                }
            };
            let message =
                || "the daemon broke off before the end of the program; its exit code is not known".to_owned();
            let line = line.ok_or_else(|| CommandError { code: exit::NOT_STARTED, message: message() })?;
            match lines.parse(&line)? {
                ExecLine::Begin { exec_id } => {
                    self.exec_id = exec_id;
                    self.begin_input(args).await;
                }
                ExecLine::End(end) => return Ok(end),
                ExecLine::Output { stream, text, base64 } => {
                    let decoded = || BASE64_STANDARD.decode(base64.unwrap_or_default()).unwrap_or_default();
                    let bytes = text.map_or_else(decoded, String::into_bytes);
                    let is_stderr = stream == "stderr";
                    if args.json {
                        let kept = if is_stderr { &mut self.stderr } else { &mut self.stdout };
                        kept.extend(bytes);
                        continue;
                    }
                    let written = if is_stderr { stderr.put(&bytes) } else { stdout.put(&bytes) };
                    written.map_err(|error| CommandError::failed(&error))?;
                }
            }
        }
    }

    fn target(&self) -> ExecTarget {
        ExecTarget { api: self.api.clone(), run: self.run.to_owned(), exec_id: self.exec_id.clone() }
    }

    /// Begins to pass input, or ends it.
    async fn begin_input(&self, args: &ExecArgs) {
        if args.tty {
            self.target().resize().await;
        }
        match (args.interactive, args.tty) {
            (true, _) => drop(tokio::spawn(self.target().pass_stdin())),
            // Closing the input of a terminal would end the program.
            (false, true) => {}
            (false, false) => drop(tokio::spawn(self.target().close())),
        }
    }

    /// Requests the end of the program from the daemon.
    async fn cancel(&self) {
        let request = ApiRequest::delete(&["sandboxes", self.run, "exec", &self.exec_id]);
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(10), self.api.bytes(request)).await {
            say(&CommandError::from(error).message);
        }
    }

    /// Prints the object of the program, and returns its exit code.
    fn report(&self, end: &ExecEndLine, as_json: bool) -> ExitCode {
        let (word, code) = match (end.stopped.as_deref(), end.exit_code) {
            (Some("timed_out"), _) => ("timeout", exit::TIMEOUT),
            (Some("not_started"), _) => ("not_started", exit::NOT_STARTED),
            (Some(_), _) => ("cancelled", INTERRUPTED),
            (None, Some(0)) => ("", 0),
            (None, Some(code)) => ("program_failed", u8::try_from(code).unwrap_or(exit::FAILED)),
            (None, None) => ("unknown_end", exit::NOT_STARTED),
        };
        if as_json {
            let data = json!({
                "run": self.run,
                "exec_id": self.exec_id,
                "stdout": String::from_utf8_lossy(&self.stdout),
                "stderr": String::from_utf8_lossy(&self.stderr),
                "bytes": end.bytes,
                "truncated": end.truncated,
            });
            if code == 0 {
                print_object(&CommandObject::done(data));
            } else {
                let message = match word {
                    "not_started" => NOT_STARTED.to_owned(),
                    _ => format!("the program ended with exit code {code}"),
                };
                print_object(&CommandObject::failed_with(word, &CommandError { code, message }, data));
            }
        } else if word == "timeout" {
            say("the time of the program was over");
        } else if word == "not_started" {
            say(NOT_STARTED);
        }
        ExitCode::from(code)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ExecCommandLine {
        #[command(flatten)]
        exec: ExecArgs,
    }

    /// Bug: the exit code was 2, which could be the one of the program.
    #[tokio::test]
    async fn a_wrong_server_is_not_the_programs_failure() {
        let words = ["exec", "--server", "nonsense", "nightly", "--", "true"];
        let args = ExecCommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).exec;
        let error = run(&args).await.expect_err("it is not an address");
        assert_eq!(error.code, exit::NOT_STARTED, "{}", error.message);
    }

    #[test]
    fn each_line_of_an_answer_is_known() {
        let parse = |text: &str| serde_json::from_str::<ExecLine>(text);
        assert!(matches!(parse(r#"{"exec_id":"x_1"}"#), Ok(ExecLine::Begin { exec_id }) if exec_id == "x_1"));
        let output = r#"{"stream":"stdout","offset":0,"base64":"/wA="}"#;
        assert!(matches!(parse(output), Ok(ExecLine::Output { text: None, base64: Some(_), .. })));
        let end = r#"{"exit_code":null,"stopped":"timed_out","bytes":{"stdout":1,"stderr":0},"truncated":true}"#;
        assert!(matches!(parse(end), Ok(ExecLine::End(ExecEndLine { exit_code: None, truncated: true, .. }))));
        assert!(parse("{}").is_err() && parse("[]").is_err());
    }
}
