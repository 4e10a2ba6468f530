//! The rules that end a run because of its time or its silence.
//!
//! Pure. The caller passes the time, and a clock that jumps back ends no run.
//!
//! While a run is paused or waits for an approval, no silence ends it, and its deadline moves by that time, for a day at most.

use std::time::Duration;

use sluice_contract::time::duration_micros;
use sluice_state::sandboxes::{Sandbox, SandboxState};

use crate::live_run::LiveFacts;

/// Time after the last observed work for which work counts that only the agent reports.
const CLAIMED_WORK: Duration = Duration::from_secs(3600);
/// Time for which a daemon watches a run before it ends the run as idle, if the idle time is longer. After a restart,
/// the daemon first reads the calls and the changed files of the time between, which takes less than this.
const WATCH_GRACE: Duration = Duration::from_secs(60);
/// Statuses of heartbeats by which the worker reports work.
const WORKING: [&str; 2] = ["running", "alive"];

/// Times after which runs end. `idle`, `stuck` and `heartbeat` may be zero: then they end no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTimes {
    /// Time from the claim to the start of the program.
    pub stale_start: Duration,
    /// Time without work.
    pub idle: Duration,
    /// Time without work of a run with a worker that reports that it works.
    pub stuck: Duration,
    /// Time without a heartbeat of a run with a worker that has sent some before.
    pub heartbeat: Duration,
}

impl Default for RunTimes {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self { stale_start: minutes(3), idle: minutes(10), stuck: minutes(15), heartbeat: minutes(2) }
    }
}

/// Time that a program has to end by itself after its agent said that it was done.
pub const DONE_GRACE: Duration = Duration::from_secs(30);

/// Returns whether a program must be stopped, because its agent reported that it was done, and it still runs.
#[must_use]
pub fn overstays(run: &Sandbox, facts: Option<LiveFacts>, now_us: i64) -> bool {
    let done_us = facts.filter(|facts| facts.open_calls == 0).and_then(|facts| facts.done_us);
    let is_held = run.paused_us.is_some() || run.clocks_stopped_us.is_some();
    let is_done = run.state == SandboxState::Completing && run.verdict.is_none() && !is_held;
    is_done && done_us.is_some_and(|done_us| since(done_us, now_us) >= DONE_GRACE)
}

/// A reason to end a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Failure code.
    pub code: &'static str,
    /// Reason, for people.
    pub message: String,
}

/// Returns the reason to end a run now. Without `facts`, its request is not read yet, and no silence ends it.
#[must_use]
pub fn overdue(run: &Sandbox, facts: Option<LiveFacts>, times: &RunTimes, now_us: i64) -> Option<Overdue> {
    let is_live = run.state.is_active() && run.verdict.is_none();
    if !is_live {
        return None;
    }
    if run.deadline_us.is_some_and(|deadline| now_us >= deadline.saturating_add(run.stopped_us(now_us))) {
        let message = format!("the run took longer than {} in all", span(run.run_time_us));
        return Some(Overdue { code: "timeout", message });
    }
    if run.paused_us.is_some() || run.clocks_stopped_us.is_some() {
        return None;
    }
    match run.state {
        SandboxState::Creating if run.claimed_us.is_some_and(|claimed| since(claimed, now_us) >= times.stale_start) => {
            let message = format!("the program did not start within {}", time(times.stale_start));
            Some(Overdue { code: "stale_start", message })
        }
        SandboxState::Running | SandboxState::Completing => {
            let facts = facts?;
            without_heartbeat(run, facts, times, now_us).or_else(|| silent(run, facts, times, now_us))
        }
        _ => None,
    }
}

/// Returns the reason to end a run with a worker that stopped sending heartbeats. A call shows that the agent lives.
fn without_heartbeat(run: &Sandbox, facts: LiveFacts, times: &RunTimes, now_us: i64) -> Option<Overdue> {
    let limit = times.heartbeat;
    let last = run.last_heartbeat_us?.max(facts.watched_us).max(facts.last_call_us.unwrap_or_default());
    if limit.is_zero() || facts.open_calls > 0 || since(last, now_us) < limit {
        return None;
    }
    let message = format!("its worker sent no heartbeat for {}, and no call was open", time(limit));
    Some(Overdue { code: "heartbeat_timeout", message })
}

