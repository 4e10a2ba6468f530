//! Faults of the lines of an audit file.
//!
//! Pure.

use std::fmt;

/// A line that breaks a rule of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}: expected {expected}, found {found}")]
pub struct Fault {
    /// Number of the line, from 1, as editors count.
    pub line: u64,
    /// Broken rule.
    pub kind: FaultKind,
    /// Expected value.
    pub expected: String,
    /// Actual value.
    pub found: String,
}

/// Value of `found` for a file without a signature.
pub(crate) const NO_SIGNATURE: &str = "none";

impl Fault {
    /// Returns true if the file breaks no other rule than that a trusted key must have signed it, and it has no
    /// signature.
    #[must_use]
    pub fn is_unsigned(&self) -> bool {
        self.kind == FaultKind::Signature && self.found == NO_SIGNATURE
    }
}

/// Rule that a line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The line is not a JSON object.
    Json,
    /// The line is longer than [`crate::reader::LINE_MAX`].
    Length,
    /// The schema is not known to this build.
    Schema,
    /// A member is missing, or of the wrong type.
    Members,
    /// The line is not in canonical form.
    Canonical,
    /// The number leaves a gap, or goes back.
    Seq,
    /// The stated hash of the previous line is wrong, and this line is the one that was altered.
    Prev,
    /// The hash differs from the one that the next line states: the line was altered.
    Hash,
    /// The line belongs to another run or attempt.
    Run,
    /// The kind is not allowed here: `open` is first and only first, `close` is last.
    Order,
    /// An intent or an outcome that does not match the other, or a number that was not next.
    Call,
    /// A release of a request that does not wait.
    Hold,
    /// The sums in `close` differ from the sums of the lines.
    Totals,
    /// The head in `close` is not the hash of the line.
    Head,
    /// The signature is missing, or is over something else.
    Signature,
    /// The signature, or the certificate of its key, names a key that is not among the trusted ones.
    UnknownKey,
    /// A line that was seen before is now different, or is gone.
    Witness,
}

impl FaultKind {
    /// Returns the word in reports.
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
            Self::Hold => "hold",
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

/// Shortens a value: an altered line may hold a value of any length.
fn cut(text: String) -> String {
    const MAX: usize = 400;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{} [...]", &text[..end]),
        None => text,
    }
}
