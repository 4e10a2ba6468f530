//! The two ways in which a request gets a refusal in place of the upstream's response.

use uuid::Uuid;

use crate::audit::Poisoned;
use crate::refusal::{Denial, Refusal};

/// Reason for which the upstream's response is not given.
pub(super) enum Denied {
    /// The request was not forwarded, and the audit log has to say so.
    Refused(Refusal),
    /// No `refused` record is due. The id is given for a call that was forwarded, or was about to be; its outcome is
    /// written.
    Failed(Refusal, Option<Uuid>),
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        match refusal.denial {
            // The denial that it repeats has a record.
            Denial::Repeated => Self::Failed(refusal, None),
            Denial::None | Denial::First => Self::Refused(refusal),
        }
    }
}

impl From<Poisoned> for Denied {
    fn from(_: Poisoned) -> Self {
        // The audit log takes no record of it.
        Self::Failed(Refusal::audit_unavailable(), None)
    }
}
