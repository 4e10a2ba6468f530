//! The budget log: each change of a budget is a signed line, so that limits survive the loss of the database.
//!
//! Pure. Each line states the hash of the line before, and the key of the state directory signs each line. A change is in
//! the database before it is in the log. So if the log has more than the database, the database is not the one that wrote
//! the log.

use serde::{Deserialize, Serialize};
use sluice_contract::{Hash, PublicKey, RunKey};

use crate::append_log::whole_lines;
use crate::signed_line::{self, ALTERED, NOT_CANONICAL, NOT_NEXT, OTHER_VERSION};

/// Kind of a change of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChangeKind {
    /// First line of a log.
    Begun,
    /// The budget is set to this amount.
    Set,
    /// This amount is added to the budget.
    Added,
    /// The account has no limit from here on.
    Removed,
}

/// A change of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BudgetChange {
    /// Account with the budget; empty in the first line.
    pub account: String,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Amount in nano-USD.
    pub nano_usd: i64,
    /// Time in microseconds since 1970.
    pub made_us: i64,
    /// User that made the change, if known.
    pub made_by: Option<String>,
}

impl ChangeKind {
    /// Returns the word in the database and in output.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Set => "set",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// A line of the log that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogEntry {
    /// Content of the line.
    pub change: BudgetChange,
    /// Runs that began before the change and whose receipts arrived after it: they count in the budget.
    pub late: Vec<RunKey>,
    /// Hash of the line.
    pub hash: Hash,
}

/// A line as JSON, with sorted keys as in audit files.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetLine {
    account: String,
    key_id: String,
    kind: ChangeKind,
    late: Vec<String>,
    /// Left out if it is unknown, as in lines of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    made_us: i64,
    /// A string: a reader's number may be a float.
    nano_usd: String,
    prev: String,
    seq: u64,
    signature: String,
    v: u32,
}

/// A line that is not valid at its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineFault {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the fault.
    pub reason: String,
}

/// Version of the lines.
const VERSION: u32 = 1;

/// Returns the line of a change, with its newline.
pub(super) fn line(
    change: &BudgetChange,
    late: &[RunKey],
    seq: u64,
    prev: Hash,
    key_id: &str,
    sign: impl FnOnce(Hash) -> String,
) -> Vec<u8> {
    let mut line = BudgetLine {
        account: change.account.clone(),
        key_id: key_id.to_owned(),
        kind: change.kind,
        late: late.iter().map(RunKey::to_string).collect(),
        made_by: change.made_by.clone(),
        made_us: change.made_us,
        nano_usd: change.nano_usd.to_string(),
        prev: prev.to_string(),
        seq,
        signature: String::new(),
        v: VERSION,
    };
    line.signature = sign(Hash::of(&signed_line::bytes(&line)));
    signed_line::bytes(&line)
}

/// Parses and verifies a log. A last line without a newline was never finished, and is ignored.
///
/// # Errors
/// The first [`LineFault`].
pub(super) fn read(bytes: &[u8], keys: &[PublicKey]) -> Result<Vec<LogEntry>, LineFault> {
    let (mut entries, mut prev) = (Vec::new(), Hash::ZERO);
    for text in whole_lines(bytes).split_inclusive(|byte| *byte == b'\n') {
        let entry = verify(text, entries.len(), prev, keys)
            .map_err(|reason| LineFault { line: entries.len() + 1, reason: reason.to_owned() })?;
        prev = entry.hash;
        entries.push(entry);
    }
    Ok(entries)
}

