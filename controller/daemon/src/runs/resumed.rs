//! Parts of an earlier run that another one begins with.

use std::io;

use sluice_contract::RunKey;
use sluice_runs::exchange::transcript::as_input;
use sluice_runs::exchange::{FileExchange, KeptWorkspace};
use sluice_runs::host::Host;

use crate::run_refusal::RunRefusal;
use crate::stored_request::StoredRequest;

/// Adds the transcript and the workspace with which a run begins, if its request names an earlier one.
///
/// # Errors
/// [`RunRefusal::Owner`]: they were removed since the request. [`RunRefusal::Host`]: the kept workspace cannot be
/// opened.
pub(super) fn resume(host: &Host, stored: &StoredRequest, exchange: &mut FileExchange) -> Result<(), RunRefusal> {
    let Some(name) = &stored.resume_from else { return Ok(()) };
    let gone = |what: &str| {
        RunRefusal::Owner(format!("the {what} of {name} is not there any more; create the run without resume_from"))
    };
    let key: RunKey = name.parse().map_err(|_| gone("transcript"))?;
    if stored.resumes_workspace {
        let kept = KeptWorkspace::open(&key, &host.layout.run(&key)).map_err(RunRefusal::host)?;
        exchange.restored = Some(kept.ok_or_else(|| gone("kept workspace"))?);
    }
    match as_input(&host.layout.records().of(&key)) {
        Ok(transcript) => exchange.inputs.push(transcript),
        // A program without a worker writes none.
        Err(error) if stored.resumes_workspace && error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => return Err(gone("transcript")),
    }
    Ok(())
}
