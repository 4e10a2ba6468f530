//! A run for tests.

use sluice_state::sandboxes::{DesiredState, Sandbox, SandboxState};

/// Returns a run that works.
pub(crate) fn running() -> Sandbox {
    Sandbox {
        key: "r1.0".parse().expect("a key"),
        owner: "alice".to_owned(),
        agent_id: "a1".to_owned(),
        agent_ephemeral: true,
        name: None,
        project: None,
        account: "acct-1".to_owned(),
        state: SandboxState::Running,
        desired_state: DesiredState::Running,
        verdict: None,
        max_retries: 3,
        retry_on: Vec::new(),
        next_try_us: 0,
        priority: 0,
        labels: Default::default(),
        cap: None,
        attempt_cap: None,
        hold_nano: 0,
        hold: None,
        created_us: 0,
        claimed_us: Some(0),
        started_us: Some(0),
        ended_us: None,
        run_time_us: 7_200_000_000,
        deadline_us: Some(7_200_000_000),
        paused_us: None,
        clocks_stopped_us: None,
        stopped_total_us: 0,
        sums: Default::default(),
        last_work_us: None,
        last_observed_work_us: None,
        last_heartbeat_us: None,
        heartbeat_status: None,
        generation: 1,
    }
}
