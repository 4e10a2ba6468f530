//! The command line: one file for each command.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use sluice_contract::exit;

mod agent;
mod agents;
mod answer;
mod approvals;
mod attach;
mod audit;
mod backup;
mod branch;
mod budget;
mod cancel;
mod compare;
mod completions;
mod config;
mod cp;
mod database;
mod error;
mod events;
mod exec;
mod find_run;
mod forbidden_places;
mod git_child;
mod host_args;
mod inspect;
mod ledger;
mod logs;
mod messages;
mod named_run;
mod object;
mod open;
mod operator_record;
mod output;
mod parse;
mod pause;
mod preflight;
mod progress;
mod prune;
mod ps;
mod receipts;
mod reconcile;
mod regular_file;
mod retry;
mod run;
mod run_status;
mod sandbox_object;
mod schema;
mod selection;
mod serve;
mod server_args;
mod shape;
mod stderr_log;
mod style;
mod sweep;
mod table;
mod token;
mod top;
mod usage;
mod wait;
mod webhook;

use error::{CommandError, WRONG_USAGE};
use object::{CommandObject, NoData};
use output::{OutputFormat, fail, print, print_object};

const EXAMPLES: &str = "\
Examples:
  sluice run --model gpt-4o-mini \"say hello\"          ask the agent in the image
  sluice run --model gpt-4o-mini -- python3 task.py   run your own program, with a model at localhost:8080
  sluice run --json --model gpt-4o-mini \"hello\" | jq .receipts
  sluice ps                                           list live runs
  sluice logs -f r20261120                            follow the output of a run
  sluice receipts --since 24h                         list the costs of calls
  sluice budget set acct-1 25                         limit the spending of an account
  sluice reconcile                                    compare the ledger with LiteLLM's bill
  sluice audit verify r20261120-163914-1df9af22       check that an audit log is complete and authentic
  sluice serve                                        offer all this over HTTP
  sluice run -d --model gpt-4o-mini -- make test      let the daemon drive a run; sluice wait RUN
  sluice open                                         log a browser in to the daemon
  sluice preflight                                    check that this machine has all that runs need
  sluice config show                                  show every setting and its source";

/// Version, and the commit that this build was made from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SLUICE_BUILD"), ")");

/// Runs AI agents in containers without a network, with one way out: a socket to their model.
#[derive(Debug, Parser)]
#[command(name = "sluice", version = VERSION, propagate_version = true, before_help = EXAMPLES, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    Preflight(preflight::PreflightArgs),
    Rerun(run::RerunArgs),
    Diff(branch::DiffArgs),
    Apply(branch::ApplyArgs),
    Push(branch::PushArgs),
    Pr(branch::PrArgs),
    Merge(branch::MergeArgs),
    Ps(ps::PsArgs),
    Inspect(inspect::InspectArgs),
    Logs(logs::LogsArgs),
    Attach(attach::AttachArgs),
    Wait(wait::WaitArgs),
    Cancel(cancel::CancelArgs),
    Retry(retry::RetryArgs),
    Fail(retry::FailArgs),
    Send(messages::SendArgs),
    Interrupt(messages::InterruptArgs),
    Messages(messages::MessagesArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Approvals(approvals::ApprovalsArgs),
    Approve(Box<approvals::ApproveArgs>),
    Deny(Box<approvals::DenyArgs>),
    Answer(answer::AnswerArgs),
    Events(events::EventsArgs),
    Compare(compare::CompareArgs),
    Top(top::TopArgs),
    Open(open::OpenArgs),
    Exec(exec::ExecArgs),
    Cp(cp::CpArgs),
    Sweep(sweep::SweepArgs),
    Receipts(Box<receipts::ReceiptsArgs>),
    Usage(usage::UsageArgs),
    Ledger(Box<ledger::LedgerArgs>),
    Budget(Box<budget::BudgetArgs>),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Prune(prune::PruneArgs),
    Reconcile(Box<reconcile::ReconcileArgs>),
    Audit(Box<audit::AuditArgs>),
    Agents(agents::AgentsArgs),
    Agent(agent::AgentArgs),
    Serve(serve::ServeArgs),
    Token(token::TokenArgs),
    Webhook(webhook::WebhookArgs),
    Config(config::ConfigArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(completions::ManArgs),
}

/// Reads the command line and runs the command.
#[must_use]
pub fn main() -> ExitCode {
    git_child::run_if_asked().unwrap_or_else(|| output::exit_code(run_command()))
}

/// Returns the whole command line: commands, flags and help texts.
fn command_line() -> clap::Command {
    shape::shaped(Cli::command())
}

fn run_command() -> ExitCode {
    let format = OutputFormat::from(asks_for_json(std::env::args_os()));
    let parsed = command_line().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return refuse(&shape::without_tip(error), format),
    };
    let prints_own_errors = cli.command.prints_own_errors();
    let runtime = match runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => return fail(&CommandError::failed(&error)),
    };
    let done = runtime.block_on(cli.command.run());
    // Tasks that wait on a dead connection are abandoned.
    runtime.shutdown_background();
    done.unwrap_or_else(|error| {
        if format == OutputFormat::Json && !prints_own_errors {
            print_object(&error.object());
        }
        fail(&error)
    })
}

