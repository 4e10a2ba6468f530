//! Violations that are known. The test fails when one no longer occurs, so that it is deleted here.

use crate::violation::Exception;

/// Rule and key of each; a failing test prints them as they are written here.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    ("top-level circles", "controller/state/src: chats messages sandboxes"),
];
