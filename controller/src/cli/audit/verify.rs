//! `sluice audit verify`: checks files against keys and against the lines that a database has seen.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use sluice_contract::reader::{self, FaultKind};
use sluice_contract::verdict::Seal;
use sluice_contract::{Fault, PublicKey, RunKey, TrustAnchors, Verdict, Witness, exit, verify_from};
use sluice_state::control_log::{self, ControlLogError};
use sluice_state::decisions::Decisions;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::Doubt;
use sluice_state::run::RunPhase;
use sluice_state::store::Store;

use super::super::error::CommandError;
use super::super::object::CommandObject;
use super::super::output::{OutputFormat, print, print_object};
use super::file_verdict::{FileVerdict, object};
use super::files::{find, is_control_log, is_own, one_line, unreadable};
use super::keys::own_keys;

/// Exit codes for a file, from the worst one on: altered, unreadable, unknown key or run, incomplete.
pub(in super::super) const WORST_FIRST: [u8; 5] =
    [exit::FAILED, exit::UNREADABLE, exit::UNKNOWN_KEY, exit::UNKNOWN_RUN, exit::INCOMPLETE];

/// Sources of trust for a verification.
pub(super) struct TrustSources<'a> {
    /// The state directory.
    pub(super) state: &'a Path,
    /// Keys that the command line names.
    pub(super) keys: Vec<PublicKey>,
    /// Database that the command line names.
    pub(super) against: Option<&'a Path>,
}

