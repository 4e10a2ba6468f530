//! `sluice run`: one run, from the question to the receipt.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_runs::engine::StdioConfig;
use sluice_runs::forward::{self, ControlSequences};
use sluice_runs::host::Host;
use sluice_runs::input::Stdin;
use sluice_runs::observer::Observation;
use sluice_runs::one_shot::{self, OneShot};
use sluice_runs::outcome::CompletedRun;
use sluice_runs::removal::{self, RemainingDirectory};
use sluice_runs::terminal::SanitizedWriter;
use sluice_runs::verdict::{Contract, ErrorCode};
use sluice_runs::{signals, sweep, tty};
use sluice_state::budget::{BudgetError, Shortfall};
use sluice_state::ledger::usd;
use tokio::sync::watch;

use super::{BEFORE_START, Common, Failed, failure, print, print_json, progress, say};
use crate::reconcile::background;
use crate::settings::separator;

mod request;
mod rights;
mod source;

/// As for a run that dies of its cap.
const NO_BUDGET: u8 = 121;

/// How long the process stays after its answer to remove workspaces; the rest is left to the next one.
const REMOVE_WITHIN: Duration = Duration::from_secs(10);
/// The same after a signal. Most workspaces need milliseconds.
const REMOVE_AFTER_SIGNAL: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  sluice run --model gpt-4o-mini \"say hello\"
  sluice run --model gpt-4o-mini --messages chat.json --json
  sluice run --agent claude --model claude-sonnet-4-5 --repo .:rw \"fix the failing test\"
  sluice run --model gpt-4o-mini --repo .:ro --timeout 10m -- python3 /workspace/repo/agent.py
  sluice run --quiet -- sha256sum < archive.tar
  sluice run --memory 64m -- sh -c 'exit 42'; echo $?";

const EXIT_CODES: &str = "\
Exit codes: 0 ok; the program's own; 120 the audit log is incomplete; 121 a cap was reached, or the
account's budget has too little left; 124 timeout; 125 it did not start; 126, 127 no such program;
128+n ended by signal n. If the output of a program cannot be written: 141 the reader is gone; 74 any
other error, such as a full disk.";