/// Returns the reason to end an idle run. One idle time applies to it: the request's, else the host's.
fn silent(run: &Sandbox, facts: LiveFacts, times: &RunTimes, now_us: i64) -> Option<Overdue> {
    if facts.open_calls > 0 {
        return None;
    }
    let is_working = run.heartbeat_status.as_deref().is_some_and(|status| WORKING.contains(&status));
    let (code, limit) = match facts.times.ttl {
        Some(ttl) => ("ttl_expired", ttl),
        None if is_working => ("stuck_running", times.stuck),
        None => ("idle_timeout", facts.times.idle.unwrap_or(times.idle)),
    };
    let is_watched = since(facts.watched_us, now_us) >= limit.min(WATCH_GRACE);
    if limit.is_zero() || !is_watched || since(last_work(run)?, now_us) < limit {
        return None;
    }
    let message = match code {
        "stuck_running" => format!("its worker said that it works, and did nothing for {}", time(limit)),
        _ => format!("the run did nothing for {}: no call, no output", time(limit)),
    };
    Some(Overdue { code, message })
}

/// Returns the time of the last work. Work that only the agent reports counts for an hour after the last observed work.
fn last_work(run: &Sandbox) -> Option<i64> {
    let observed = run.last_observed_work_us.max(run.started_us)?;
    let claimed = run.last_work_us.map(|work| work.min(observed.saturating_add(duration_micros(CLAIMED_WORK))));
    Some(claimed.map_or(observed, |claimed| claimed.max(observed)))
}

fn since(us: i64, now_us: i64) -> Duration {
    Duration::from_micros(u64::try_from(now_us.saturating_sub(us)).unwrap_or(0))
}

fn time(time: Duration) -> String {
    span(duration_micros(time))
}

/// Returns a span of microseconds in words.
fn span(us: i64) -> String {
    let seconds = us / 1_000_000;
    if seconds % 60 == 0 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}

#[cfg(test)]
mod tests {
    use sluice_state::sandboxes::SandboxVerdict;

    use super::*;
    use crate::live_run::{LiveRun, RequestedTimes};
    use crate::runs::test_run::running;

    const MINUTE: i64 = 60_000_000;
    fn run(state: SandboxState) -> Sandbox {
        Sandbox {
            state,
            claimed_us: Some(MINUTE),
            started_us: Some(2 * MINUTE),
            run_time_us: 120 * MINUTE,
            deadline_us: Some(121 * MINUTE),
            ..running()
        }
    }

    fn facts(open_calls: u64) -> Option<LiveFacts> {
        Some(LiveFacts {
            open_calls,
            times: RequestedTimes::default(),
            watched_us: 0,
            last_call_us: None,
            done_us: None,
        })
    }

