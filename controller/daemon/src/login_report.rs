//! Lines of the control log about logins that no request records: failed ones, and the ends of sessions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluice_state::control_log::ControlEntry;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::loops::{LoopFault, LoopTimer, every};
use crate::sessions::EndedSession;
use crate::stop_signal::StopSignal;

/// Period in which failed logins are counted for one line of the control log.
const TIMER: LoopTimer =
    LoopTimer { name: "failed logins", period: Duration::from_secs(60), first: Duration::from_secs(60) };

/// Writes the report at most once per minute, and at the end.
pub(crate) async fn run(context: Arc<ApiContext>, stop: StopSignal) {
    let (loops, log) = (Arc::clone(&context.loops), context.log);
    let turn = || {
        let context = Arc::clone(&context);
        async move { record(&context).await.map_err(|error| LoopFault::new(error.code())) }
    };
    every(TIMER, loops, log, stop, turn).await;
    let _ = record(&context).await;
}

/// Records failed logins, and the sessions that have ended.
async fn record(context: &ApiContext) -> Result<(), ApiError> {
    let mut ended = context.access.sessions.take_ended();
    // A logout has its own line, and so has a new login.
    ended.retain(|session| !matches!(session.reason, "logout" | "replaced"));
    for (at, EndedSession { id, owner, reason }) in ended.iter().enumerate() {
        let entry = ControlEntry {
            operation: "session.end".to_owned(),
            object: Some(id.clone()),
            owner: Some(owner.clone()),
            after: Some(json!({ "reason": reason })),
            ..ControlEntry::default()
        };
        if let Err(error) = context.record_own(entry).await {
            context.access.sessions.put_back(ended.split_off(at));
            return Err(error);
        }
    }
    let failures = context.access.take_failures();
    if failures == 0 {
        return Ok(());
    }
    let entry = ControlEntry {
        operation: "login.failed".to_owned(),
        after: Some(json!({ "count": failures })),
        ..ControlEntry::default()
    };
    let recorded = context.record_own(entry).await;
    if recorded.is_err() {
        context.access.put_back_failures(failures);
    }
    recorded.map(|_| ())
}
