//! `sluice audit`: what an auditor asks.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_contract::reader::{self, FaultKind};
use sluice_contract::text::sanitize;
use sluice_contract::{Fault, Hash, PublicKey, RunKey, TrustAnchors, Verdict, Witness, verdict, verify_from};
use sluice_state::keys::{self, Keys};
use sluice_state::layout::Layout;
use sluice_state::ledger;
use sluice_state::run::Phase;
use sluice_state::store::Store;

use super::{Common, FAILED, Failed, USAGE, print, print_json};

mod show;
mod tail;

const EXAMPLES: &str = "\
Examples:
  sluice audit verify r20261120-163914-1df9af22    a run of this host, with its keys and its witness
  sluice audit verify --key sluice.pub *.jsonl     files from elsewhere, signed by that key
  sluice audit show r20261120-163914-1df9af22      its calls, as a table
  sluice audit keys > sluice.pub                   what an auditor needs to check signatures";

const EXIT_CODES: &str = "\
Exit codes of verify: 0 complete and authentic; 1 tampered; 3 authentic, and incomplete; 2 usage; 4 unreadable;
5 in order, but of a run that this database does not know; 6 in order, but signed by a key that this host does not know.
Without --key, and without what was seen of the file, authentic is no more than that it fits itself.
Of tail: 0 closed; 3 no sidecar writes it any more; 1 a bad line; 4 unreadable.";

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
    /// Trusts the public keys of another host from now on: its files are verified and billed here
    ImportKey {
        /// A public key: 64 hex digits, or a file of them
        #[arg(required = true)]
        key: Vec<String>,
    },
    /// Signs with a new key from now on; old files stay verifiable, and so the old key stays trusted: of what a thief
    /// signs with it, the witness tells
    RotateKey,
}

/// Exit code for a file whose run the database does not know.
const EXIT_UNKNOWN_RUN: u8 = 5;
/// Exit code for a file of a run that is unknown here, signed by a key that is unknown, too.
const EXIT_UNKNOWN_KEY: u8 = 6;

impl Flags {
    /// Whether it prints a file's own lines.
    pub(super) fn is_tail(&self) -> bool {
        matches!(self.command, Command::Tail { .. })
    }
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
            let keys = own_keys(state)?.public().map_err(|error| unreadable(&error))?;
            keys.iter().for_each(|key| print(&format!("{key}\n")));
            Ok(ExitCode::SUCCESS)
        }
        Command::ImportKey { key } => {
            own_keys(state)?;
            let keys = Keys::open(state).map_err(|error| Failed::new(FAILED, &error))?;
            for key in given_keys(key)? {
                keys.import(&key).map_err(|error| Failed::new(FAILED, &error))?;
                print(&format!("{key}\n"));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::RotateKey => {
            own_keys(state)?;
            let key = Keys::open(state).and_then(|keys| keys.rotate()).map_err(|error| Failed::new(FAILED, &error))?;
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
    /// With those who saw its lines when they were written.
    Verdict(Box<Verdict>, Vec<Witness>),
    /// In order as far as it can be checked, but the database has never heard of its run.
    UnknownRun(Box<Verdict>, RunKey),
    /// In order up to its signature, which is by a key that is not among the trusted ones.
    UnknownKey(Box<Fault>),
    Unreadable(String),
}

impl Answer {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Verdict(verdict, _) => verdict.exit_code(),
            Self::UnknownRun(..) => EXIT_UNKNOWN_RUN,
            Self::UnknownKey(_) => EXIT_UNKNOWN_KEY,
            Self::Unreadable(_) => sluice_contract::exit::UNREADABLE,
        }
    }

    /// One line for a person. That a file fits itself proves nothing of who wrote it.
    fn text(&self) -> String {
        match self {
            Self::Unreadable(reason) => format!("unreadable: {reason}"),
            Self::UnknownRun(verdict, key) => format!(
                "unknown to this database: it has never seen run {key}; a database that was lost or is an old copy learns of it \
                 by sluice ledger rebuild; the file itself is {verdict}"
            ),
            Self::UnknownKey(fault) => format!("signed by an unknown key: {}", ledger::unknown_key(fault)),
            Self::Verdict(verdict, seen) => match verdict.report() {
                Some(report) if vouched_by(report, seen).is_empty() => {
                    // Where there is no signature, no key helps.
                    let fix =
                        if report.seal == verdict::Seal::None { "give --against" } else { "give --key, or --against" };
                    format!("{verdict}; NOT PROVEN that nobody rewrote it whole: {fix}")
                }
                _ => verdict.to_string(),
            },
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
            print(&one_line(&format!("{}: {}", path.display(), answer.text())));
        }
    }
    if as_json {
        print_json(&json!({ "files": objects }));
    }
    // The gravest: an altered file, then one that nobody can read, or vouch for, then one with an end missing.
    let worst =
        [1, sluice_contract::exit::UNREADABLE, EXIT_UNKNOWN_KEY, EXIT_UNKNOWN_RUN, sluice_contract::exit::INCOMPLETE]
            .into_iter()
            .find(|code| codes.contains(code))
            .unwrap_or(0);
    Ok(ExitCode::from(worst))
}