fn verify(text: &[u8], place: usize, prev: Hash, keys: &[PublicKey]) -> Result<LogEntry, &'static str> {
    let mut line: BudgetLine = serde_json::from_slice(text).map_err(|_| "it is not a record of the budget log")?;
    if line.v != VERSION {
        return Err(OTHER_VERSION);
    }
    if signed_line::bytes(&line) != text {
        return Err(NOT_CANONICAL);
    }
    if line.seq != place as u64 || line.prev != prev.to_string() {
        return Err(NOT_NEXT);
    }
    let signature = std::mem::take(&mut line.signature);
    let key = keys.iter().find(|key| key.id() == line.key_id);
    let key =
        key.ok_or("it is signed by a key that this host does not know: bring back STATE/keys, or import the key")?;
    if !key.verifies_budget(Hash::of(&signed_line::bytes(&line)), &signature) {
        return Err(ALTERED);
    }
    if (line.kind == ChangeKind::Begun) != (place == 0) {
        return Err("only the first line begins a log");
    }
    let nano_usd = line.nano_usd.parse().ok().filter(|nanos: &i64| *nanos >= 0).ok_or("nano_usd is not an amount")?;
    let late: Result<_, _> = line.late.iter().map(|run| run.parse()).collect();
    let change =
        BudgetChange { account: line.account, kind: line.kind, nano_usd, made_us: line.made_us, made_by: line.made_by };
    Ok(LogEntry { change, late: late.map_err(|_| "late names something that is not a run")?, hash: Hash::of(text) })
}

/// Returns the number of whole lines that begin as a record does: they may be altered records, or of another version.
pub(super) fn possible_records(bytes: &[u8]) -> usize {
    whole_lines(bytes).split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'{')).count()
}

/// State of the database in relation to its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DatabaseState {
    /// Hashes of the lines that it wrote.
    pub logged: Vec<Hash>,
    /// Changes that are not recorded as logged.
    pub unlogged: Vec<BudgetChange>,
    /// True if this database has admitted a run, or no run exists that another database could have admitted.
    pub is_original: bool,
}

/// Steps after which log and database agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogPlan {
    /// Record the next lines, which a process wrote before it was killed, and append the other changes.
    Follow {
        /// Number of lines to record.
        adopt: usize,
    },
    /// Begin a log, and append all changes.
    Begin,
    /// The log has changes that the database never had: the database is an older copy, or a new one.
    Ahead {
        /// Number of these changes.
        lines: usize,
    },
    /// Neither the database nor the log has the budgets.
    Lost,
    /// The log lacks lines that the database recorded, or has other ones.
    Damaged {
        /// Description of the damage.
        reason: String,
    },
}

/// Compares the log with the database.
#[must_use]
pub(super) fn plan(log: Option<&[LogEntry]>, known: &DatabaseState) -> LogPlan {
    let Some(log) = log.filter(|log| !log.is_empty()) else {
        return match (known.logged.len(), known.is_original) {
            (0, true) => LogPlan::Begin,
            (0, false) => LogPlan::Lost,
            (lines, _) => LogPlan::Damaged { reason: format!("it is gone; it had {lines} lines") },
        };
    };
    for (place, (entry, hash)) in log.iter().zip(&known.logged).enumerate() {
        if entry.hash != *hash {
            return LogPlan::Damaged { reason: format!("line {} is not the one that was written", place + 1) };
        }
    }
    if log.len() < known.logged.len() {
        let reason = format!("it has {} lines, and had {}", log.len(), known.logged.len());
        return LogPlan::Damaged { reason };
    }
    let more = &log[known.logged.len()..];
    let begun = usize::from(known.logged.is_empty());
    let changes: Vec<_> = more.iter().skip(begun).map(|entry| &entry.change).collect();
    let is_ours = changes.len() <= known.unlogged.len() && changes.iter().zip(&known.unlogged).all(|(a, b)| *a == b);
    // For a new database, a log without changes is as valid as its own.
    if is_ours && (begun == 0 || known.is_original || changes.is_empty()) {
        LogPlan::Follow { adopt: more.len() }
    } else {
        LogPlan::Ahead { lines: more.len() - begun.min(more.len()) }
    }
}

#[cfg(test)]
mod tests {
    use sluice_contract::PrivateKey;

    use super::*;

    fn key() -> PrivateKey {
        PrivateKey::from_seed(&[7; 32])
    }

    fn change(kind: ChangeKind, nano_usd: i64) -> BudgetChange {
        let account = if kind == ChangeKind::Begun { String::new() } else { "acct-1".to_owned() };
        BudgetChange {
            account,
            kind,
            nano_usd,
            made_us: nano_usd,
            made_by: (nano_usd == 5).then(|| "alice".to_owned()),
        }
    }

    fn written(changes: &[BudgetChange]) -> Vec<u8> {
        let (mut bytes, mut prev) = (Vec::new(), Hash::ZERO);
        for (seq, one) in (0..).zip(changes) {
            let late = ["r1.0".parse().expect("a run")];
            let line = line(one, &late, seq, prev, &key().public().id(), |hash| key().sign_budget(hash));
            prev = Hash::of(&line);
            bytes.extend(line);
        }
        bytes
    }

