//! The lines of an audit file.
//!
//! Each record is one JSON object on one line. The members of every struct are in the order of their
//! names, so that what serde writes is canonical (RFC 8785): keys sorted, no floats, integers below 2^53,
//! money as decimal strings. A test checks every record. `prev` is the SHA-256 of the previous line, with
//! its newline, as 64 hex digits; zeros in the first line. No record holds a prompt, a completion, a header value or
//! a key.

/// Largest integer that every reader of JSON takes exactly.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Schema that this build writes.
pub const SCHEMA: u32 = 1;

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident<$life:lifetime> = $kind:literal { $($(#[$fdoc:meta])* $field:ident : $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            #[allow(missing_docs, reason = "the members are their names; the ones that need words have them")]
            pub struct $name<$life> { $($(#[$fdoc])* pub $field: $ty),* }

            impl $name<'_> {
                /// Value of the member `kind`.
                pub const KIND: &'static str = $kind;
            }

            impl WriteJson for $name<'_> {
                #[inline]
                fn write(&self, line: &mut Vec<u8>) {
                    write_members!(self, line, { $($field),* });
                }
            }
        )*
    };
}

mod call;
mod close;
mod control;
mod held;
mod open;
mod optional;
mod recovered;
mod refused;
mod usage;
mod words;

pub use call::{Intent, Outcome, Peer, Timing};
pub use close::{Certificate, Close, RelayCounts};
pub use control::{Control, ControlCount, ControlValues, MessageDigest, MessageDigests};
pub use held::{Held, Released};
pub use open::{Epoch, Open, RunLimits};
pub use optional::{ByteCount, OptionalText, OptionalTexts, TokenCount};
pub use recovered::Recovered;
pub use refused::Refused;
pub use usage::Usage;
pub use words::{CallResult, ConnectFailure, CostSource, End, NullReason, ReleaseDecision};

/// Members that the writer gives every line, whatever its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// Start of the run that this file belongs to.
    pub attempt: u32,
    /// SHA-256 of the previous line.
    pub prev: String,
    /// The run.
    pub run_id: &'a str,
    /// Position in the file, from 0, without a gap.
    pub seq: u64,
    /// UTC, RFC 3339, microseconds.
    pub ts: String,
}

#[cfg(test)]
mod tests;