async fn verify_one(path: &Path, request: &Request<'_>) -> Result<Answer, Failed> {
    let stated = match stated_key(path) {
        Ok(stated) => stated,
        Err(error) => return Ok(Answer::Unreadable(error.to_string())),
    };
    let own = is_own(request.state, path);
    let keys = match (request.keys.as_slice(), own) {
        ([], true) => own_keys(request.state)?.public().map_err(|error| unreadable(&error))?,
        (keys, _) => keys.to_vec(),
    };
    let (database, code) = match (request.against, own) {
        (Some(path), _) => (Some(path.to_owned()), USAGE),
        (None, true) => (Some(Layout::at(request.state).database()), sluice_contract::exit::UNREADABLE),
        (None, false) => (None, USAGE),
    };
    if let Some(gone) = database.as_ref().filter(|path| !path.exists()) {
        return Err(Failed { code, message: format!("there is no database {}", gone.display()) });
    }
    // A file of ours is of the run that it is named after, whatever it states.
    let named = fs::canonicalize(path).ok().filter(|_| own).and_then(|path| path.file_stem()?.to_str()?.parse().ok());
    if let (Some(named), Some(stated)) = (&named, &stated)
        && named != stated
    {
        return Ok(altered(FaultKind::Run, named, stated));
    }
    let (seen, unknown) = match (&database, named.as_ref().or(stated.as_ref())) {
        (Some(database), Some(key)) => match witnesses(database, key).await? {
            Seen::Lines(seen) => (seen, None),
            Seen::Nothing => return Ok(altered(FaultKind::Witness, &"a line that was seen while it was written", key)),
            Seen::UnknownRun => (Vec::new(), Some(key.clone())),
        },
        _ => (Vec::new(), None),
    };
    // Only now: of a file that grows, a line may have been seen that was not there yet a moment ago.
    let trust = TrustAnchors { keys: &keys, seen: &seen };
    let verdict = fs::File::open(path).and_then(|file| verify_from(BufReader::new(file), &trust));
    Ok(match verdict {
        Ok(Verdict::Tampered(fault)) if unknown.is_some() && fault.kind == FaultKind::UnknownKey => {
            Answer::UnknownKey(Box::new(fault))
        }
        Ok(verdict) => match unknown.filter(|_| verdict.report().is_some()) {
            Some(key) => Answer::UnknownRun(Box::new(verdict), key),
            None => Answer::Verdict(Box::new(verdict), seen),
        },
        Err(error) => Answer::Unreadable(error.to_string()),
    })
}

/// The run that a file claims to be of, if its first line is whole.
fn stated_key(path: &Path) -> io::Result<Option<RunKey>> {
    let mut first = Vec::new();
    reader::read_line(BufReader::new(fs::File::open(path)?), &mut first)?;
    let first = reader::lines(&first).next().and_then(Result::ok);
    Ok(first.and_then(|first| {
        let run_id = first.header.run_id.parse().ok()?;
        Some(RunKey { run_id, attempt: first.header.attempt })
    }))
}

fn altered(what: FaultKind, expected: &dyn ToString, found: &RunKey) -> Answer {
    let fault = Fault { line: 1, kind: what, expected: expected.to_string(), found: found.to_string() };
    Answer::Verdict(Box::new(Verdict::Tampered(fault)), Vec::new())
}

