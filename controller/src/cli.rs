//! The command line: one file a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use sluice_contract::text::{error_chain, truncate};
use sluice_runs::terminal::SanitizedWriter;
use sluice_runs::verdict::ErrorCode;

use crate::settings::{Layers, SettingError, Settings};

mod agents;
mod audit;
mod budget;
mod config;
mod ledger;
mod preflight;
mod progress;
mod receipts;
mod reconcile;
mod run;
mod sweep;

/// Our failure before anything of a run started, as with `docker run`.
const BEFORE_START: u8 = 125;
/// Wrong usage of the other commands.
const USAGE: u8 = 2;
/// The same, as the `error_code` of an object.
const WRONG_USAGE: &str = "usage";
/// Any other failure of theirs.
const FAILED: u8 = 1;
/// Two sources that are to say the same do not.
const MISMATCH: u8 = 122;

const EXAMPLES: &str = "\
Examples:
  sluice run --model gpt-4o-mini \"say hello\"          ask the agent in the image
  sluice run --model gpt-4o-mini -- python3 task.py   run a program of your own, with a model at localhost:8080
  sluice run --json --model gpt-4o-mini \"hello\" | jq .receipts
  sluice receipts --since 24h                         what its calls cost
  sluice budget set acct-1 25                         what an account may spend
  sluice reconcile                                    whether LiteLLM's bill says the same
  sluice audit verify r20261120-163914-1df9af22       whether its log is complete and authentic
  sluice preflight                                    whether this machine has all that it needs
  sluice config show                                  every setting, and where it comes from";

/// Runs AI agents in containers without a network, with one way out: a socket to their model.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, before_help = EXAMPLES, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Flags>),
    Preflight(preflight::Flags),
    Sweep(sweep::Flags),
    Receipts(Box<receipts::Flags>),
    Usage(receipts::UsageFlags),
    Ledger(Box<ledger::Flags>),
    Budget(Box<budget::Flags>),
    Reconcile(Box<reconcile::Flags>),
    Audit(Box<audit::Flags>),
    Agents(agents::Flags),
    Config(config::Flags),
}

/// Where things are.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The host")]
struct Common {
    /// The configuration file [default: /etc/sluice/sluice.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where runs, audit files and the database are [default: /var/lib/sluice]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<String>,
    /// The Docker Engine's socket [default: $DOCKER_HOST, or unix:///var/run/docker.sock]
    #[arg(long, global = true, value_name = "URL")]
    docker_host: Option<String>,
    /// Where calls go: http://HOST:PORT, https://HOST or unix:/PATH
    #[arg(long, global = true, value_name = "URL")]
    upstream: Option<String>,
    /// A file with the upstream's key, readable by its owner alone
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<String>,
    /// The sidecar's program [default: the sluice-proxy beside sluice, or on PATH]
    #[arg(long, global = true, value_name = "FILE")]
    proxy: Option<String>,
}

impl Common {
    fn given(&self) -> BTreeMap<&'static str, String> {
        [
            ("state_dir", &self.state_dir),
            ("docker_host", &self.docker_host),
            ("upstream", &self.upstream),
            ("key_file", &self.key_file),
            ("proxy", &self.proxy),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect()
    }

    fn layers(&self, more: BTreeMap<&'static str, String>) -> Result<Layers, SettingError> {
        let mut flags = self.given();
        flags.extend(more);
        Layers::collect(&flags, |name| std::env::var(name).ok(), self.config.as_deref())
    }

    fn settings(&self) -> Result<Settings, SettingError> {
        self.layers(BTreeMap::new())?.settings()
    }
}

/// A failure, in words, with the exit code that goes with it.
struct Failed {
    code: u8,
    message: String,
}

impl Failed {
    fn new(code: u8, error: &dyn std::error::Error) -> Self {
        Self { code, message: error_chain(error) }
    }

    fn as_json(&self) -> Value {
        failure(if self.code == USAGE { WRONG_USAGE } else { "failed" }, self.code, &self.message)
    }
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let as_json = asks_for_json(std::env::args_os());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, as_json),
    };
    // Of a run there is more to say, which it does by itself; and what `tail` prints are the lines of a file.
    let says_so_itself = match &cli.command {
        Command::Run(_) => true,
        Command::Audit(flags) => flags.is_tail(),
        _ => false,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failed::new(FAILED, &error)),
    };
    let done = runtime.block_on(async {
        match cli.command {
            Command::Run(flags) => run::run(*flags).await,
            Command::Preflight(flags) => preflight::run(&flags).await,
            Command::Sweep(flags) => sweep::run(&flags).await,
            Command::Receipts(flags) => receipts::run(&flags).await,
            Command::Usage(flags) => receipts::usage(&flags).await,
            Command::Ledger(flags) => ledger::run(&flags).await,
            Command::Budget(flags) => budget::run(&flags).await,
            Command::Reconcile(flags) => reconcile::run(&flags).await,
            Command::Audit(flags) => audit::run(&flags).await,
            Command::Agents(flags) => agents::run(&flags).await,
            Command::Config(flags) => config::run(&flags),
        }
    });
    // What still hangs on a dead connection need not be waited for.
    runtime.shutdown_background();
    done.unwrap_or_else(|failed| {
        if as_json && !says_so_itself {
            print_json(&failed.as_json());
        }
        fail(&failed)
    })
}

/// Whether somebody will read one object. Also of a command line that cannot be read: no flag has this for a value.
fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

fn fail(failed: &Failed) -> ExitCode {
    say(&failed.message);
    ExitCode::from(failed.code)
}

/// A message to whoever ran us. What others have said may be in it.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "sluice: {}", truncate(message));
}

/// Wrong usage, or a wish for help. A code of 2 could be an agent's own, so `run` has another.
fn refuse(error: &clap::Error, as_json: bool) -> ExitCode {
    let _ = error.print();
    let is_run = std::env::args_os().nth(1).is_some_and(|arg| arg == "run");
    let (code, word) = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return ExitCode::SUCCESS,
        _ if is_run => (BEFORE_START, ErrorCode::CreationFailed.as_str()),
        _ => (USAGE, WRONG_USAGE),
    };
    if as_json {
        print_json(&failure(word, code, &first_sentence(&error.to_string())));
    }
    ExitCode::from(code)
}

/// What clap says before it comes to usage and help, on one line.
fn first_sentence(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}

/// What whoever reads one object gets when there is nothing to tell but that it failed.
fn failure(word: &str, code: u8, message: &str) -> Value {
    json!({ "ok": false, "error_code": word, "error_message": message, "exit_code": code })
}

/// Prints data, in which words of others may stand.
fn put(bytes: &[u8]) -> io::Result<()> {
    SanitizedWriter::new(io::stdout().lock()).put(bytes)
}

/// Prints data; a reader that has gone away is no failure.
fn print(text: &str) {
    let _ = put(text.as_bytes());
}

fn print_json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).expect("plain data");
    print(&format!("{text}\n"));
}
