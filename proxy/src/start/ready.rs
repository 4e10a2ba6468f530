//! The line that reports that the run takes calls.

use sluice_contract::ready::{ReadyEvent, ReadyLine};

use super::{BUILD, Started, policy_digest};
use crate::settings::ProxySettings;

/// Returns the line that reports that the run takes calls.
#[must_use]
pub fn ready_line(settings: &ProxySettings, started: &Started) -> String {
    let ready = ReadyLine {
        audit_public_key: started.audit_public_key.map(|key| key.to_string().into()),
        build: BUILD.into(),
        event: ReadyEvent::Ready,
        hardening: Some(started.hardening),
        max_memory: settings.max_memory,
        pid: std::process::id(),
        policy: policy_digest(settings).into(),
        run_id: settings.identity.run_id.as_str().into(),
        socket: settings.socket.to_string_lossy(),
        uid: started.uid,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    ready.to_line()
}
