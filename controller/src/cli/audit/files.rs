//! Audit files of this host, and their lines.

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use sluice_contract::text::sanitize;
use sluice_contract::{Fault, Hash, RunKey, exit, reader};
use sluice_state::layout::Layout;

use super::super::database::{check_in_use, open_for_queries};
use super::super::error::CommandError;
use super::super::find_run::{find_run, pruned_run};
use super::super::output::timestamp_to_second;

/// Advice for a name at which nothing can be read.
pub(super) const ADVICE: &str = "name an audit file, or a run of this host";

/// Name of the log of the actions of people and tokens.
const CONTROL: &str = "control";

/// Returns the file that a name means: the file of a run of this host, by RUN.ATTEMPT, or by RUN for its last attempt;
/// else the given path, if something is there; else the file of the run that `sluice inspect` finds.
///
/// Complete ids go first: a file of that name in the working directory may come from anywhere.
///
/// # Errors
/// [`exit::UNREADABLE`]: there is no such file and no such run, or the run has no file.
pub(super) async fn find(state: &Path, name: &str) -> Result<PathBuf, CommandError> {
    let unreadable = |message: String| CommandError { code: exit::UNREADABLE, message };
    if let Some(own) = own_file(state, name) {
        return Ok(own);
    }
    let given = PathBuf::from(name);
    if !matches!(fs::symlink_metadata(&given), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(given);
    }
    if let Some(reason) = pruned(state, name) {
        return Err(unreadable(reason));
    }
    let layout = Layout::at(state);
    if name == CONTROL {
        check_in_use(state).map_err(|error| unreadable(error.message))?;
        let path = layout.control_log();
        return Err(unreadable(format!("nothing is recorded yet: there is no control log {}", path.display())));
    }
    let run = named_run(state, name).await;
    let run = run.map_err(|error| unreadable(format!("there is no such file, and {}", error.message)))?;
    let path = layout.run(&run).audit;
    if path.exists() {
        return Ok(path);
    }
    Err(unreadable(pruned(state, &run.to_string()).unwrap_or_else(|| {
        format!("there is no audit file {}: the run has not started, or the file was removed", path.display())
    })))
}

/// Returns the file of a run of this host, by RUN.ATTEMPT or RUN with its last attempt.
fn own_file(state: &Path, name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    let audit = state.join("audit");
    let exact = audit.join(format!("{name}.jsonl"));
    if exact.exists() {
        return Some(exact);
    }
    let attempts = fs::read_dir(&audit).into_iter().flatten().flatten().filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        let key: RunKey = file.strip_suffix(".jsonl")?.parse().ok()?;
        (key.run_id.as_str() == name).then_some(key.attempt)
    });
    attempts.max().map(|attempt| audit.join(format!("{name}.{attempt}.jsonl")))
}

async fn named_run(state: &Path, name: &str) -> Result<RunKey, CommandError> {
    let store = open_for_queries(state)?;
    Ok(find_run(&store, name).await?.entry.key)
}

/// Returns a text about the file of a pruned run; `None` for a run that was not pruned, or if the log of decisions
/// cannot be read.
fn pruned(state: &Path, name: &str) -> Option<String> {
    let (key, run, when_us) = pruned_run(state, name)?;
    Some(format!(
        "the audit file of run {key} ({} lines, last line {}) was pruned at {}; name the file in its archive",
        run.lines,
        run.head.as_deref().unwrap_or("none"),
        timestamp_to_second(when_us)
    ))
}

/// Returns whether a file is in the state directory.
pub(super) fn is_own(state: &Path, path: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    match (real(&state.join("audit")), real(path)) {
        (Some(audit), Some(file)) => file.parent() == Some(&audit),
        _ => false,
    }
}

/// Returns whether a file is the log of the actions of people and tokens, which has other lines than the log of a run.
pub(super) fn is_control_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "control.jsonl")
}

/// Returns the audit file of a run, as [`find`] does.
///
/// # Errors
/// [`exit::UNREADABLE`] if there is none; wrong usage if the name is that of the control log.
pub(super) async fn find_of_run(state: &Path, name: &str) -> Result<PathBuf, CommandError> {
    let path = find(state, name).await.map_err(|error| cannot_read(Path::new(name), &error.message))?;
    if is_control_log(&path) {
        let message = format!("{name} is the control log, which has no calls; sluice audit verify {name} checks it");
        return Err(CommandError::wrong_usage(message));
    }
    Ok(path)
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let file = fs::File::open(path).and_then(|file| reader::read_file(BufReader::new(file)));
    file.map_err(|error| cannot_read(path, &format!("{error}; {ADVICE}")))
}

/// Returns the error for a file that cannot be read.
pub(super) fn cannot_read(path: &Path, reason: &str) -> CommandError {
    CommandError { code: exit::UNREADABLE, message: format!("cannot read {}: {reason}", path.display()) }
}

/// Returns the number and the hash of the last line.
pub(super) fn last_line(bytes: &[u8]) -> Result<(u64, Hash), CommandError> {
    let mut last = None;
    for line in reader::lines(bytes) {
        let line = line.map_err(|fault| bad_line(&fault))?;
        last = Some((line.header.seq, Hash::of(line.bytes)));
    }
    last.ok_or_else(|| CommandError { code: exit::UNREADABLE, message: "the file has no line".to_owned() })
}

/// Returns the error for a line that is not valid.
pub(super) fn bad_line(fault: &Fault) -> CommandError {
    CommandError { code: exit::FAILED, message: one_line(&fault.to_string()).trim_end().to_owned() }
}

/// Returns the error for something that cannot be read.
pub(super) fn unreadable(error: &dyn std::error::Error) -> CommandError {
    CommandError::new(exit::UNREADABLE, error)
}

/// Returns foreign text as one line, sanitized: it cannot start a line, or control a terminal.
pub(super) fn one_line(text: &str) -> String {
    sanitize(text.trim_end()) + "\n"
}