/// What a database has seen of a run.
enum Seen {
    /// These lines; none of a run that has just begun.
    Lines(Vec<Witness>),
    /// No line of a run that is over, though it was run here.
    Nothing,
    /// The database has never heard of it.
    UnknownRun,
}

async fn witnesses(database: &Path, key: &RunKey) -> Result<Seen, Failed> {
    let store = Store::read(database).map_err(|error| unreadable(&error))?;
    let seen = store.witnesses(key).await.map_err(|error| unreadable(&error))?;
    let phase = store.phase(key).await.map_err(|error| unreadable(&error))?;
    Ok(match phase {
        _ if !seen.is_empty() => Seen::Lines(seen),
        None => Seen::UnknownRun,
        Some(phase) if phase == Phase::Closed.as_str() => Seen::Nothing,
        Some(_) => Seen::Lines(seen),
    })
}

fn unreadable(error: &dyn std::error::Error) -> Failed {
    Failed::new(sluice_contract::exit::UNREADABLE, error)
}

/// Words of a file that may be anybody's: they cannot begin a line, nor speak to a terminal.
fn one_line(text: &str) -> String {
    sanitize(text.trim_end()) + "\n"
}

fn object(path: &Path, answer: &Answer) -> serde_json::Value {
    let (word, detail) = match answer {
        Answer::Unreadable(reason) => ("unreadable", json!({ "reason": reason })),
        Answer::UnknownRun(verdict, _) => {
            ("unknown_run", verdict.report().map_or(json!(null), |report| report_object(report, &[])))
        }
        Answer::UnknownKey(fault) => {
            ("unknown_key", json!({ "line": fault.line, "expected": fault.expected, "found": fault.found }))
        }
        Answer::Verdict(verdict, seen) => match verdict.as_ref() {
            Verdict::Complete(report) => ("complete", report_object(report, seen)),
            Verdict::Incomplete(report) => ("incomplete", report_object(report, seen)),
            Verdict::Tampered(fault) => (
                "tampered",
                json!({
                    "line": fault.line,
                    "what": fault.kind.as_str(),
                    "expected": fault.expected,
                    "found": fault.found,
                }),
            ),
        },
    };
    json!({ "file": path, "verdict": word, "exit_code": answer.exit_code(), "detail": detail })
}

/// What shows that a file which fits itself was not rewritten whole.
fn vouched_by(report: &verdict::VerificationReport, seen: &[Witness]) -> Vec<&'static str> {
    let signature = matches!(report.seal, verdict::Seal::Valid(_)).then_some("signature");
    let witness = (!seen.is_empty()).then_some("witness");
    signature.into_iter().chain(witness).collect()
}

fn report_object(report: &verdict::VerificationReport, seen: &[Witness]) -> serde_json::Value {
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
        "vouched_by": vouched_by(report, seen),
        "key_id": key_id,
        "calls": report.totals.calls,
        "refused": report.totals.refused,
        "unknown": report.totals.unknown,
        "cost_usd": report.totals.cost().to_string(),
    })
}

/// A run of this host, with its attempt or its last one; else a path as it is given.
///
/// The run first: a file of its name in the working directory may be anybody's.
fn find(state: &Path, name: &str) -> PathBuf {
    let given = PathBuf::from(name);
    if name.contains('/') {
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
    let file = fs::File::open(&path).and_then(|file| reader::read_file(BufReader::new(file)));
    file.map_err(|error| Failed {
        code: sluice_contract::exit::UNREADABLE,
        message: format!("cannot read {}: {error}; name an audit file, or a run of this host", path.display()),
    })
}

fn last_line(bytes: &[u8]) -> Result<(u64, Hash), Failed> {
    let mut last = None;
    for line in reader::lines(bytes) {
        let line = line.map_err(|fault| bad_line(&fault))?;
        last = Some((line.header.seq, Hash::of(line.bytes)));
    }
    last.ok_or_else(|| Failed { code: sluice_contract::exit::UNREADABLE, message: "the file has no line".to_owned() })
}

fn bad_line(fault: &Fault) -> Failed {
    Failed { code: 1, message: one_line(&fault.to_string()).trim_end().to_owned() }
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
    Ok(Keys::at(state))
}
