//! The treatment of calls at a cap.
//!
//! Pure.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Treatment of a call that would exceed a cap of its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OnCap)]
pub enum CapTreatment {
    /// The call is refused.
    #[default]
    Refuse,
    /// The call waits, and a person decides.
    Ask,
}

impl CapTreatment {
    /// Returns the word in settings, requests and flags of the sidecar.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Ask => "ask",
        }
    }
}