/// Runs one agent, or one program, in a container without a network.
///
/// The answer goes to stdout; progress and a receipt go to stderr.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct Flags {
    /// What to ask the agent
    #[arg(value_name = "MESSAGE", conflicts_with = "messages")]
    message: Option<String>,
    /// A program and its arguments, in place of an agent; what it prints is the answer
    #[arg(last = true, value_name = "ARGV")]
    argv: Vec<String>,
    /// Messages for the agent: a JSON array as the OpenAI API takes it; '-' is stdin
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// Pass stdin to a program behind --, also when it is a terminal; a pipe or a file is passed without this flag
    #[arg(long, short)]
    interactive: bool,
    /// Give a program behind -- our terminal, for a user interface of its own; with -i also the keys: -it
    #[arg(long, short)]
    tty: bool,
    /// The agent to ask, such as claude or codex; see sluice agents [default: sandbox:agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// A model that the run may name; repeat for more, the first one is SLUICE_MODEL [default: any one]
    #[arg(long, value_name = "NAME", value_parser = one_word)]
    model: Vec<String>,
    /// The billing account that pays [default: default]
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// The run's name; used once [default: one made of the time]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// One JSON object in place of the answer
    #[arg(long)]
    json: bool,
    /// Neither progress nor receipt
    #[arg(long, short)]
    quiet: bool,

    /// The image [default: the agent's own, or sluice-runtime:latest]
    #[arg(long, value_name = "IMAGE", help_heading = "The sandbox")]
    image: Option<String>,
    /// A variable in the sandbox; repeat for more
    #[arg(long, short, value_name = "K=V", help_heading = "The sandbox")]
    env: Vec<String>,
    /// A directory to see at /workspace/repo, read-only unless it ends in :rw
    #[arg(long, value_name = "DIR[:ro|:rw]", help_heading = "The sandbox")]
    repo: Option<String>,
    /// A directory or a file to see at another place, read-only unless it ends in :rw; repeat for more
    #[arg(long, short, value_name = "SOURCE:PATH[:ro|:rw]", help_heading = "The sandbox")]
    volume: Vec<String>,
    /// Memory, swap included [default: the agent's own, or 512m]
    #[arg(long, value_name = "SIZE", help_heading = "The sandbox")]
    memory: Option<String>,
    /// Processors [default: 1]
    #[arg(long, value_name = "N", help_heading = "The sandbox")]
    cpus: Option<String>,
    /// Processes and threads [default: 256]
    #[arg(long, value_name = "N", help_heading = "The sandbox")]
    pids: Option<String>,
    /// A seccomp profile in place of ours
    #[arg(long, value_name = "FILE", help_heading = "The sandbox")]
    seccomp: Option<String>,

    /// Open one more route, such as 'POST /v1/rerank', or 'GET /v1/responses/{id}' for the run's own ids; repeat for more
    #[arg(long, value_name = "METHOD /PATH", value_parser = one_route, help_heading = "What calls may say")]
    allow: Vec<String>,
    /// Let tools of this type through, which run outside the sandbox; repeat for more
    #[arg(long, value_name = "TYPE", value_parser = one_word, help_heading = "What calls may say")]
    allow_tool: Vec<String>,
    /// Let an anthropic-beta value through; repeat for more
    #[arg(long, value_name = "VALUE", value_parser = one_word, help_heading = "What calls may say")]
    allow_beta: Vec<String>,
    /// Let a body member through that is dropped or refused otherwise; repeat for more
    #[arg(long, value_name = "NAME", value_parser = one_word, help_heading = "What calls may say")]
    allow_param: Vec<String>,
    /// Which members bodies may have: openai (those of the public APIs), or vllm (also those of vLLM and SGLang)
    /// [default: openai]
    #[arg(long, value_name = "NAME", help_heading = "What calls may say")]
    dialect: Option<String>,
    /// Let messages have URLs that the upstream or the provider will fetch
    #[arg(long, help_heading = "What calls may say")]
    allow_remote_media: bool,
    /// Let a header of answers through to the sandbox; repeat for more
    #[arg(long, value_name = "NAME", value_parser = one_word, help_heading = "What calls may say")]
    pass_response_header: Vec<String>,
    /// The largest body of a call [default: 32MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    max_body: Option<String>,
    /// Calls at once [default: 64]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_concurrency: Option<String>,
    /// Silence before an answer [default: 600s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    first_byte_timeout: Option<String>,
    /// Silence within an answer [default: 300s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    idle_timeout: Option<String>,
    /// How long a call waits for others to end, where a cap has no room for what it reserves beside them [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    cap_wait: Option<String>,

    /// How long the program may run [default: the agent's own, or 120s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    timeout: Option<String>,
    /// How long it may take to end when it is told to [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    stop_grace: Option<String>,
    /// How much of stdout and stderr is kept for --json and for the answer of an agent: head and tail, half of it each.
    /// What a program behind -- writes is passed on whole [default: 2m]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    output_max: Option<String>,
    /// Calls of the whole run
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_calls: Option<String>,
    /// Tokens of the whole run, input and output
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_tokens: Option<String>,
    /// Dollars of the whole run
    #[arg(long, value_name = "X", help_heading = "Limits")]
    max_cost_usd: Option<String>,
    /// Prices to reserve by [default: with --max-cost-usd, those of LiteLLM's GET /model/info]
    #[arg(long, value_name = "FILE", help_heading = "Limits")]
    prices: Option<String>,
    /// Calls a second, such as 5/s
    #[arg(long, value_name = "N/s", help_heading = "Limits")]
    rate: Option<String>,
    /// Whose key the sidecar gets: the one of key_file (master), or a virtual key of LiteLLM for this run alone
    /// (per-run), or that where it can be had (auto) [default: master]
    #[arg(long, value_name = "MODE", help_heading = "The host")]
    key_mode: Option<String>,
    /// When an audit line counts as written: on disk (call), or in the kernel (off) [default: call]
    #[arg(long, value_name = "WHEN", help_heading = "Limits")]
    audit_sync: Option<String>,

    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode, Failed> {
    let as_json = flags.json;
    let done = begin(flags).await;
    done.map_err(|refused| {
        if as_json {
            // Whoever reads one object gets one, also of a run that never was.
            print_json(&refused.as_json());
        }
        refused.failed
    })
}

/// Why there was no run.
struct Refused {
    failed: Failed,
    /// If its account has too little left.
    short: Option<Box<Shortfall>>,
}

impl Refused {
    fn before(error: &dyn std::error::Error) -> Self {
        Self { failed: Failed::new(BEFORE_START, error), short: None }
    }

