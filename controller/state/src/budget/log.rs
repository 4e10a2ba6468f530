//! The budget log: every change of a budget as a signed line, so that a lost database lifts no limit.
//!
//! Pure. Each line states the hash of the line before, and the key of the state directory signs each line. The database comes
//! first: a change is in the database before it is in the log. So a log that knows more than the database shows that the
//! database is not the one that wrote it.

use serde::{Deserialize, Serialize};
use sluice_contract::{Hash, PublicKey, RunKey};

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The log begins here, with the budgets that follow.
    Begun,
    /// From here on this much may be spent.
    Set,
    /// So much more.
    Added,
    /// There is no limit any more.
    Removed,
}

/// A change of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// Whose budget; empty where the log begins.
    pub account: String,
    /// What happened.
    pub kind: Kind,
    /// How much, in nano-USD.
    pub nano_usd: i64,
    /// When, in microseconds since 1970.
    pub made_us: i64,
}

/// A line of the log that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogEntry {
    /// What it says.
    pub change: Change,
    /// Runs that had begun before, and whose receipts came only later: they count in the budget.
    pub late: Vec<RunKey>,
    /// Of the line.
    pub hash: Hash,
}

/// Keys sorted, as in audit files.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    account: String,
    key_id: String,
    kind: Kind,
    late: Vec<String>,
    made_us: i64,
    /// A string: a reader's number may be a float.
    nano_usd: String,
    prev: String,
    seq: u64,
    signature: String,
    v: u32,
}

/// A line that cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineFault {
    /// From 1, as editors count.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// The version of the lines.
const VERSION: u32 = 1;

/// Writes the line that says this, with its newline.
pub(super) fn line(
    change: &Change,
    late: &[RunKey],
    seq: u64,
    prev: Hash,
    key_id: &str,
    sign: impl FnOnce(Hash) -> String,
) -> Vec<u8> {
    let mut line = Line {
        account: change.account.clone(),
        key_id: key_id.to_owned(),
        kind: change.kind,
        late: late.iter().map(RunKey::to_string).collect(),
        made_us: change.made_us,
        nano_usd: change.nano_usd.to_string(),
        prev: prev.to_string(),
        seq,
        signature: String::new(),
        v: VERSION,
    };
    line.signature = sign(Hash::of(&line.bytes()));
    line.bytes()
}

impl Line {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("plain data");
        bytes.push(b'\n');
        bytes
    }
}

/// Reads a log. A last line without a newline was never finished, and is not part of it.
///
/// # Errors
/// The first [`LineFault`].
pub(super) fn read(bytes: &[u8], keys: &[PublicKey]) -> Result<Vec<LogEntry>, LineFault> {
    let (mut entries, mut prev) = (Vec::new(), Hash::ZERO);
    for text in whole(bytes).split_inclusive(|byte| *byte == b'\n') {
        let entry = verify(text, entries.len(), prev, keys)
            .map_err(|reason| LineFault { line: entries.len() + 1, reason: reason.to_owned() })?;
        prev = entry.hash;
        entries.push(entry);
    }
    Ok(entries)
}

/// The whole lines.
pub(super) fn whole(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)]
}

fn verify(text: &[u8], place: usize, prev: Hash, keys: &[PublicKey]) -> Result<LogEntry, &'static str> {
    let mut line: Line = serde_json::from_slice(text).map_err(|_| "it is not a record of the budget log")?;
    if line.v != VERSION {
        return Err("it is of another version; use the newer sluice");
    }
    if line.bytes() != text {
        return Err("it is not written as sluice writes it");
    }
    if line.seq != place as u64 || line.prev != prev.to_string() {
        return Err("it does not follow the line before: lines are missing or were altered");
    }
    let signature = std::mem::take(&mut line.signature);
    let key = keys.iter().find(|key| key.id() == line.key_id);
    let key =
        key.ok_or("it is signed by a key that this host does not know: bring back STATE/keys, or import the key")?;
    if !key.verifies_budget(Hash::of(&line.bytes()), &signature) {
        return Err("its signature is not that of its key: it was altered");
    }
    if (line.kind == Kind::Begun) != (place == 0) {
        return Err("only the first line begins a log");
    }
    let nano_usd = line.nano_usd.parse().ok().filter(|nanos: &i64| *nanos >= 0).ok_or("nano_usd is not an amount")?;
    let late: Result<_, _> = line.late.iter().map(|run| run.parse()).collect();
    let change = Change { account: line.account, kind: line.kind, nano_usd, made_us: line.made_us };
    Ok(LogEntry { change, late: late.map_err(|_| "late names something that is not a run")?, hash: Hash::of(text) })
}

/// What the database knows of its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The hashes of the lines that it wrote.
    pub logged: Vec<Hash>,
    /// Changes that it has, and that it did not see in the log yet.
    pub unlogged: Vec<Change>,
    /// Whether a run was ever admitted by this database, or there is nothing that another one could have known.
    pub is_original: bool,
}

