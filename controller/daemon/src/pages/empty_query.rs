//! The query of pages that take none.
//!
//! Pure.

use serde::Deserialize;

/// A query that has nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyQuery {}
