//! `sluice audit`: what an auditor asks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_contract::{Hash, PublicKey, Trust, Verdict, Witness, reader, verdict, verify};

use super::{Common, FAILED, Failed, USAGE, print, print_json};
use crate::keys::{self, Keys};
use crate::layout::{Layout, RunKey};
use crate::scene::chain;
use crate::store::Store;

mod show;
mod tail;

const EXAMPLES: &str = "\
Examples:
  sluice audit verify r20261120-163914-1df9af22    a run of this host, with its keys and its witness
  sluice audit verify --key sluice.pub *.jsonl     files from elsewhere, signed by that key
  sluice audit show r20261120-163914-1df9af22      its calls, as a table
  sluice audit keys > sluice.pub                   what an auditor needs to check signatures";

const EXIT_CODES: &str = "\
Exit codes of verify: 0 complete and authentic; 1 tampered; 3 authentic, and incomplete; 2 usage; 4 unreadable.";

/// Verifies and shows audit files.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct Flags {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks files line by line: chain, order, sums, signature, witness
    Verify {
        /// Audit files, or runs of this host
        #[arg(required = true, value_name = "FILE|RUN")]
        files: Vec<String>,
        /// A public key: 64 hex digits, or a file of them; repeat for more [default: for files in the state
        /// directory, its own]
        #[arg(long, value_name = "KEY")]
        key: Vec<String>,
        /// The database with what was seen while the files were written [default: for files in the state directory,
        /// its own]
        #[arg(long, value_name = "DATABASE")]
        against: Option<PathBuf>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Shows the calls of a file, and what they come to
    Show {
        /// An audit file, or a run of this host
        #[arg(value_name = "FILE|RUN")]
        file: String,
    },
    /// Follows a run until its log is closed
    Tail {
        /// An audit file, or a run of this host
        #[arg(value_name = "FILE|RUN")]
        file: String,
        /// The lines as they are
        #[arg(long)]
        json: bool,
    },
    /// Prints the hash of a file's last line, to be kept elsewhere
    Hash {
        /// An audit file, or a run of this host
        #[arg(value_name = "FILE|RUN")]
        file: String,
    },
    /// Prints the public keys that have signed here
    Keys,
    /// Signs with a new key from now on; old files stay verifiable
    RotateKey,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let settings = flags.common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let state = settings.state_dir.as_path();
    match &flags.command {
        Command::Verify { files, key, against, json } => {
            let request = Request { state, keys: given_keys(key)?, against: against.as_deref() };
            verify_all(files, &request, *json).await
        }
        Command::Show { file } => {
            show::show(&find(state, file), &read(state, file)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Tail { file, json } => tail::tail(&find(state, file), *json).await,
        Command::Hash { file } => {
            let (seq, head) = last_line(&read(state, file)?)?;
            print(&format!("{seq}:{head}\n"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Keys => {
            let keys = own_keys(state)?.public().map_err(|error| Failed::new(FAILED, &error))?;
            keys.iter().for_each(|key| print(&format!("{key}\n")));
            Ok(ExitCode::SUCCESS)
        }
        Command::RotateKey => {
            let key = own_keys(state)?.rotate().map_err(|error| Failed::new(FAILED, &error))?;
            print(&format!("{key}\n"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What a verification is held against.
struct Request<'a> {
    state: &'a Path,
    keys: Vec<PublicKey>,
    against: Option<&'a Path>,
}

/// What came of one file.
enum Answer {
    Verdict(Box<Verdict>),
    Unreadable(String),
}

impl Answer {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Verdict(verdict) => verdict.exit_code(),
            Self::Unreadable(_) => verdict::EXIT_UNREADABLE,
        }
    }
}

async fn verify_all(files: &[String], request: &Request<'_>, as_json: bool) -> Result<ExitCode, Failed> {
    let mut codes = BTreeSet::new();
    let mut objects = Vec::new();
    for name in files {
        let path = find(request.state, name);
        let answer = verify_one(&path, request).await?;
        codes.insert(answer.exit_code());
        if as_json {
            objects.push(object(&path, &answer));
        } else {
            print(&match &answer {
                Answer::Verdict(verdict) => format!("{}: {verdict}\n", path.display()),
                Answer::Unreadable(reason) => format!("{}: unreadable: {reason}\n", path.display()),
            });
        }
    }
    if as_json {
        print_json(&json!({ "files": objects }));
    }
    // The gravest: an altered file, then one that nobody can read, then one with an end missing.
    let worst = [1, verdict::EXIT_UNREADABLE, 3].into_iter().find(|code| codes.contains(code)).unwrap_or(0);
    Ok(ExitCode::from(worst))
}

async fn verify_one(path: &Path, request: &Request<'_>) -> Result<Answer, Failed> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Answer::Unreadable(error.to_string())),
    };
    let own = is_own(request.state, path);
    let keys = match (request.keys.as_slice(), own) {
        ([], true) => own_keys(request.state)?.public().map_err(|error| Failed::new(FAILED, &error))?,
        (keys, _) => keys.to_vec(),
    };
    let database = match (request.against, own) {
        (Some(path), _) => Some(path.to_owned()),
        (None, true) => Some(Layout::at(request.state).database()),
        (None, false) => None,
    };
    let seen = match database {
        Some(database) => witnesses(&database, &bytes).await?,
        None => Vec::new(),
    };
    Ok(Answer::Verdict(Box::new(verify(&bytes, &Trust { keys: &keys, seen: &seen }))))
}

/// What the database saw of the run that a file claims to be of.
async fn witnesses(database: &Path, bytes: &[u8]) -> Result<Vec<Witness>, Failed> {
    let Some(Ok(first)) = reader::lines(bytes).next() else { return Ok(Vec::new()) };
    let Ok(run_id) = first.common.run_id.parse() else { return Ok(Vec::new()) };
    if !database.exists() {
        return Err(Failed { code: USAGE, message: format!("there is no database {}", database.display()) });
    }
    let key = RunKey { run_id, attempt: first.common.attempt };
    let store = Store::open(database).map_err(|error| Failed::new(FAILED, &error))?;
    store.witnesses(&key).await.map_err(|error| Failed::new(FAILED, &error))
}

fn object(path: &Path, answer: &Answer) -> serde_json::Value {
    let (word, detail) = match answer {
        Answer::Unreadable(reason) => ("unreadable", json!({ "reason": reason })),
        Answer::Verdict(verdict) => match verdict.as_ref() {
            Verdict::Complete(report) => ("complete", report_object(report)),
            Verdict::Incomplete(report) => ("incomplete", report_object(report)),
            Verdict::Tampered(fault) => (
                "tampered",
                json!({
                    "line": fault.line,
                    "what": fault.what.as_str(),
                    "expected": fault.expected,
                    "found": fault.found,
                }),
            ),
        },
    };
    json!({ "file": path, "verdict": word, "exit_code": answer.exit_code(), "detail": detail })
}

fn report_object(report: &verdict::Report) -> serde_json::Value {
    let (seal, key_id) = match &report.seal {
        verdict::Seal::None => ("none", None),
        verdict::Seal::Unchecked(id) => ("unchecked", Some(id)),
        verdict::Seal::Valid(id) => ("valid", Some(id)),
    };
    json!({
        "lines": report.lines,
        "head": report.head.to_string(),
        "closed": report.closed,
        "open_calls": report.open_calls,
        "torn_bytes": report.torn,
        "recovered": report.recovered,
        "epochs": report.epochs,
        "signature": seal,
        "key_id": key_id,
        "calls": report.totals.calls,
        "refused": report.totals.refused,
        "unknown": report.totals.unknown,
        "cost_usd": report.totals.cost().to_string(),
    })
}

/// A path as it is given; else a run of this host, with its attempt or its last one.
fn find(state: &Path, name: &str) -> PathBuf {
    let given = PathBuf::from(name);
    if given.exists() || name.contains('/') {
        return given;
    }
    let audit = state.join("audit");
    let exact = audit.join(format!("{name}.jsonl"));
    if exact.exists() {
        return exact;
    }
    let attempts = fs::read_dir(&audit).into_iter().flatten().flatten().filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        let key: RunKey = file.strip_suffix(".jsonl")?.parse().ok()?;
        (key.run_id.as_str() == name).then_some(key.attempt)
    });
    match attempts.max() {
        Some(attempt) => audit.join(format!("{name}.{attempt}.jsonl")),
        None => given,
    }
}

/// Whether a file is one of ours, by where it is.
fn is_own(state: &Path, path: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    match (real(&state.join("audit")), real(path)) {
        (Some(audit), Some(file)) => file.parent() == Some(&audit),
        _ => false,
    }
}

fn read(state: &Path, name: &str) -> Result<Vec<u8>, Failed> {
    let path = find(state, name);
    fs::read(&path).map_err(|error| Failed {
        code: verdict::EXIT_UNREADABLE,
        message: format!("cannot read {}: {error}; name an audit file, or a run of this host", path.display()),
    })
}

fn last_line(bytes: &[u8]) -> Result<(u64, Hash), Failed> {
    let mut last = None;
    for line in reader::lines(bytes) {
        let line = line.map_err(|fault| Failed::new(1, &fault))?;
        last = Some((line.common.seq, Hash::of(line.bytes)));
    }
    last.ok_or_else(|| Failed { code: verdict::EXIT_UNREADABLE, message: "the file has no line".to_owned() })
}

/// Keys as they are given: the text of one, or a file with one on each line.
fn given_keys(given: &[String]) -> Result<Vec<PublicKey>, Failed> {
    let mut all = Vec::new();
    for key in given {
        match key.parse() {
            Ok(key) => all.push(key),
            Err(_) => all.extend(keys::read_public(Path::new(key)).map_err(|error| Failed::new(USAGE, &error))?),
        }
    }
    Ok(all)
}

fn own_keys(state: &Path) -> Result<Keys, Failed> {
    if !state.join("audit").is_dir() {
        let message = format!("{} is no state directory of sluice; name it with --state-dir", state.display());
        return Err(Failed { code: USAGE, message });
    }
    Keys::open(state).map_err(|error| Failed { code: FAILED, message: chain(&error) })
}
