//! Sizes of pages, and their cursors.
//!
//! Pure.

use crate::api_error::ApiError;

/// Number of entries of a page for a request that names none.
const DEFAULT: u32 = 100;
/// Maximum number of entries of a list.
pub(super) const LIST_MAX: u32 = 500;

/// Returns the number of entries of a page.
///
/// # Errors
/// 422 for a number that is not from 1 to `max`.
pub(super) fn limit(asked: Option<u32>, max: u32) -> Result<u32, ApiError> {
    let limit = asked.unwrap_or(DEFAULT);
    let message = || format!("limit is a number from 1 to {max}");
    if (1..=max).contains(&limit) { Ok(limit) } else { Err(ApiError::invalid("limit", message())) }
}

/// Returns the error of a cursor that no page has given.
pub(super) fn invalid_cursor() -> ApiError {
    ApiError::invalid("cursor", "cursor is the next_cursor of the page before, unchanged")
}
