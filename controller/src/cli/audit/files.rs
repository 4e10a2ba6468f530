//! Audit files of this host, and their lines.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use sluice_contract::text::sanitize;
use sluice_contract::{Fault, Hash, RunKey, exit, reader};

use super::super::error::CommandError;

/// Advice for a name at which nothing can be read.
pub(super) const ADVICE: &str = "name an audit file, or a run of this host";

/// Returns the file of a run of this host, by RUN.ATTEMPT or RUN with its last attempt; else the given path.
///
/// Runs go first: a file of that name in the working directory may come from anywhere.
pub(super) fn find(state: &Path, name: &str) -> PathBuf {
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

/// Returns whether a file is in the state directory.
pub(super) fn is_own(state: &Path, path: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    match (real(&state.join("audit")), real(path)) {
        (Some(audit), Some(file)) => file.parent() == Some(&audit),
        _ => false,
    }
}

/// Returns whether a file is the log of the actions of people and tokens, which has other lines than that of a run.
pub(super) fn is_control_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "control.jsonl")
}

/// Returns the audit file of a run, as [`find`] does.
///
/// # Errors
/// Wrong usage: the name is that of the control log.
pub(super) fn find_of_run(state: &Path, name: &str) -> Result<PathBuf, CommandError> {
    let path = find(state, name);
    if is_control_log(&path) {
        let message = format!("{name} is the control log, which has no calls; sluice audit verify {name} checks it");
        return Err(CommandError::wrong_usage(message));
    }
    Ok(path)
}

/// Reads the file of a run, or a file.
pub(super) fn read(state: &Path, name: &str) -> Result<Vec<u8>, CommandError> {
    let path = find_of_run(state, name)?;
    let file = fs::File::open(&path).and_then(|file| reader::read_file(BufReader::new(file)));
    file.map_err(|error| CommandError {
        code: exit::UNREADABLE,
        message: format!("cannot read {}: {error}; {ADVICE}", path.display()),
    })
}

/// Returns number and hash of the last line.
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