    fn code(run: &Sandbox, open_calls: u64, now_us: i64) -> Option<&'static str> {
        overdue(run, facts(open_calls), &RunTimes::default(), now_us).map(|due| due.code)
    }

    #[test]
    fn a_program_must_start_in_time() {
        let creating = Sandbox { started_us: None, ..run(SandboxState::Creating) };
        assert_eq!(code(&creating, 0, 4 * MINUTE - 1), None);
        assert_eq!(code(&creating, 0, 4 * MINUTE), Some("stale_start"));
        let longer = RunTimes { stale_start: Duration::from_secs(600), ..RunTimes::default() };
        assert_eq!(overdue(&creating, None, &longer, 11 * MINUTE - 1), None);
        let message = overdue(&creating, None, &longer, 11 * MINUTE).map(|due| due.message);
        assert_eq!(message.as_deref(), Some("the program did not start within 10 min"));
    }

    #[test]
    fn a_silent_run_ends_unless_a_call_is_open() {
        let running = run(SandboxState::Running);
        assert_eq!(code(&running, 0, 12 * MINUTE - 1), None);
        assert_eq!(code(&running, 0, 12 * MINUTE), Some("idle_timeout"));
        assert_eq!(code(&running, 1, 60 * MINUTE), None);
        let worked = Sandbox { last_work_us: Some(50 * MINUTE), ..running.clone() };
        assert_eq!((code(&worked, 0, 59 * MINUTE), code(&worked, 0, 60 * MINUTE)), (None, Some("idle_timeout")));
        let never = RunTimes { idle: Duration::ZERO, ..RunTimes::default() };
        assert_eq!(overdue(&running, facts(0), &never, 60 * MINUTE), None, "0 switches it off");
        assert_eq!(overdue(&running, None, &RunTimes::default(), 60 * MINUTE), None, "its request is not read");
    }

    #[test]
    fn the_idle_time_of_a_request_replaces_that_of_the_host() {
        let beats = Sandbox { heartbeat_status: Some("running".to_owned()), ..run(SandboxState::Running) };
        for running in [run(SandboxState::Running), beats] {
            for minutes in [1, 30] {
                let times = RequestedTimes { ttl: Some(Duration::from_secs(minutes * 60)), idle: None };
                let facts = facts(0).map(|facts| LiveFacts { times, ..facts });
                let end = 2 * MINUTE + i64::try_from(minutes).expect("a few") * MINUTE;
                let code = |now_us| overdue(&running, facts, &RunTimes::default(), now_us).map(|due| due.code);
                assert_eq!((code(end - 1), code(end)), (None, Some("ttl_expired")), "{minutes}");
            }
        }
    }

    #[test]
    fn limits_idle_ends_a_run_without_a_working_worker() {
        let times = RequestedTimes { ttl: None, idle: Some(Duration::from_secs(60)) };
        let facts = facts(0).map(|facts| LiveFacts { times, ..facts });
        let code = |run: &Sandbox, now_us| overdue(run, facts, &RunTimes::default(), now_us).map(|due| due.code);
        let silent = run(SandboxState::Running);
        assert_eq!((code(&silent, 3 * MINUTE - 1), code(&silent, 3 * MINUTE)), (None, Some("idle_timeout")));
        let beats = Sandbox { heartbeat_status: Some("running".to_owned()), ..run(SandboxState::Running) };
        assert_eq!((code(&beats, 16 * MINUTE), code(&beats, 17 * MINUTE)), (None, Some("stuck_running")));
    }

    #[test]
    fn a_worker_that_falls_silent_ends_its_run() {
        let beats = Sandbox { last_heartbeat_us: Some(5 * MINUTE), ..run(SandboxState::Running) };
        assert_eq!((code(&beats, 0, 7 * MINUTE - 1), code(&beats, 0, 7 * MINUTE)), (None, Some("heartbeat_timeout")));
        assert_eq!(code(&beats, 1, 60 * MINUTE), None, "a call is open");
        assert_eq!(code(&run(SandboxState::Running), 0, 7 * MINUTE), None, "it never sent one");
        let base = facts(0).expect("facts");
        for facts in [
            LiveFacts { last_call_us: Some(6 * MINUTE), ..base },
            // The daemon was away, or the run was paused.
            LiveFacts { watched_us: 6 * MINUTE, ..base },
        ] {
            let code = |now_us| overdue(&beats, Some(facts), &RunTimes::default(), now_us).map(|due| due.code);
            assert_eq!((code(8 * MINUTE - 1), code(8 * MINUTE)), (None, Some("heartbeat_timeout")), "{facts:?}");
        }
        let never = RunTimes { heartbeat: Duration::ZERO, ..RunTimes::default() };
        assert_eq!(overdue(&beats, Some(base), &never, 7 * MINUTE), None, "0 switches it off");
    }

    /// Bug: after a downtime longer than the idle time, a run ended before its work of that time was read.
    #[test]
    fn a_new_daemon_watches_before_it_ends_idle_runs() {
        let silent = run(SandboxState::Running);
        let restarted = facts(0).map(|facts| LiveFacts { watched_us: 30 * MINUTE, ..facts });
        let code = |run: &Sandbox, facts, now_us| overdue(run, facts, &RunTimes::default(), now_us).map(|due| due.code);
        let end = 31 * MINUTE;
        assert_eq!((code(&silent, restarted, end - 1), code(&silent, restarted, end)), (None, Some("idle_timeout")));
        let times = RequestedTimes { ttl: None, idle: Some(Duration::from_secs(2)) };
        let short = restarted.map(|facts| LiveFacts { times, ..facts });
        let end = 30 * MINUTE + 2_000_000;
        assert_eq!((code(&silent, short, end - 1), code(&silent, short, end)), (None, Some("idle_timeout")));
        // The restart is not work: the idle time begins with the last work.
        let worked = Sandbox { last_observed_work_us: Some(25 * MINUTE), ..silent };
        let end = 35 * MINUTE;
        assert_eq!((code(&worked, restarted, end - 1), code(&worked, restarted, end)), (None, Some("idle_timeout")));
    }

    #[test]
    fn a_program_that_is_done_has_a_grace() {
        let done = run(SandboxState::Completing);
        let facts = facts(0).map(|facts| LiveFacts { done_us: Some(3 * MINUTE), ..facts });
        let end = 3 * MINUTE + duration_micros(DONE_GRACE);
        assert_eq!((overstays(&done, facts, end - 1), overstays(&done, facts, end)), (false, true));
        let open = facts.map(|facts| LiveFacts { open_calls: 1, ..facts });
        assert!(!overstays(&done, open, end) && !overstays(&run(SandboxState::Running), facts, end));
        assert!(!overstays(&Sandbox { verdict: Some(SandboxVerdict::Success), ..done.clone() }, facts, end));
        assert!(!overstays(&Sandbox { clocks_stopped_us: Some(1), ..done }, facts, end), "a call waits for a person");
    }

    #[test]
    fn the_grace_begins_after_a_pause() {
        let live = LiveRun::default();
        live.set_limits(RequestedTimes::default(), 0);
        let done = run(SandboxState::Completing);
        live.look(&done, 3 * MINUTE);
        live.look(&Sandbox { clocks_stopped_us: Some(3 * MINUTE), ..done.clone() }, 10 * MINUTE);
        live.look(&done, 10 * MINUTE + 1);
        assert_eq!(live.facts().and_then(|facts| facts.done_us), Some(10 * MINUTE));
    }

    #[test]
    fn a_worker_that_says_that_it_works_has_longer() {
        for (status, end, expected) in
            [("running", 17, "stuck_running"), ("alive", 17, "stuck_running"), ("waiting", 12, "idle_timeout")]
        {
            let beats = Sandbox { heartbeat_status: Some(status.to_owned()), ..run(SandboxState::Running) };
            assert_eq!(code(&beats, 0, end * MINUTE - 1), None, "{status}");
            assert_eq!(code(&beats, 0, end * MINUTE), Some(expected), "{status}");
        }
    }

    #[test]
    fn work_that_only_the_agent_claims_counts_for_an_hour() {
        let claims = |minute: i64| Sandbox { last_work_us: Some(minute * MINUTE), ..run(SandboxState::Running) };
        assert_eq!(code(&claims(61), 0, 70 * MINUTE), None);
        assert_eq!(code(&claims(71), 0, 72 * MINUTE - 1), None);
        assert_eq!(code(&claims(71), 0, 72 * MINUTE), Some("idle_timeout"));
        let observed = Sandbox { last_observed_work_us: Some(40 * MINUTE), ..claims(71) };
        assert_eq!((code(&observed, 0, 72 * MINUTE), code(&observed, 0, 81 * MINUTE)), (None, Some("idle_timeout")));
    }

    #[test]
    fn nothing_moves_the_deadline() {
        let busy = Sandbox { last_work_us: Some(121 * MINUTE), ..run(SandboxState::Running) };
        assert_eq!(code(&busy, 3, 121 * MINUTE - 1), None);
        assert_eq!(code(&busy, 3, 121 * MINUTE), Some("timeout"));
    }

    #[test]
    fn a_pause_moves_the_deadline_by_a_day() {
        let day = 24 * 60 * MINUTE;
        let held = Sandbox { clocks_stopped_us: Some(100 * MINUTE), ..run(SandboxState::Running) };
        assert_eq!(code(&held, 0, 121 * MINUTE + day - 1), None);
        assert_eq!(code(&held, 0, 121 * MINUTE + day), Some("timeout"));
        let again = Sandbox { stopped_total_us: day, ..held };
        assert_eq!((code(&again, 0, 121 * MINUTE - 1), code(&again, 0, 121 * MINUTE)), (None, Some("timeout")));
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
        // The times were written before the jump, so each limit moves by the jump, and none is lost.
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
        let stopped = Some(3 * MINUTE);
        let paused = Sandbox { paused_us: stopped, clocks_stopped_us: stopped, ..run(SandboxState::Running) };
        let decided = Sandbox { verdict: Some(SandboxVerdict::Cancelled), ..run(SandboxState::Completing) };
        assert_eq!((code(&paused, 0, late), code(&decided, 0, late)), (None, None));
    }
}