    fn as_json(&self) -> Value {
        let Failed { code: exit_code, message } = &self.failed;
        let code = ErrorCode::CreationFailed.as_str();
        let mut object = failure(code, *exit_code, message);
        if let Some(short) = &self.short {
            object["error_code"] = json!(ErrorCode::InsufficientCredits.as_str());
            object["error_message"] = json!(short.to_string());
            object["account"] = json!(short.account);
            object["asked_usd"] = json!(short.asked.map(|nanos| usd(nanos.into())));
            object["budget"] = json!(short.balance);
        }
        object
    }
}

impl From<BudgetError> for Refused {
    fn from(error: BudgetError) -> Self {
        match error {
            BudgetError::Short(short) => {
                let code = ErrorCode::InsufficientCredits.as_str();
                let failed = Failed { code: NO_BUDGET, message: format!("{code}: {short}") };
                Self { failed, short: Some(short) }
            }
            error => Self::before(&error),
        }
    }
}

async fn begin(flags: Flags) -> Result<ExitCode, Refused> {
    let before = |error: &dyn std::error::Error| Refused::before(error);
    let settings =
        flags.common.layers(flags.given()).and_then(|layers| layers.settings()).map_err(|error| before(&error))?;
    let request = request::read(&flags, &settings).map_err(|error| before(&error))?;
    // A program with our terminal draws on it alone.
    let observer = if flags.quiet || flags.tty { progress::silent() } else { progress::on_terminal() };
    for volume in &request.spec.volumes {
        if let Some(rights::Wrong::Limited(reason)) = rights::wrong(volume) {
            say(&format!("warning: {reason}"));
        }
    }
    let (stop, cancelled) = watch::channel(None);
    signals::catch(&stop).map_err(|error| before(&error))?;
    let host = Arc::new(Host::open(&settings.host()).await.map_err(|error| before(&error))?);
    request::find_image(&host.engine, &settings, &request).await.map_err(|error| before(&error))?;
    one_shot::check(&host, &request).await.map_err(|error| before(&error))?;
    let begun = format!("run {}: {}", request.key, request.spec.argv.join(" "));
    observer.observe(Observation::Note(&begun));

    let (admitted, note) = match one_shot::admit(&host, &request).await {
        // What runs of killed controllers hold may be what this one needs.
        Err(BudgetError::Short(_)) => {
            told(&sweep::recover_orphans(&host, &progress::silent()).await);
            one_shot::admit(&host, &request).await?
        }
        admitted => admitted?,
    };
    note.iter().for_each(|note| say(note));
    let (contract, stdin, tty, own) = (request.contract, request.spec.stdin, request.spec.tty, request.key.to_string());
    // However the run ends, and if there is none.
    let restore = tty::TerminalGuard;
    let (max, live, printer) = if contract == Contract::Plain && !flags.json {
        let orders = if tty { ControlSequences::Passed } else { ControlSequences::Replaced };
        let (outlet, printer) = forward::start(orders, stop).map_err(|error| before(&error))?;
        // What passes on whole need not be kept.
        (0, Some(outlet), Some(printer))
    } else {
        (settings.output_max, None, None)
    };
    let once = OneShot {
        host: Arc::clone(&host),
        request,
        admitted,
        output: StdioConfig { stdin, tty, max, live },
        printer,
        stop_grace: settings.stop_grace,
        observer,
    };
    if tty && stdin == Stdin::Ours && !flags.quiet {
        let pid = std::process::id();
        say(&format!("run {own}: Ctrl-C goes to the program; to stop the run, kill {pid} from another terminal"));
    }
    background::begin(&settings, host.layout.database());
    // What a killed controller left is taken down beside this run: nobody else may come.
    let silent = progress::silent();
    let (done, faults) = tokio::join!(one_shot::run(once, cancelled), sweep::recover_orphans(&host, &silent));
    told(&faults);
    drop(restore);
    let mut done = done.map_err(|error| before(&error))?;
    let (posting, revoking) = (done.posting.take(), done.revoking.take());
    let code = ExitCode::from(u8::try_from(done.report.exit_code).unwrap_or(255));
    let shown = tokio::task::spawn_blocking(move || {
        show(&flags, contract, &done);
    });
    tokio::select! {
        _ = shown => {}
        // Whoever reads it has stalled; the run is over, and a further signal is for us.
        _ = signals::next() => {}
    }
    // The answer is out, and its exit code is decided. Nobody waits for the workspace, however much the agent has put there.
    let removing = {
        let runs = host.layout.runs_directory();
        tokio::task::spawn_blocking(move || {
            removal::remove_all(&runs, Some(&own), Some(Instant::now() + REMOVE_WITHIN))
        })
    };
    // What the ledger makes of it changes nothing about the run.
    if let Some(posting) = posting
        && let Err(error) = posting.done().await
    {
        let error = error_chain(&error);
        say(&format!("the ledger has not taken this run: {error}; see sluice ledger rebuild"));
    }
    if let Some(revoking) = revoking
        && let Ok(Err(reason)) = revoking.await
    {
        say(&format!("LiteLLM has not deleted the run's virtual key: {reason}; sluice sweep tries again"));
    }
    let hurried = async {
        signals::next().await;
        // A second one ends it at once.
        let _ = tokio::time::timeout(REMOVE_AFTER_SIGNAL, signals::next()).await;
    };
    let remaining = tokio::select! {
        remaining = removing => remaining.unwrap_or_default(),
        () = hurried => return Ok(code),
    };
    for RemainingDirectory { name, reason } in remaining {
        say(&format!(
            "the directory of run {name} is not removed yet: {reason}; the next sluice run or sweep goes on with it"
        ));
    }
    Ok(code)
}

