//! The rules that end a run for its time or its silence.
//!
//! Pure. The time comes from the caller, and a clock that jumps back ends nothing.

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
        let message = format!("the run took longer than {} in all", humantime(run.run_time_us));
        return Some(Overdue { code: "timeout", message });
    }
    match run.state {
        SandboxState::Creating if run.claimed_us.is_some_and(|claimed| since(claimed) >= START_WITHIN) => {
            let message = format!("the program did not start within {} s", START_WITHIN.as_secs());
            Some(Overdue { code: "stale_start", message })
        }
        SandboxState::Running | SandboxState::Completing if open_calls == 0 && !idle.is_zero() => {
            let last = run.last_work_us.max(run.started_us)?;
            let message =
                || format!("the run did nothing for {}: no call, no output", humantime(duration_micros(idle)));
            (since(last) >= idle).then(|| Overdue { code: "ttl_expired", message: message() })
        }
        _ => None,
    }
}

fn humantime(us: i64) -> String {
    let seconds = us / 1_000_000;
    if seconds % 60 == 0 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}