    fn log() -> Vec<u8> {
        written(&[
            change(ChangeKind::Begun, 0),
            change(ChangeKind::Set, 5),
            change(ChangeKind::Added, 2),
            change(ChangeKind::Removed, 0),
        ])
    }

    #[test]
    fn a_log_is_read_as_written() {
        let keys = [key().public()];
        let entries = read(&log(), &keys).expect("it was well made");
        let kinds: Vec<_> = entries.iter().map(|entry| entry.change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Begun, ChangeKind::Set, ChangeKind::Added, ChangeKind::Removed]);
        assert_eq!((entries[1].change.nano_usd, entries[1].late[0].to_string()), (5, "r1.0".to_owned()));
        let torn = [&log()[..], b"{\"account\":\"a"].concat();
        assert_eq!(read(&torn, &keys), Ok(entries));
    }

    #[test]
    fn every_altered_byte_is_found() {
        let keys = [key().public()];
        let good = log();
        for at in 0..good.len() - 1 {
            for flip in [0x01, 0x20] {
                let mut bytes = good.clone();
                bytes[at] ^= flip;
                assert!(read(&bytes, &keys).is_err(), "byte {at}");
            }
        }
        let lines: Vec<_> = good.split_inclusive(|byte| *byte == b'\n').collect();
        assert!(read(&[lines[0], lines[2], lines[3]].concat(), &keys).is_err(), "a line was taken out");
        assert!(read(&lines[1..].concat(), &keys).is_err(), "the first line was taken away");
        assert!(read(&[lines[0], lines[1], lines[1]].concat(), &keys).is_err(), "a line is repeated");
        let other = PrivateKey::from_seed(&[8; 32]).public();
        assert!(read(&good, &[other]).is_err_and(|fault| fault.reason.contains("does not know")));
    }

    #[test]
    fn each_state_of_log_and_database_has_a_plan() {
        let keys = [key().public()];
        let entries = read(&log(), &keys).expect("it was well made");
        let hashes: Vec<_> = entries.iter().map(|entry| entry.hash).collect();
        let changes: Vec<_> = entries[1..].iter().map(|entry| entry.change.clone()).collect();
        let known = |logged: usize, unlogged: std::ops::Range<usize>, is_original| DatabaseState {
            logged: hashes[..logged].to_vec(),
            unlogged: changes[unlogged].to_vec(),
            is_original,
        };
        let rows = [
            // No log was written before.
            (None, known(0, 0..0, true), LogPlan::Begin),
            (None, known(0, 0..2, true), LogPlan::Begin),
            (None, known(0, 0..0, false), LogPlan::Lost),
            // Everything was written.
            (Some(4), known(4, 3..3, true), LogPlan::Follow { adopt: 0 }),
            // Killed before a line was written, and before it was recorded.
            (Some(3), known(3, 2..3, true), LogPlan::Follow { adopt: 0 }),
            (Some(4), known(3, 2..3, true), LogPlan::Follow { adopt: 1 }),
            (Some(1), known(0, 0..1, true), LogPlan::Follow { adopt: 1 }),
            (Some(1), known(0, 0..0, false), LogPlan::Follow { adopt: 1 }),
            // An old database, a new one, and one with a different budget.
            (Some(4), known(2, 1..1, true), LogPlan::Ahead { lines: 2 }),
            (Some(4), known(0, 0..0, false), LogPlan::Ahead { lines: 3 }),
            (Some(4), known(2, 2..3, true), LogPlan::Ahead { lines: 2 }),
        ];
        for (lines, known, expected) in rows {
            let log = lines.map(|lines: usize| &entries[..lines]);
            assert_eq!(plan(log, &known), expected, "{lines:?} {known:?}");
        }
        for log in [None, Some(&entries[..2])] {
            assert!(matches!(plan(log, &known(4, 3..3, true)), LogPlan::Damaged { .. }));
        }
        let mut other = known(4, 3..3, true);
        other.logged[2] = Hash::ZERO;
        assert!(matches!(plan(Some(&entries), &other), LogPlan::Damaged { .. }));
    }
}