impl Flags {
    fn given(&self) -> BTreeMap<&'static str, String> {
        [
            ("agent", &self.agent),
            ("account", &self.account),
            ("image", &self.image),
            ("memory", &self.memory),
            ("cpus", &self.cpus),
            ("pids", &self.pids),
            ("seccomp", &self.seccomp),
            ("timeout", &self.timeout),
            ("stop_grace", &self.stop_grace),
            ("output_max", &self.output_max),
            ("max_calls", &self.max_calls),
            ("max_tokens", &self.max_tokens),
            ("max_cost_usd", &self.max_cost_usd),
            ("prices", &self.prices),
            ("rate", &self.rate),
            ("key_mode", &self.key_mode),
            ("audit_sync", &self.audit_sync),
            ("max_body", &self.max_body),
            ("max_concurrency", &self.max_concurrency),
            ("first_byte_timeout", &self.first_byte_timeout),
            ("idle_timeout", &self.idle_timeout),
            ("cap_wait", &self.cap_wait),
            ("dialect", &self.dialect),
            ("allow_remote_media", &self.allow_remote_media.then(|| true.to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .chain(self.lists())
        .collect()
    }

    fn lists(&self) -> impl Iterator<Item = (&'static str, String)> {
        let lists = [
            ("model", &self.model),
            ("allow", &self.allow),
            ("allow_tool", &self.allow_tool),
            ("allow_beta", &self.allow_beta),
            ("allow_param", &self.allow_param),
            ("pass_response_header", &self.pass_response_header),
        ];
        lists.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
            let separator = separator(name).unwrap_or(' ').to_string();
            (name, values.join(&separator))
        })
    }
}

fn one_word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("write one name without blanks, and repeat the flag for more".to_owned());
    }
    Ok(text.to_owned())
}

fn one_route(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(';') {
        return Err("write one route, such as 'POST /v1/rerank', and repeat the flag for more".to_owned());
    }
    Ok(text.to_owned())
}

/// Of runs whose calls nobody saw the end of: there may be money in that, and nobody else says so.
fn told(faults: &[String]) {
    faults.iter().for_each(|fault| say(fault));
}

/// The data to stdout, the rest to stderr.
fn show(flags: &Flags, contract: Contract, done: &CompletedRun) {
    let report = &done.report;
    if flags.json {
        print_json(report);
    } else if contract == Contract::Envelope && !report.content.is_empty() {
        print(&format!("{}\n", report.content));
    }
    let mut stderr = SanitizedWriter::new(std::io::stderr());
    if contract == Contract::Envelope && !report.ok && !flags.json {
        let _ = stderr.put(report.stderr.as_bytes());
    }
    if let (Some(code), Some(message)) = (report.error_code, &report.error_message) {
        say(&format!("{code}: {message}"));
    }
    if !flags.quiet {
        done.notes.iter().for_each(|note| say(note));
        let _ = stderr.put(report.receipt().as_bytes());
    }
}
