//! Details of a run from the API.

use serde_json::{Value, json};
use sluice_client::{ApiClient, ApiLogStream, LogSelection};

use super::super::error::CommandError;
use super::super::named_run;
use super::super::ps::{RunView, usage_of};
use super::{Inspection, LogTails, last_lines};

/// Number of bytes of a stream that are kept for its last lines.
const KEPT: usize = 256 << 10;

/// Returns the API's data about a run.
pub(super) async fn inspect(api: &ApiClient, name: &str) -> Result<Inspection, CommandError> {
    let run = named_run::find(api, name).await?;
    let sandbox = &run.sandbox;
    let used = usage_of(api, sandbox).await?;
    let tails = tails(api, &sandbox.sandbox_id).await;
    Ok(Inspection {
        run: RunView::of_detail(&run, used),
        verdict: Value::Null,
        updated: sandbox.ended_at.as_ref().or(sandbox.started_at.as_ref()).unwrap_or(&sandbox.created_at).clone(),
        request: None,
        result: None,
        no_record: Some(format!("the record of this run is on the host of {}", api.server())),
        no_audit: Some(format!("the audit file of this run is on the host of {}", api.server())),
        paths: json!({ "audit": null, "record": null }),
        tails,
        sandbox: serde_json::to_value(&run).unwrap_or_default(),
    })
}

/// Returns the last lines of a run's output; none for a run that has not begun, or no longer has a record.
async fn tails(api: &ApiClient, id: &str) -> LogTails {
    let selection = LogSelection { sandbox: id.to_owned(), ..LogSelection::default() };
    let mut logs = ApiLogStream::new(api, selection);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Ok(Some(line)) = logs.next().await {
        let kept: &mut Vec<u8> = if line.stream == "stderr" { &mut stderr } else { &mut stdout };
        kept.extend(line.bytes());
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    LogTails { stdout: last_lines(&stdout), stderr: last_lines(&stderr), sidecar: Vec::new() }
}
