//! Facts about the host that are not numbers: the checks before the start, and the version of the engine.

use std::sync::{Mutex, PoisonError};

/// Result of a check before the start of the daemon. It omits the detail of the check, which names paths of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCheck {
    /// Name of the check.
    pub name: &'static str,
    /// `pass`, `warn`, `fail` or `skipped`.
    pub status: &'static str,
}

/// Facts about the host.
#[derive(Debug, Default)]
pub(crate) struct HostReport {
    /// Checks, in their order.
    pub(crate) checks: Vec<HostCheck>,
    engine_version: Mutex<Option<String>>,
}

impl HostReport {
    /// Makes a report of these checks.
    pub(crate) fn of(checks: Vec<HostCheck>) -> Self {
        Self { checks, ..Self::default() }
    }

    /// Returns the version that the engine has named.
    pub(crate) fn engine_version(&self) -> Option<String> {
        self.engine_version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the version of the engine; `None` while it does not answer, since it may return with another version.
    pub(crate) fn set_engine_version(&self, version: Option<String>) {
        *self.engine_version.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }
}
