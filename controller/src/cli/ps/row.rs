//! One run as a row of a list.

use std::time::SystemTime;

use serde::Serialize;
use sluice_contract::time::{from_unix_micros, unix_micros};
use sluice_runs::record::RequestRecord;
use sluice_state::layout::Layout;
use sluice_state::ledger::usd;
use sluice_state::live_usage::LiveUsageReader;
use sluice_state::records::REQUEST;
use sluice_state::store::KnownRun;

/// State of an open run whose controller has ended.
const ORPHANED: &str = "orphaned";

/// One run, for people and programs.
#[derive(Debug, Clone, Serialize)]
pub(in crate::cli) struct RunView {
    /// `RUN.ATTEMPT`.
    pub(in crate::cli) run: String,
    /// A phase, `orphaned` for a run whose controller was killed, `ok`, or the word of an error.
    pub(in crate::cli) state: String,
    pub(super) agent: String,
    /// Name of the program; null if the agent was asked, or if the run has no record.
    pub(super) program: Option<String>,
    pub(super) model: Option<String>,
    account: String,
    /// Time of the request (RFC 3339).
    pub(in crate::cli) started: String,
    /// Seconds from the request to the end, or to now.
    pub(in crate::cli) age_s: u64,
    /// Exit code of `sluice run`; null for an open run.
    pub(in crate::cli) exit_code: Option<i32>,
    pub(in crate::cli) calls: u64,
    /// Number of calls that have not ended.
    pub(in crate::cli) open_calls: u64,
    /// Known cost in dollars; null when no cost is known.
    pub(in crate::cli) cost_usd: Option<String>,
    /// Pid of the controller of an open run.
    pid: Option<i32>,
}

impl RunView {
    /// Looks at a run: the ledger has the costs of a run that is over, and the audit file those of an open one.
    pub(in crate::cli) fn of(run: &KnownRun, layout: &Layout) -> Self {
        let key = &run.entry.key;
        let is_open = !run.is_closed();
        let mut audit = LiveUsageReader::default();
        // Without a readable file the numbers are those of the ledger.
        let live = if is_open { audit.read_new(&layout.run(key).audit).ok() } else { None };
        let (calls, open_calls, nanos) =
            live.map_or((run.calls, 0, run.nano_usd), |live| (live.calls, live.open_calls, live.nano_usd));
        let request: Option<RequestRecord> = layout.records().of(key).read_json(REQUEST).ok().flatten();
        Self {
            run: key.to_string(),
            state: state(run),
            agent: run.entry.agent.clone(),
            program: request.and_then(|request| request.program.into_iter().next()),
            model: run.entry.model.clone(),
            account: run.entry.account.clone(),
            started: humantime::format_rfc3339_seconds(from_unix_micros(run.created_us)).to_string(),
            age_s: age(run),
            exit_code: run.exit_code.filter(|_| !is_open),
            calls,
            open_calls,
            cost_usd: nanos.map(usd),
            pid: is_open.then_some(run.entry.owner.pid),
        }
    }
}

fn state(run: &KnownRun) -> String {
    if !run.is_closed() {
        let word = if run.entry.owner.is_alive() { run.phase.as_str() } else { ORPHANED };
        return word.to_owned();
    }
    match (&run.error_code, run.exit_code) {
        (Some(code), _) => code.clone(),
        (None, Some(_)) => "ok".to_owned(),
        // Its controller was killed between the last two records.
        (None, None) => run.phase.clone(),
    }
}

/// Returns the seconds from the request of a run to its end, or to now.
fn age(run: &KnownRun) -> u64 {
    let end = if run.is_closed() { run.updated_us } else { unix_micros(SystemTime::now()).unwrap_or_default() };
    u64::try_from((end - run.created_us) / 1_000_000).unwrap_or_default()
}