/// What is to be done so that log and database agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// The first lines after those that are known are changes that the database has: a process was killed between writing a
    /// line and noting it. So many are to be noted, and the other changes to be appended.
    Follow {
        /// Lines to be noted.
        adopt: usize,
    },
    /// There is no log yet: begin one, and append all changes.
    Begin,
    /// The log has lines that the database has never had: it is an older one, or a new one.
    Ahead {
        /// How many.
        lines: usize,
    },
    /// Neither database nor log says what the budgets were.
    Lost,
    /// The database knows lines that the log does not have, or has otherwise.
    Damaged {
        /// What is wrong.
        reason: String,
    },
}

/// Holds the log against the database.
#[must_use]
pub(super) fn plan(log: Option<&[LogEntry]>, known: &Known) -> Plan {
    let Some(log) = log.filter(|log| !log.is_empty()) else {
        return match (known.logged.len(), known.is_original) {
            (0, true) => Plan::Begin,
            (0, false) => Plan::Lost,
            (lines, _) => Plan::Damaged { reason: format!("it is gone; it had {lines} lines") },
        };
    };
    for (place, (entry, hash)) in log.iter().zip(&known.logged).enumerate() {
        if entry.hash != *hash {
            return Plan::Damaged { reason: format!("line {} is not the one that was written", place + 1) };
        }
    }
    if log.len() < known.logged.len() {
        let reason = format!("it has {} lines, and had {}", log.len(), known.logged.len());
        return Plan::Damaged { reason };
    }
    let more = &log[known.logged.len()..];
    let begun = usize::from(known.logged.is_empty());
    let changes: Vec<_> = more.iter().skip(begun).map(|entry| &entry.change).collect();
    let is_ours = changes.len() <= known.unlogged.len() && changes.iter().zip(&known.unlogged).all(|(a, b)| *a == b);
    // Of a database that was just made, a log without changes is as good as its own.
    if is_ours && (begun == 0 || known.is_original || changes.is_empty()) {
        Plan::Follow { adopt: more.len() }
    } else {
        Plan::Ahead { lines: more.len() - begun.min(more.len()) }
    }
}

#[cfg(test)]
mod tests {
    use sluice_contract::PrivateKey;

    use super::*;

    fn key() -> PrivateKey {
        PrivateKey::from_seed(&[7; 32])
    }

    fn change(kind: Kind, nano_usd: i64) -> Change {
        let account = if kind == Kind::Begun { String::new() } else { "acct-1".to_owned() };
        Change { account, kind, nano_usd, made_us: nano_usd }
    }

    fn written(changes: &[Change]) -> Vec<u8> {
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
        written(&[change(Kind::Begun, 0), change(Kind::Set, 5), change(Kind::Added, 2), change(Kind::Removed, 0)])
    }

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let keys = [key().public()];
        let entries = read(&log(), &keys).expect("it was well made");
        let kinds: Vec<_> = entries.iter().map(|entry| entry.change.kind).collect();
        assert_eq!(kinds, [Kind::Begun, Kind::Set, Kind::Added, Kind::Removed]);
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
        assert!(read(&[lines[0], lines[1], lines[1]].concat(), &keys).is_err(), "a line stands twice");
        let other = PrivateKey::from_seed(&[8; 32]).public();
        assert!(read(&good, &[other]).is_err_and(|fault| fault.reason.contains("does not know")));
    }

    #[test]
    fn log_and_database_follow_each_other() {
        let keys = [key().public()];
        let entries = read(&log(), &keys).expect("it was well made");
        let hashes: Vec<_> = entries.iter().map(|entry| entry.hash).collect();
        let changes: Vec<_> = entries[1..].iter().map(|entry| entry.change.clone()).collect();
        let known = |logged: usize, unlogged: std::ops::Range<usize>, is_original| Known {
            logged: hashes[..logged].to_vec(),
            unlogged: changes[unlogged].to_vec(),
            is_original,
        };
        let rows = [
            // Nothing was ever written.
            (None, known(0, 0..0, true), Plan::Begin),
            (None, known(0, 0..2, true), Plan::Begin),
            (None, known(0, 0..0, false), Plan::Lost),
            // All was.
            (Some(4), known(4, 3..3, true), Plan::Follow { adopt: 0 }),
            // Killed before a line was written, and before it was noted.
            (Some(3), known(3, 2..3, true), Plan::Follow { adopt: 0 }),
            (Some(4), known(3, 2..3, true), Plan::Follow { adopt: 1 }),
            (Some(1), known(0, 0..1, true), Plan::Follow { adopt: 1 }),
            (Some(1), known(0, 0..0, false), Plan::Follow { adopt: 1 }),
            // An old database, a new one, and one in which somebody has set another budget.
            (Some(4), known(2, 1..1, true), Plan::Ahead { lines: 2 }),
            (Some(4), known(0, 0..0, false), Plan::Ahead { lines: 3 }),
            (Some(4), known(2, 2..3, true), Plan::Ahead { lines: 2 }),
        ];
        for (lines, known, expected) in rows {
            let log = lines.map(|lines: usize| &entries[..lines]);
            assert_eq!(plan(log, &known), expected, "{lines:?} {known:?}");
        }
        for log in [None, Some(&entries[..2])] {
            assert!(matches!(plan(log, &known(4, 3..3, true)), Plan::Damaged { .. }));
        }
        let mut other = known(4, 3..3, true);
        other.logged[2] = Hash::ZERO;
        assert!(matches!(plan(Some(&entries), &other), Plan::Damaged { .. }));
    }
}