/// Verifies files, and prints the results.
pub(super) async fn verify_all(
    files: &[String],
    trusted: &TrustSources<'_>,
    format: OutputFormat,
) -> Result<ExitCode, CommandError> {
    let mut lines = BTreeMap::new();
    let mut failed = None;
    let mut objects = Vec::new();
    for name in files {
        let (path, answer) = match find(trusted.state, name).await {
            Ok(path) => {
                let answer = verify_one(&path, trusted).await?;
                (path, answer)
            }
            Err(error) => (PathBuf::from(name), FileVerdict::Unreadable(io::Error::other(error.message))),
        };
        let line = one_line(&format!("{}: {}", path.display(), answer.text()));
        if format == OutputFormat::Json {
            objects.push(object(&path, &answer));
        } else {
            print(&line);
        }
        if answer.exit_code() == exit::FAILED {
            failed.get_or_insert(answer.word());
        }
        lines.entry(answer.exit_code()).or_insert(line);
    }
    let worst = worst(&mut lines);
    if format == OutputFormat::Json {
        let files = json!({ "files": objects });
        print_object(&match &worst {
            Some(error) if error.code == exit::FAILED => {
                CommandObject::failed_with(failed.unwrap_or("tampered"), error, files)
            }
            worst => CommandObject::of(worst.as_ref(), files),
        });
    }
    Ok(worst.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
}

/// Returns the error of the worst result. The line for each exit code is the one of the first file with that result.
fn worst(lines: &mut BTreeMap<u8, String>) -> Option<CommandError> {
    let (code, line) = WORST_FIRST.into_iter().find_map(|code| Some((code, lines.remove(&code)?)))?;
    Some(CommandError { code, message: line.trim_end().to_owned() })
}

/// Verifies a log of the actions of people and tokens, with keys only.
fn verify_control(path: &Path, trusted: &TrustSources<'_>) -> Result<FileVerdict, CommandError> {
    let keys = match (trusted.keys.as_slice(), is_own(trusted.state, path)) {
        ([], true) => own_keys(trusted.state)?.public().map_err(|error| unreadable(&error))?,
        ([], false) => {
            let message = format!("{} is of another host; name the keys that sign it with --key", path.display());
            return Err(CommandError::wrong_usage(message));
        }
        (keys, _) => keys.to_vec(),
    };
    match control_log::verify(path, &keys, |_| {}) {
        Ok(summary) => Ok(FileVerdict::Control(Ok(summary))),
        Err(ControlLogError::Fault { fault, .. }) => Ok(FileVerdict::Control(Err(fault))),
        Err(ControlLogError::Io(_, error)) => Ok(FileVerdict::Unreadable(error)),
        Err(error) => Err(unreadable(&error)),
    }
}

async fn verify_one(path: &Path, trusted: &TrustSources<'_>) -> Result<FileVerdict, CommandError> {
    if is_control_log(path) {
        return verify_control(path, trusted);
    }
    let (stated, is_record) = match first_line(path) {
        Ok(first) => first,
        Err(error) => return Ok(FileVerdict::Unreadable(error)),
    };
    let own = is_own(trusted.state, path);
    let keys = match (trusted.keys.as_slice(), own) {
        ([], true) => own_keys(trusted.state)?.public().map_err(|error| unreadable(&error))?,
        (keys, _) => keys.to_vec(),
    };
    let database = database(trusted, own)?;
    // A file in the state directory belongs to the run of its name, whatever run it states.
    let named = fs::canonicalize(path).ok().filter(|_| own).and_then(|path| path.file_stem()?.to_str()?.parse().ok());
    if let (Some(named), Some(stated)) = (&named, &stated)
        && named != stated
    {
        return Ok(altered(FaultKind::Run, named, stated));
    }
    let (seen, unknown) = match (&database, named.as_ref().or(stated.as_ref())) {
        (Some(database), Some(key)) => match witnesses(database, trusted.against, key).await? {
            SeenLines::Lines(seen) => (seen, None),
            SeenLines::Missing => {
                return Ok(altered(FaultKind::Witness, &"a line that was seen while it was written", key));
            }
            SeenLines::UnknownRun => (Vec::new(), Some(key.clone())),
        },
        _ => (Vec::new(), None),
    };
    let (keys, seen, unknown) = match imported(trusted, own, named.as_ref(), &keys)? {
        // The operator vouches for this file.
        Some(last) => (Vec::new(), vec![last], None),
        None => (keys, seen, unknown),
    };
    // The file is opened after the database is read: a file that grows may have fewer lines than the database has seen.
    let trust = TrustAnchors { keys: &keys, seen: &seen };
    let verdict = if own { verify_file(path, &trust) } else { verify_foreign(path, &trust, trusted.state) };
    Ok(match verdict {
        Ok(Verdict::Tampered(fault)) => {
            let doubt = doubt(trusted, own, unknown.is_some(), &fault);
            match doubt.filter(|doubt| *doubt != Doubt::NotAnAuditFile || !is_record) {
                // The operator has named the keys that must have signed.
                Some(doubt) if !trusted.keys.is_empty() => FileVerdict::Refused(doubt, Box::new(fault)),
                Some(doubt) => FileVerdict::Doubtful(doubt, Box::new(fault)),
                None => FileVerdict::Verdict(Box::new(Verdict::Tampered(fault)), seen),
            }
        }
        Ok(verdict) => match unknown.filter(|_| verdict.report().is_some()) {
            Some(key) => FileVerdict::UnknownRun(Box::new(verdict), key),
            None => FileVerdict::Verdict(Box::new(verdict), seen),
        },
        Err(error) => FileVerdict::Unreadable(error),
    })
}

fn verify_file(path: &Path, trust: &TrustAnchors<'_>) -> io::Result<Verdict> {
    verify_from(BufReader::new(fs::File::open(path)?), trust)
}

/// Verifies a file that is not in the state directory. If no key is given, and the file names a key of the state
/// directory as its signer, it must be signed by this key.
fn verify_foreign(path: &Path, trust: &TrustAnchors<'_>, state: &Path) -> io::Result<Verdict> {
    let verdict = verify_file(path, trust)?;
    let Some(Seal::Unchecked(signer)) = verdict.report().map(|report| &report.seal) else { return Ok(verdict) };
    // Without a state directory that this user can read, no key is known.
    let known = Keys::at(state).public().unwrap_or_default();
    match known.iter().find(|key| key.id() == *signer) {
        Some(key) => verify_file(path, &TrustAnchors { keys: std::slice::from_ref(key), seen: trust.seen }),
        None => Ok(verdict),
    }
}

/// Returns the database with the witnesses of a file; `None` if the file is not in the state directory and no database is
/// named.
fn database(trusted: &TrustSources<'_>, own: bool) -> Result<Option<PathBuf>, CommandError> {
    let (path, code, fix) = match (trusted.against, own) {
        (Some(path), _) => (path.to_owned(), exit::USAGE, ""),
        (None, true) => {
            let fix = "; sluice ledger rebuild makes it from the audit files";
            (Layout::at(trusted.state).database(), exit::UNREADABLE, fix)
        }
        (None, false) => return Ok(None),
    };
    if path.exists() {
        return Ok(Some(path));
    }
    Err(CommandError { code, message: format!("there is no database {}{fix}", path.display()) })
}

/// Returns the reason not to trust a file without witnesses on this host; `None` for a file that was altered.
fn doubt(trusted: &TrustSources<'_>, own: bool, is_unknown: bool, fault: &Fault) -> Option<Doubt> {
    // For a run that this host knows, a missing or new signature means an alteration.
    let is_foreign = is_unknown || (!own && trusted.against.is_none());
    Doubt::of(fault).filter(|_| is_foreign)
}

/// Returns the run that a file states in its first line, if that line is valid, and whether the line names a run at all.
fn first_line(path: &Path) -> io::Result<(Option<RunKey>, bool)> {
    const MEMBER: &[u8] = br#""run_id""#;
    let mut first = Vec::new();
    reader::read_line(BufReader::new(fs::File::open(path)?), &mut first)?;
    let is_record = first.is_empty() || first.windows(MEMBER.len()).any(|part| part == MEMBER);
    let first = reader::lines(&first).next().and_then(Result::ok);
    let key = first.and_then(|first| {
        let run_id = first.header.run_id.parse().ok()?;
        Some(RunKey { run_id, attempt: first.header.attempt })
    });
    Ok((key, is_record))
}

/// Returns the last line of an unsigned file that the operator has imported.
fn imported(
    trusted: &TrustSources<'_>,
    own: bool,
    key: Option<&RunKey>,
    keys: &[PublicKey],
) -> Result<Option<Witness>, CommandError> {
    let Some(key) = key.filter(|_| own && trusted.keys.is_empty()) else { return Ok(None) };
    let decisions = Decisions::read(&Layout::at(trusted.state), keys).map_err(|error| unreadable(&error))?;
    Ok(decisions.vouched(key))
}

fn altered(what: FaultKind, expected: &dyn ToString, found: &RunKey) -> FileVerdict {
    let fault = Fault { line: 1, kind: what, expected: expected.to_string(), found: found.to_string() };
    FileVerdict::Verdict(Box::new(Verdict::Tampered(fault)), Vec::new())
}

/// Lines of a run's audit file that a database has seen.
enum SeenLines {
    /// These lines; none if the run has just started.
    Lines(Vec<Witness>),
    /// The database has seen no line, although the run has ended.
    Missing,
    /// The database does not know the run.
    UnknownRun,
}

async fn witnesses(database: &Path, evidence: Option<&Path>, key: &RunKey) -> Result<SeenLines, CommandError> {
    let store = if evidence.is_some() { Store::read(database) } else { Store::open_for_queries(database) };
    let store = store.map_err(|error| unreadable(&error))?;
    let seen = store.witnesses(key).await.map_err(|error| unreadable(&error))?;
    let phase = store.phase(key).await.map_err(|error| unreadable(&error))?;
    Ok(match phase {
        _ if !seen.is_empty() => SeenLines::Lines(seen),
        None => SeenLines::UnknownRun,
        Some(phase) if phase == RunPhase::Closed.as_str() => SeenLines::Missing,
        Some(_) => SeenLines::Lines(seen),
    })
}
