//! The rules that end a run for its time or its silence.
//!
//! Pure. The time comes from the caller, and a clock that jumps back ends nothing.
//!
//! A run that is paused has no clocks here; how long it may be paused is decided where it is paused.

use std::time::Duration;

use sluice_contract::time::duration_micros;
use sluice_state::sandboxes::{Sandbox, SandboxState};

/// Longest time from the claim to the start of the program.
pub const START_WITHIN: Duration = Duration::from_secs(180);

/// A reason to end a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Failure code.
    pub code: &'static str,
    /// Reason, for people.
    pub message: String,
}

/// Returns the reason to end a run now. `open_calls` is the number of its calls that have not ended, `idle` its idle time.
#[must_use]
pub fn overdue(run: &Sandbox, open_calls: u64, idle: Duration, now_us: i64) -> Option<Overdue> {
    let since = |us: i64| Duration::from_micros(u64::try_from(now_us.saturating_sub(us)).unwrap_or(0));
    let is_live = run.state.is_active() && run.verdict.is_none();
    if !is_live || run.paused_us.is_some() {
        return None;
    }
    if run.deadline_us.is_some_and(|deadline| now_us >= deadline) {
        let message = format!("the run took longer than {} in all", span(run.run_time_us));
        return Some(Overdue { code: "timeout", message });
    }
    match run.state {
        SandboxState::Creating if run.claimed_us.is_some_and(|claimed| since(claimed) >= START_WITHIN) => {
            let message = format!("the program did not start within {} s", START_WITHIN.as_secs());
            Some(Overdue { code: "stale_start", message })
        }
        SandboxState::Running | SandboxState::Completing if open_calls == 0 && !idle.is_zero() => {
            let last = run.last_work_us.max(run.started_us)?;
            let message = || format!("the run did nothing for {}: no call, no output", span(duration_micros(idle)));
            (since(last) >= idle).then(|| Overdue { code: "ttl_expired", message: message() })
        }
        _ => None,
    }
}

/// Returns a span of microseconds in words.
fn span(us: i64) -> String {
    let seconds = us / 1_000_000;
    if seconds % 60 == 0 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}

#[cfg(test)]
mod tests {
    use sluice_state::sandboxes::{DesiredState, SandboxVerdict};

    use super::*;

    const MINUTE: i64 = 60_000_000;
    const IDLE: Duration = Duration::from_secs(600);

    fn run(state: SandboxState) -> Sandbox {
        Sandbox {
            key: "r1.0".parse().expect("a key"),
            owner: "alice".to_owned(),
            agent_id: "a1".to_owned(),
            agent_ephemeral: true,
            name: None,
            project: None,
            account: "acct-1".to_owned(),
            state,
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
            claimed_us: Some(MINUTE),
            started_us: Some(2 * MINUTE),
            ended_us: None,
            run_time_us: 120 * MINUTE,
            deadline_us: Some(121 * MINUTE),
            paused_us: None,
            last_work_us: None,
            last_observed_work_us: None,
            last_heartbeat_us: None,
            heartbeat_status: None,
            generation: 1,
        }
    }

    fn code(run: &Sandbox, open_calls: u64, now_us: i64) -> Option<&'static str> {
        overdue(run, open_calls, IDLE, now_us).map(|due| due.code)
    }

    #[test]
    fn a_program_must_start_in_time() {
        let creating = Sandbox { started_us: None, ..run(SandboxState::Creating) };
        assert_eq!(code(&creating, 0, 4 * MINUTE - 1), None);
        assert_eq!(code(&creating, 0, 4 * MINUTE), Some("stale_start"));
    }

    #[test]
    fn a_silent_run_ends_unless_a_call_is_open() {
        let running = run(SandboxState::Running);
        assert_eq!(code(&running, 0, 12 * MINUTE - 1), None);
        assert_eq!(code(&running, 0, 12 * MINUTE), Some("ttl_expired"));
        assert_eq!(code(&running, 1, 60 * MINUTE), None);
        let worked = Sandbox { last_work_us: Some(50 * MINUTE), ..running.clone() };
        assert_eq!((code(&worked, 0, 59 * MINUTE), code(&worked, 0, 60 * MINUTE)), (None, Some("ttl_expired")));
        assert_eq!(overdue(&running, 0, Duration::ZERO, 60 * MINUTE), None, "0 switches it off");
    }

    #[test]
    fn nothing_moves_the_deadline() {
        let busy = Sandbox { last_work_us: Some(121 * MINUTE), ..run(SandboxState::Running) };
        assert_eq!(code(&busy, 3, 121 * MINUTE - 1), None);
        assert_eq!(code(&busy, 3, 121 * MINUTE), Some("timeout"));
    }

    #[test]
    fn a_clock_that_jumps_back_ends_nothing() {
        for state in SandboxState::ALL {
            assert_eq!(code(&run(state), 0, -5 * MINUTE), None, "{state}");
        }
    }

    #[test]
    fn a_run_lives_as_much_longer_as_its_clock_went_back() {
        let hour = 60 * MINUTE;
        // The times were written before the jump, so each limit is later by the jump, and none is gone.
        for state in [SandboxState::Creating, SandboxState::Running, SandboxState::Completing] {
            let live =
                Sandbox { claimed_us: Some(hour), started_us: Some(hour), deadline_us: Some(3 * hour), ..run(state) };
            assert_eq!((code(&live, 0, hour), code(&live, 0, 0)), (None, None), "{state}");
            assert!(code(&live, 0, hour + 10 * MINUTE).is_some(), "{state}");
            assert_eq!(code(&live, 1, 3 * hour), Some("timeout"), "{state}");
        }
    }

    #[test]
    fn runs_that_wait_or_have_ended_or_are_paused_are_left_alone() {
        let late = 500 * MINUTE;
        for state in [SandboxState::Pending, SandboxState::Completed, SandboxState::Failed] {
            assert_eq!(code(&run(state), 0, late), None, "{state}");
        }
        let paused = Sandbox { paused_us: Some(3 * MINUTE), ..run(SandboxState::Running) };
        let decided = Sandbox { verdict: Some(SandboxVerdict::Cancelled), ..run(SandboxState::Completing) };
        assert_eq!((code(&paused, 0, late), code(&decided, 0, late)), (None, None));
    }
}
