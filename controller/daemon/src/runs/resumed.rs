//! What a run begins with of an earlier one.

use sluice_runs::exchange::InputFile;
use sluice_runs::exchange::transcript::as_input;
use sluice_runs::host::Host;

use super::refusal::Refusal;
use crate::stored_request::StoredRequest;

/// Returns the transcript with which a run begins, if its request names one.
///
/// # Errors
/// [`Refusal::Owner`]: its record was removed since the request.
pub(super) fn resumed_transcript(host: &Host, stored: &StoredRequest) -> Result<Option<InputFile>, Refusal> {
    let Some(key) = &stored.resume_from else { return Ok(None) };
    let gone = || {
        let text = format!("the transcript of {key} is not there any more; create the run without resume_from");
        Refusal::Owner(text)
    };
    let key = key.parse().map_err(|_| gone())?;
    as_input(&host.layout.records().of(&key)).map(Some).map_err(|_| gone())
}
