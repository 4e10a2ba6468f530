//! The refusals that several readers of a body give.
//!
//! Pure.

use crate::json::JsonError;
use crate::refusal::{Reason, Refusal};
use crate::text::clip;

pub(super) fn not_allowed(name: &str) -> Refusal {
    let message = format!("'{}' may not be set from the sandbox; leave it out", clip(name, 64));
    Refusal::new(Reason::ParamNotAllowed, message).param(name)
}

pub(super) fn no_stored_id(name: &str) -> Refusal {
    not_allowed(name).with_message(format!("'{name}' has to be the id of an answer that this run has received"))
}

pub(super) fn invalid(name: &str, want: &str) -> Refusal {
    Refusal::new(Reason::InvalidParam, format!("'{}' is not valid: {want}", clip(name, 64))).param(name)
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::new(Reason::InvalidJson, format!("the body must be one JSON object: {error}"))
    }
}
