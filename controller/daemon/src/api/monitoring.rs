//! The state of the daemon in figures, for operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use sluice_state::figures::DatabaseFigures;
use sluice_state::sandboxes::SandboxState;
use sluice_state::store::now_us;
use tokio::task::spawn_blocking;
use utoipa::{OpenApi, ToSchema};

use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::loops::LoopStatus;
use crate::monitor::{age, engine_probe, upstream_probe};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::run_policy::RunPolicy;
use crate::timestamp::{timestamp, timestamp_of};

#[derive(OpenApi)]
#[openapi(paths(status))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/api/v1/monitoring/status", get(status))
}

/// State of the daemon in figures.
#[derive(Debug, Serialize, ToSchema)]
struct MonitoringStatus {
    /// `ready` or `not_ready`.
    status: &'static str,
    /// Parts that are not ready; `/ready` has their reasons.
    not_ready: Vec<&'static str>,
    /// Version of the daemon.
    version: &'static str,
    /// Seconds since its start.
    uptime_s: u64,
    /// Time in UTC.
    timestamp: String,
    /// Number of runs in each state.
    runs: BTreeMap<&'static str, u64>,
    queue: QueueStatus,
    /// Largest numbers of runs; null if no sandboxes can be created.
    limits: Option<RunLimitStatus>,
    events: EventStatus,
    receipts: ReceiptStatusView,
    /// Sidecars of runs that are not closed.
    sidecars: u64,
    /// The engine; null if no sandboxes can be created, or before the first answer.
    engine: Option<EngineStatus>,
    /// Upstream of the runs; null if no sandboxes can be created, or before the first answer.
    upstream: Option<UpstreamStatus>,
    /// Checks before the start of the daemon. `sluice preflight` makes them again, with details and remedies.
    checks: Vec<CheckView>,
    /// Disk of the state directory; null if the system does not say it.
    disk: Option<DiskStatus>,
    /// The loops of the daemon, by name.
    loops: BTreeMap<String, LoopState>,
}

/// Runs that wait.
#[derive(Debug, Serialize, ToSchema)]
struct QueueStatus {
    /// Number of runs in the queue.
    length: u64,
    /// Seconds for which the first of them waits that could begin; 0 if there is none.
    oldest_s: f64,
}

/// Runs that are being created, run or removed, and their largest numbers.
#[derive(Debug, Serialize, ToSchema)]
struct RunLimitStatus {
    /// Number of these runs.
    active: u64,
    /// Their largest number on this host.
    host: u32,
    /// Their largest number of one owner.
    owner: u32,
    /// Their largest number of one project.
    project: u32,
    /// Largest number of runs of one owner in the queue.
    queued_per_owner: u32,
}

/// The event log.
#[derive(Debug, Serialize, ToSchema)]
struct EventStatus {
    /// Position of the newest event.
    newest: i64,
    /// Seconds since the first event that the daemon's own reader has not seen.
    lag_s: f64,
    /// Open streams: events, output, downloads and programs.
    streams: usize,
}

/// Receipts whose cost is not known yet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReceiptStatus)]
struct ReceiptStatusView {
    /// Their number.
    open: u64,
    /// Seconds since the first call of them; 0 if there is none.
    oldest_s: f64,
}

/// The engine.
#[derive(Debug, Serialize, ToSchema)]
struct EngineStatus {
    /// True if it has answered the last question.
    reachable: bool,
    /// Time of that question.
    asked_at: String,
    /// Version that it has named; null until it has.
    version: Option<String>,
}

/// The upstream.
#[derive(Debug, Serialize, ToSchema)]
struct UpstreamStatus {
    /// True if the last connection was made.
    reachable: bool,
    /// Time of that connection.
    asked_at: String,
}

/// A check of the host.
#[derive(Debug, Serialize, ToSchema)]
struct CheckView {
    name: &'static str,
    /// `pass`, `warn`, `fail` or `skipped`.
    status: &'static str,
}

