//! The audit file of a run: read on while it is written, checked and summed up when its writer has ended.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sluice_contract::text::error_chain;
use sluice_contract::{Hash, RunKey, TrustAnchors, Witness, reader};
use sluice_state::keys::Keys;
use sluice_state::ledger::{self, AuditSource, ParsedAudit, Writer};
use sluice_state::receipt::{self, RunTotals};
use sluice_state::witness::{self, AuditTail};

/// The audit file of one run.
#[derive(Debug, Default)]
pub(super) struct RunAudit {
    tail: AuditTail,
    witnesses: Vec<Witness>,
    totals: RunTotals,
    parsed: Option<ParsedAudit>,
}

/// History of the sidecar that wrote the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SidecarHistory {
    /// The sidecar never answered, so it carried no call.
    NeverReady,
    /// The sidecar answered.
    Ready,
    /// Another controller started it.
    Unknown,
}

impl RunAudit {
    /// Starts with the witnesses that an earlier controller recorded.
    pub(super) fn with_witnesses(witnesses: Vec<Witness>) -> Self {
        Self { witnesses, ..Self::default() }
    }

    /// Returns the witness of the last line of the file, if there is a new one.
    pub(super) fn read_on(&mut self, file: &Path) -> Option<Witness> {
        // A file that cannot be read now is judged when the run is over.
        let witness = self.tail.read_new(file).ok().flatten()?;
        self.witnesses.push(witness);
        Some(witness)
    }

    /// Checks the whole file and sums it up.
    pub(super) fn tally(&mut self, key: &RunKey, file: &Path, keys: &Keys, sidecar: SidecarHistory) {
        self.totals = match self.parse(key, file, keys, sidecar) {
            Ok(parsed) => receipt::tally(self.parsed.insert(parsed)),
            Err(error) => RunTotals {
                fault: Some(format!("the audit file cannot be held against anything: {}", error_chain(&error))),
                ..RunTotals::default()
            },
        };
    }

    fn parse(
        &self,
        key: &RunKey,
        file: &Path,
        keys: &Keys,
        sidecar: SidecarHistory,
    ) -> Result<ParsedAudit, Unverifiable> {
        let keys = keys.public()?;
        let bytes = read(file).map_err(|source| Unverifiable::File(file.display().to_string(), source))?;
        // A sidecar that could not write its first line has carried no call, and has reported why.
        let has_calls = |bytes: &Vec<u8>| sidecar != SidecarHistory::NeverReady || bytes.contains(&b'\n');
        let bytes = bytes.filter(has_calls);
        let is_gone = bytes.is_none() && sidecar == SidecarHistory::Ready;
        let source = bytes.map_or(AuditSource::Absent, |bytes| AuditSource::Bytes(Arc::from(bytes)));
        let trust = TrustAnchors { keys: &keys, seen: &self.witnesses };
        let mut parsed = ledger::read(key, source, &trust, Writer::Gone).expect("memory does not fail");
        parsed.fault = parsed.fault.or(is_gone.then(|| "the audit file is gone".to_owned()));
        Ok(parsed)
    }

    /// Adds a fault, unless the file itself has one.
    pub(super) fn add_fault(&mut self, fault: Option<&str>) {
        if self.totals.fault.is_none() {
            self.totals.fault = fault.map(str::to_owned);
        }
    }

    /// Returns the hash of the last line, once the file is checked.
    pub(super) fn head(&self) -> Option<Hash> {
        self.parsed.as_ref().and_then(|parsed| parsed.head)
    }

    /// Returns the sums, and the file for the ledger.
    pub(super) fn finish(self) -> (RunTotals, Option<ParsedAudit>) {
        (self.totals, self.parsed)
    }
}

/// Reason why a file cannot be checked.
#[derive(Debug, thiserror::Error)]
enum Unverifiable {
    #[error(transparent)]
    Keys(#[from] sluice_state::keys::KeyError),
    #[error("{0}")]
    File(String, #[source] io::Error),
}

/// Reads the whole file, if there is one, up to a line that is too long to be a record.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match witness::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    reader::read_file(io::BufReader::new(file)).map(Some)
}
