//! Faults of the lines of an audit file.
//!
//! Pure.

use std::fmt;

/// A line that cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}: expected {expected}, found {found}")]
pub struct Fault {
    /// From 1, as editors count.
    pub line: u64,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// What should stand there.
    pub expected: String,
    /// What does.
    pub found: String,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It is not a JSON object.
    Json,
    /// It is longer than [`LINE_MAX`].
    Length,
    /// Its schema is another than this build knows.
    Schema,
    /// A member is missing, or of the wrong type.
    Members,
    /// It is not in canonical form.
    Canonical,
    /// Its number leaves a gap, or goes back.
    Seq,
    /// What it says of the line before is not so, and the line itself is the one that was altered.
    Prev,
    /// Its hash is not what the next line says: it was altered.
    Hash,
    /// It belongs to another run or attempt.
    Run,
    /// Its kind cannot stand here: `open` is first and only first, `close` is last.
    Order,
    /// An intent or an outcome that does not match the other, or a number that was not next.
    Call,
    /// What `close` sums up is not what the lines come to.
    Totals,
    /// What `close` states of itself and of the file is not so.
    Head,
    /// The signature is missing, or is over something else.
    Signature,
    /// The signature, or the certificate of its key, names a key that is not among the trusted ones.
    UnknownKey,
    /// A line that was seen before is now another, or is gone.
    Witness,
}

impl FaultKind {
    /// The word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Length => "length",
            Self::Schema => "schema",
            Self::Members => "members",
            Self::Canonical => "canonical",
            Self::Seq => "seq",
            Self::Prev => "prev",
            Self::Hash => "hash",
            Self::Run => "run",
            Self::Order => "order",
            Self::Call => "call",
            Self::Totals => "totals",
            Self::Head => "head",
            Self::Signature => "signature",
            Self::UnknownKey => "unknown key",
            Self::Witness => "witness",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(crate) fn fault(line: u64, kind: FaultKind, expected: impl fmt::Display, found: impl fmt::Display) -> Fault {
    Fault { line, kind, expected: cut(expected.to_string()), found: cut(found.to_string()) }
}

/// What stands in an altered line is as long as whoever altered it wants.
fn cut(text: String) -> String {
    const MAX: usize = 400;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{} [...]", &text[..end]),
        None => text,
    }
}
