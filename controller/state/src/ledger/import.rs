//! Import of the audit file of a sidecar that ran alone.
//!
//! A file that a known key has signed is trusted as the files of this host are. A file without a signature is trusted only
//! if the operator says so: the log of decisions then keeps its last hash. It also keeps the time of each import, since
//! receipts count in the budget of the time when they arrive.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use sluice_contract::reader::{self, FaultKind};
use sluice_contract::verdict::Seal;
use sluice_contract::{PublicKey, RunKey, TrustAnchors, Verdict, Witness, exit};

use super::audit_source::{AuditSource, Writer};
use super::compare::{DifferenceKind, compare_all};
use super::insert::{LateOutcome, Posted};
use super::parsed_audit;
use super::rebuild::{AuditArchive, PostedFiles};
use super::{LedgerError, receipt_rows};
use crate::decisions::{self, Decision, DecisionError, Decisions};
use crate::file;
use crate::keys::{KeyError, Keys};
use crate::witness;

/// Trust of the operator in a file without a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsignedFiles {
    /// They are refused.
    Refused,
    /// The operator vouches for them.
    Vouched,
}

/// A file that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedFile {
    /// The file.
    #[serde(serialize_with = "crate::file::serialize_path")]
    pub file: PathBuf,
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// True if all of it was here already.
    pub already_imported: bool,
    /// True if the file has its end.
    pub complete: bool,
    /// Key that signed the file; null for a file without a signature.
    pub key_id: Option<String>,
    /// New rows.
    pub added: Posted,
    /// Receipts that were settled or voided before. They stay as they are.
    pub late: Vec<LateOutcome>,
}

/// A file that was not imported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum ImportError {
    #[error("cannot read {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    #[error("{} is not an audit file: its first line is not a record of a sidecar", .0.display())]
    NotAnAuditFile(PathBuf),
    #[error("{path} was altered: {1}", path = .0.display())]
    Tampered(PathBuf, String),
    #[error(
        "{path} is signed by a key that this host does not know: {1}; give --key KEY: audit_public_key in the ready \
         line of the sidecar, or a line of sluice audit keys on its host", path = .0.display()
    )]
    UnknownKey(PathBuf, String),
    #[error(
        "{} has no signature that vouches for all of it, so any user may have written it; --unsigned imports it if you \
         vouch for it", .0.display()
    )]
    Unsigned(PathBuf),
    #[error("{1} is a run of this host, so {path} is not imported", path = .0.display())]
    OwnRun(PathBuf, RunKey),
    #[error("{path} is another file of run {1} than the one that is here already", path = .0.display())]
    Conflict(PathBuf, RunKey),
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl ImportError {
    /// Returns the exit code, as of `sluice audit verify`.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unreadable(..) | Self::NotAnAuditFile(_) => exit::UNREADABLE,
            Self::UnknownKey(..) | Self::Unsigned(_) => exit::UNKNOWN_KEY,
            _ => exit::FAILED,
        }
    }
}

/// A file that may be imported.
struct Checked {
    key: RunKey,
    bytes: Vec<u8>,
    /// The last line.
    last: Witness,
    complete: bool,
    /// Key that signed it.
    signer: Option<String>,
}

