//! Limits of the requests in progress: for each token, and in total.

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::principal::Principal;
use crate::stream_count::CountedStream;

/// Counts an answer that lasts until its client has read it.
///
/// # Errors
/// 429
pub(super) fn admit_stream(context: &ApiContext, principal: &Principal) -> Result<CountedStream, ApiError> {
    context.streams.admit(&principal.id).ok_or_else(|| {
        ApiError::too_many("too_many_streams", "this token, or the daemon, has too many streams; close some", 5)
    })
}

/// Counts work on files of a sandbox, which the sandbox can make slow.
///
/// # Errors
/// 429
pub(super) fn admit_file_work(context: &ApiContext, principal: &Principal) -> Result<CountedStream, ApiError> {
    context.file_work.admit(&principal.id).ok_or_else(|| {
        let message = "this token, or the daemon, lists or writes too many files at once; wait for some to end";
        ApiError::too_many("too_many_files", message, 1)
    })
}
