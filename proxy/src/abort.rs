//! The setting for calls whose client leaves.

/// Treatment of a call whose client leaves before the response has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortMode {
    /// The response is read on, to learn its cost: a client must not get a call for free by leaving.
    Drain,
    /// The connection to the upstream is closed at once.
    Cancel,
}