impl AuditArchive<'_> {
    /// Imports a file: verifies it, copies it to the audit files of this host, and posts its receipts.
    ///
    /// `given` are further keys that the operator trusts; a key among them that signed the file is trusted from then
    /// on.
    ///
    /// # Errors
    /// [`ImportError`]. If only the posting failed, the copy of the file stays, and the import can be repeated.
    pub async fn import(
        &self,
        path: &Path,
        keys: &Keys,
        given: &[PublicKey],
        unsigned: UnsignedFiles,
    ) -> Result<ImportedFile, ImportError> {
        let checked = check(path, &[self.keys, given].concat(), unsigned)?;
        let key = checked.key.clone();
        if self.store.phase(&key).await.map_err(LedgerError::from)?.is_some() {
            return Err(ImportError::OwnRun(path.to_owned(), key));
        }
        let target = self.layout.run(&key).audit;
        let here = match fs::read(&target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            here => Some(here.map_err(|error| ImportError::Unreadable(target.clone(), error))?),
        };
        // An earlier copy may have fewer lines: its sidecar had not ended.
        let is_here = here.as_ref().is_some_and(|here| here.starts_with(&checked.bytes));
        if here.is_some_and(|here| !is_here && !checked.bytes.starts_with(&here)) {
            return Err(ImportError::Conflict(path.to_owned(), key));
        }
        let adds = self.check_agrees(path, &checked).await?;
        if !is_here {
            self.trust(&checked, keys, given)?;
            keep(&checked, &target)?;
        } else if adds {
            self.trust(&checked, keys, given)?;
        }
        let PostedFiles { added, refused, late } = self.post_files(std::slice::from_ref(&key)).await?;
        match refused.into_iter().next() {
            Some(_) => Err(ImportError::Conflict(path.to_owned(), key)),
            None => Ok(ImportedFile {
                file: path.to_owned(),
                run: key.to_string(),
                already_imported: is_here && added == Posted::default(),
                complete: checked.complete,
                key_id: checked.signer,
                added,
                late,
            }),
        }
    }

    /// Checks that the ledger has no other receipts of the run. Returns whether the file adds something.
    async fn check_agrees(&self, path: &Path, checked: &Checked) -> Result<bool, ImportError> {
        let key = checked.key.clone();
        let source = AuditSource::Bytes(Arc::from(&checked.bytes[..]));
        let seen = self.store.witnesses(&key).await.map_err(LedgerError::from)?;
        let trust = TrustAnchors { keys: &[], seen: &seen };
        let reading = parsed_audit::read(&key, source, &trust, Writer::Gone);
        let reading = reading.map_err(|error| ImportError::Unreadable(path.to_owned(), error))?;
        let is_newer = reading.lines >= seen.iter().map(|seen| seen.seq + 1).max().unwrap_or(0);
        let agrees = self.store.query(move |connection| {
            if receipt_rows::count_of(connection, &reading.key)? == 0 {
                return Ok::<_, LedgerError>(reading.is_trusted().then_some(true));
            }
            let found = compare_all(connection, &[reading])?.differences;
            let is_addition = |found: &super::Difference| found.found == DifferenceKind::NotInLedger;
            let agrees =
                found.iter().all(|found| is_addition(found) || (is_newer && found.found == DifferenceKind::Differs));
            Ok(agrees.then_some(!found.is_empty()))
        });
        agrees.await?.ok_or_else(|| ImportError::Conflict(path.to_owned(), checked.key.clone()))
    }

    /// Records the import, and the trust in the file.
    fn trust(&self, checked: &Checked, keys: &Keys, given: &[PublicKey]) -> Result<(), ImportError> {
        let signer = |key: &&PublicKey| checked.signer.as_ref().is_some_and(|id| key.id() == *id);
        given.iter().filter(signer).try_for_each(|key| keys.import(key))?;
        // An earlier import of this file may have had more lines.
        let before = Decisions::read(self.layout, self.keys)?.imports.remove(&checked.key);
        let longer = before.filter(|before| before.last.seq > checked.last.seq);
        let (last, signed_by) =
            longer.map_or_else(|| (checked.last, checked.signer.clone()), |longer| (longer.last, longer.signed_by));
        let (run, lines, head) = (checked.key.to_string(), last.seq + 1, last.head.to_string());
        // A rebuild counts the file in the budget of this time.
        decisions::record(self.layout, keys, Decision::Import { run, lines, head, signed_by })?;
        Ok(())
    }
}

/// Copies a file to the audit files.
fn keep(checked: &Checked, target: &Path) -> Result<(), ImportError> {
    let failed = |error| ImportError::Write(target.to_owned(), error);
    let part = target.with_extension(format!("{}.part", uuid::Uuid::new_v4().simple()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).and_then(|mut out| {
        out.write_all(&checked.bytes)?;
        out.sync_all()?;
        fs::rename(&part, target)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.and_then(|()| file::sync_directory(file::parent(target))).map_err(failed)
}

/// Verifies a file with these keys.
fn check(path: &Path, keys: &[PublicKey], unsigned: UnsignedFiles) -> Result<Checked, ImportError> {
    let unreadable = |error| ImportError::Unreadable(path.to_owned(), error);
    let mut bytes = Vec::new();
    witness::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(unreadable)?;
    let first = reader::lines(&bytes).next().and_then(Result::ok);
    let key = first
        .and_then(|first| Some(RunKey { run_id: first.header.run_id.parse().ok()?, attempt: first.header.attempt }));
    let Some(key) = key else { return Err(ImportError::NotAnAuditFile(path.to_owned())) };
    let verdict = match sluice_contract::verify(&bytes, &TrustAnchors { keys, seen: &[] }) {
        // It may be whole, and only lack a signature.
        Verdict::Tampered(fault) if fault.is_unsigned() => sluice_contract::verify(&bytes, &TrustAnchors::default()),
        verdict => verdict,
    };
    let report = match &verdict {
        Verdict::Complete(report) | Verdict::Incomplete(report) => report.clone(),
        Verdict::Tampered(fault) if fault.kind == FaultKind::UnknownKey => {
            let id = fault.found.trim_start_matches("one by ").to_owned();
            return Err(ImportError::UnknownKey(path.to_owned(), id));
        }
        Verdict::Tampered(fault) => return Err(ImportError::Tampered(path.to_owned(), fault.to_string())),
    };
    let signer = match report.seal {
        Seal::Valid(id) => Some(id),
        Seal::None | Seal::Unchecked(_) if unsigned == UnsignedFiles::Vouched => None,
        Seal::None | Seal::Unchecked(_) => return Err(ImportError::Unsigned(path.to_owned())),
    };
    if report.lines == 0 {
        return Err(ImportError::NotAnAuditFile(path.to_owned()));
    }
    let complete = matches!(verdict, Verdict::Complete(_));
    // A torn last line is not a part of the trusted bytes.
    bytes.truncate(bytes.len() - usize::try_from(report.torn).unwrap_or(0));
    let last = Witness { seq: report.lines - 1, head: report.head };
    Ok(Checked { key, bytes, last, complete, signer })
}
