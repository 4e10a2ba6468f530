//! Calls and costs of a run so far, from its audit file while it is written.
//!
//! The file is read once, line by line. The sums are for people: only the tally at the end checks the chain.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use serde::Serialize;
use sluice_contract::Usd;
use sluice_contract::audit_line::AuditLine;
use sluice_contract::reader::{self, Record};
use sluice_contract::record::Usage;

use crate::audit_tail::{TailError, read_lines};
use crate::ledger::{CostBounds, ImplausibleCost};

/// Sums over the lines that were read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LiveUsage {
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that have not ended.
    pub open_calls: u64,
    /// Number of requests that were not forwarded.
    pub refused: u64,
    /// Tokens of the calls that have ended.
    pub usage: Usage,
    /// Known costs of the calls that have ended, in nano-USD.
    #[serde(skip)]
    pub nano_usd: Option<i128>,
    /// Number of ended calls of unknown cost.
    pub unknown_costs: u64,
}

/// Reader of a growing audit file, in constant memory.
#[derive(Debug, Default)]
pub struct LiveUsageReader {
    at: reader::Cursor,
    usage: LiveUsage,
    bounds: CostBounds,
    is_broken: bool,
}

impl LiveUsageReader {
    /// Reads the lines that are new, and returns the sums of all lines. The sums end before a line that is not a record.
    ///
    /// # Errors
    /// Errors of the file system. A file that does not exist has no lines.
    pub fn read_new(&mut self, path: &Path) -> io::Result<&LiveUsage> {
        if self.is_broken {
            return Ok(&self.usage);
        }
        let add = |line: &AuditLine<'_>| {
            let implausible = self.bounds.take(&line.record);
            self.usage.add(&line.record, implausible.as_ref());
            ControlFlow::Continue(())
        };
        match read_lines(path, &mut self.at, add) {
            Ok(()) => {}
            Err(TailError::Line(_)) => self.is_broken = true,
            Err(TailError::Io(error)) => return Err(error),
        }
        Ok(&self.usage)
    }
}

impl LiveUsage {
    /// Adds a record. An implausible cost counts as unknown.
    fn add(&mut self, record: &Record, implausible: Option<&ImplausibleCost>) {
        match record {
            Record::Intent(_) => {
                self.calls += 1;
                self.open_calls += 1;
            }
            Record::Outcome(outcome) => {
                self.open_calls = self.open_calls.saturating_sub(1);
                outcome.usage.iter().for_each(|usage| self.usage.add(&usage.inclusive()));
                let cost = outcome.cost_usd.as_deref().and_then(|cost| Usd::parse(cost).ok());
                match cost.filter(|cost| cost.is_countable() && implausible.is_none()) {
                    Some(cost) => {
                        let sum = self.nano_usd.unwrap_or_default();
                        self.nano_usd = Some(sum.saturating_add(cost.to_nanos().into()));
                    }
                    None => self.unknown_costs += 1,
                }
            }
            Record::Refused(_) => self.refused += 1,
            // The sidecar was killed, and the calls that it carried have no outcome.
            Record::Recovered(_) => self.unknown_costs += std::mem::take(&mut self.open_calls),
            Record::Open(_)
            | Record::Epoch(_)
            | Record::Control(_)
            | Record::Held(_)
            | Record::Released(_)
            | Record::Close(_)
            | Record::Other(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proxy/contract/tests/golden/recovered.jsonl");

    #[test]
    fn sums_are_the_same_however_the_file_grows() {
        let bytes = fs::read(GOLDEN).expect("it is in the repository");
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        let mut whole = LiveUsageReader::default();
        let expected = whole.read_new(Path::new(GOLDEN)).expect("it is in the repository").clone();
        assert!(expected.calls > 0 && expected.open_calls == 0 && expected.unknown_costs > 0, "{expected:?}");
        for step in [97, 1000] {
            let mut reader = LiveUsageReader::default();
            assert_eq!(reader.read_new(&path).expect("no file is no line"), &LiveUsage::default());
            let mut last = LiveUsage::default();
            for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
                fs::write(&path, &bytes[..end]).expect("there is room");
                last = reader.read_new(&path).expect("it is ours").clone();
            }
            assert_eq!(last, expected, "in steps of {step}");
            fs::remove_file(&path).expect("it is ours");
        }
    }

    #[test]
    fn sums_end_before_a_damaged_line() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, [b"damage\n", &fs::read(GOLDEN).expect("it is in the repository")[..]].concat())
            .expect("there is room");
        assert_eq!(LiveUsageReader::default().read_new(&path).expect("it is ours"), &LiveUsage::default());
    }
}
