//! Calls of a run that could not connect to the upstream, from its audit file alone.
//!
//! Pure. The sandbox learns one word for the reason; the operator gets the message of the system.

use sluice_contract::AuditLog;
use sluice_contract::text::sanitize;

/// Returns a message with the number of calls without a connection, and the reason of the last one. `None` if every call
/// found one.
#[must_use]
pub fn no_connection(log: &AuditLog) -> Option<String> {
    let outcomes = log.calls().iter().filter_map(|call| call.outcome.as_ref());
    let failed: Vec<_> = outcomes.filter_map(|it| Some((it.connect_error.as_ref()?, &it.connect_detail))).collect();
    let (word, detail) = failed.last()?;
    let upstream = log.open().map_or("the upstream", |open| &*open.upstream);
    let calls = if failed.len() == 1 { "a call".to_owned() } else { format!("{} calls", failed.len()) };
    let detail = detail.as_ref().map_or("", |detail| &*detail.0);
    let fix = match &*word.0 {
        "tls" => "; use http:// if it has no TLS, and check its certificate otherwise",
        "dns" => "; check its name",
        _ => "",
    };
    Some(sanitize(&format!("{calls} found no connection to {upstream} ({}: {detail}){fix}", word.0)))
}
