//! Warnings in the operator's log about calls for which the upstream refused the key.
//!
//! The answer to the agent has no words of the upstream, and the agent cannot change the key. A sandbox can repeat such
//! a call, so the number of warnings is limited; the audit file has a record of each call.

use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Uuid;

/// Maximum number of warnings of a sidecar.
const WARNINGS_MAX: u32 = 10;

/// Number of calls for which the upstream refused the key.
#[derive(Debug, Default)]
pub struct KeyRefusals(AtomicU32);

impl KeyRefusals {
    /// Counts a call, and writes a warning if it is one of the first. The message must have no text of the upstream.
    pub fn warn(&self, call_id: Uuid, message: &str) {
        let earlier = self.0.fetch_add(1, Ordering::Relaxed);
        if earlier >= WARNINGS_MAX {
            return;
        }
        let rest = if earlier + 1 == WARNINGS_MAX { "; further such calls are not logged here" } else { "" };
        tracing::warn!(%call_id, "{message}{rest}");
    }
}
