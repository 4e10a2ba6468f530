//! A new run for tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::agents::NewAgent;
use crate::creation::{NewSandbox, RunAgent};
use crate::process::Process;

/// Returns an agent of the owner `o`.
pub(crate) fn new_agent(agent_id: &str) -> NewAgent {
    NewAgent {
        owner: "o".to_owned(),
        agent_id: agent_id.to_owned(),
        name: None,
        zone_id: None,
        billing_account_id: "acct".to_owned(),
        allow_sandbox: true,
        grants: "[]".to_owned(),
        metadata: "{}".to_owned(),
    }
}

/// Returns a run of the owner `o`, of an agent of its own, without a cap.
pub(crate) fn new_sandbox(run_id: &str) -> NewSandbox {
    NewSandbox {
        run_id: run_id.parse().expect("an id"),
        owner: "o".to_owned(),
        agent: RunAgent::Ephemeral(new_agent(run_id)),
        name: None,
        project: None,
        account: "acct".to_owned(),
        graph: "sandbox:agent".to_owned(),
        model: None,
        image: "image".to_owned(),
        daemon: Process::current().expect("there is /proc"),
        cap: None,
        hold_nano: 40,
        max_retries: 3,
        retry_on: Vec::new(),
        request: "{}".to_owned(),
        priority: 0,
        labels: BTreeMap::new(),
        depends_on: BTreeSet::new(),
        run_time_us: 1000,
        mount_paths: Vec::new(),
        queued_max: 1000,
        idempotency: None,
        chat: None,
    }
}