/// Returns the runtime of a command. The daemon has two threads, so that one slow read of a file stops nothing else.
fn runtime(command: &Command) -> io::Result<tokio::runtime::Runtime> {
    match command {
        Command::Serve(_) => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        _ => tokio::runtime::Builder::new_current_thread().enable_all().build(),
    }
}

impl Command {
    async fn run(self) -> Result<ExitCode, CommandError> {
        match self {
            Self::Run(args) => run::run(*args).await,
            Self::Preflight(args) => preflight::run(&args).await,
            Self::Rerun(args) => run::rerun(args).await,
            Self::Diff(args) => branch::diff(&args).await,
            Self::Apply(args) => branch::apply(&args).await,
            Self::Push(args) => branch::push(&args).await,
            Self::Pr(args) => branch::pr(&args).await,
            Self::Merge(args) => branch::merge(&args).await,
            Self::Ps(args) => ps::run(&args).await,
            Self::Inspect(args) => inspect::run(&args).await,
            Self::Logs(args) => logs::run(&args).await,
            Self::Attach(args) => attach::run(&args).await,
            Self::Wait(args) => wait::run(&args).await,
            Self::Cancel(args) => cancel::run(&args).await,
            Self::Retry(args) => retry::retry(&args).await,
            Self::Fail(args) => retry::fail(&args).await,
            Self::Send(args) => messages::send(&args).await,
            Self::Interrupt(args) => messages::interrupt(&args).await,
            Self::Messages(args) => messages::list(&args).await,
            Self::Pause(args) => pause::pause(&args).await,
            Self::Resume(args) => pause::resume(&args).await,
            Self::Approvals(args) => approvals::list(&args).await,
            Self::Approve(args) => approvals::approve(&args).await,
            Self::Deny(args) => approvals::deny(&args).await,
            Self::Answer(args) => answer::run(&args).await,
            Self::Events(args) => events::run(&args).await,
            Self::Compare(args) => compare::run(&args).await,
            Self::Top(args) => top::run(&args).await,
            Self::Open(args) => open::run(&args).await,
            Self::Exec(args) => exec::run(&args).await,
            Self::Cp(args) => cp::run(&args).await,
            Self::Sweep(args) => sweep::run(&args).await,
            Self::Receipts(args) => receipts::run(&args).await,
            Self::Usage(args) => usage::run(&args).await,
            Self::Ledger(args) => ledger::run(&args).await,
            Self::Budget(args) => budget::run(&args).await,
            Self::Backup(args) => backup::run_backup(&args).await,
            Self::Restore(args) => backup::run_restore(&args).await,
            Self::Prune(args) => prune::run(&args).await,
            Self::Reconcile(args) => reconcile::run(&args).await,
            Self::Audit(args) => audit::run(&args).await,
            Self::Agents(args) => agents::run(&args).await,
            Self::Agent(args) => agent::run(&args).await,
            Self::Serve(args) => serve::run(&args).await,
            Self::Token(args) => token::run(&args).await,
            Self::Webhook(args) => webhook::run(&args).await,
            Self::Config(args) => config::run(&args),
            Self::Schema(args) => schema::run(&args),
            Self::Completions(args) => Ok(completions::completions(&args, command_line())),
            Self::Man(args) => completions::man(&args, command_line()),
        }
    }

    /// Returns whether a command prints its errors itself: the object of a run has more members, and a stream prints
    /// lines.
    fn prints_own_errors(&self) -> bool {
        match self {
            Self::Run(_) | Self::Rerun(_) => true,
            Self::Audit(args) => args.is_tail(),
            Self::Events(args) => args.is_stream(),
            Self::Logs(args) => args.is_stream(),
            _ => false,
        }
    }
}

/// Returns whether the output is one JSON object, also for an invalid command line: no flag takes `--json` as a
/// value.
fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Answers wrong usage, or a request for help. `run` has another exit code, since 2 could be the agent's own.
fn refuse(error: &clap::Error, format: OutputFormat) -> ExitCode {
    let text = error.render().to_string();
    if error.use_stderr() {
        let _ = io::stderr().write_all(text.as_bytes());
    } else {
        print(&text);
    }
    let is_run = std::env::args_os().nth(1).is_some_and(|arg| arg == "run" || arg == "rerun");
    let code = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return ExitCode::SUCCESS,
        _ if is_run => exit::NOT_STARTED,
        _ => exit::USAGE,
    };
    if format == OutputFormat::Json {
        let error = CommandError { code, message: first_sentence(&text) };
        if is_run {
            print_object(&run::no_run(error));
        } else {
            print_object(&CommandObject::failed_with(WRONG_USAGE, &error, NoData {}));
        }
    }
    ExitCode::from(code)
}

/// Returns clap's message without usage and help, on one line.
fn first_sentence(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}
