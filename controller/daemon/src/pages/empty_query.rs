//! The query of pages that take no parameters.
//!
//! Pure.

use serde::Deserialize;

/// A query without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyQuery {}