/// Disk of the state directory.
#[derive(Debug, Serialize, ToSchema)]
struct DiskStatus {
    /// Bytes that are free.
    free_bytes: u64,
    /// Bytes in all.
    total_bytes: u64,
}

/// A loop of the daemon.
#[derive(Debug, Serialize, ToSchema)]
struct LoopState {
    /// End of its last pass; null before the first.
    last_run_at: Option<String>,
    /// True if that pass failed; the log of the daemon has the reason.
    is_failing: bool,
    /// Passes that have failed since the start.
    faults: u64,
    /// End of the last pass that failed.
    last_fault_at: Option<String>,
}

/// State of the daemon in figures: runs, queue, limits, event log, receipts, engine, disk and loops. For admins, and for
/// tokens of the role `metrics`.
#[utoipa::path(
    get, path = "/api/v1/monitoring/status",
    responses(
        (status = 200, body = MonitoringStatus), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
async fn status(
    State(context): Context,
    principal: Principal,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<MonitoringStatus>, ApiError> {
    principal.require(Operation::Monitor)?;
    let (monitor, now) = (&context.monitor, now_us());
    let figures = context.store.figures(monitor.read.get(), now).await?;
    let not_ready: Vec<_> = context.readiness.reasons().into_keys().collect();
    let loops = context.loops.statuses();
    let probe = |name| loops.iter().find(|status| status.name == name);
    let upstream = probe(upstream_probe::NAME);
    Ok(Json(MonitoringStatus {
        status: if not_ready.is_empty() { "ready" } else { "not_ready" },
        not_ready,
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: monitor.started().elapsed().as_secs(),
        timestamp: timestamp(now),
        queue: QueueStatus {
            length: figures.runs.get(&SandboxState::Pending).copied().unwrap_or_default(),
            oldest_s: age(figures.waiting_since_us, now),
        },
        limits: context.policy.as_deref().map(|policy| limits(policy, &figures)),
        events: EventStatus {
            newest: figures.newest_event,
            lag_s: age(figures.unread_since_us, now),
            streams: context.streams.open(),
        },
        receipts: ReceiptStatusView { open: figures.open_receipts, oldest_s: age(figures.open_receipt_since_us, now) },
        sidecars: figures.sidecars,
        engine: probe(engine_probe::NAME).and_then(|probe| {
            let version = monitor.host.engine_version();
            Some(EngineStatus { reachable: !probe.is_failing, asked_at: timestamp(probe.last_end_us?), version })
        }),
        upstream: upstream.and_then(|probe| {
            Some(UpstreamStatus { reachable: !probe.is_failing, asked_at: timestamp(probe.last_end_us?) })
        }),
        checks: monitor.host.checks.iter().map(|check| CheckView { name: check.name, status: check.status }).collect(),
        disk: disk(&context).await,
        loops: loops.iter().map(|status| (status.name.clone(), shown(status))).collect(),
        runs: figures.runs.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
    }))
}

fn limits(policy: &RunPolicy, figures: &DatabaseFigures) -> RunLimitStatus {
    RunLimitStatus {
        active: figures.runs.iter().filter(|(state, _)| state.is_active()).map(|(_, count)| count).sum(),
        host: policy.running_max,
        owner: policy.owner_running_max,
        project: policy.project_running_max,
        queued_per_owner: policy.queued_max,
    }
}

async fn disk(context: &ApiContext) -> Option<DiskStatus> {
    let state = context.layout.state().to_owned();
    let status = spawn_blocking(move || statvfs(&state)).await.ok()?.ok()?;
    let bytes = |blocks: u64| blocks * status.fragment_size();
    Some(DiskStatus { free_bytes: bytes(status.blocks_available()), total_bytes: bytes(status.blocks()) })
}

fn shown(status: &LoopStatus) -> LoopState {
    LoopState {
        last_run_at: timestamp_of(status.last_end_us),
        is_failing: status.is_failing,
        faults: status.failures,
        last_fault_at: timestamp_of(status.last_fault.as_ref().map(|fault| fault.at_us)),
    }
}
