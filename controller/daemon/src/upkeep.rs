//! Upkeep of the daemon apart from its runs: retention, agents and heartbeats, the fill level of the event log,
//! webhooks.

use std::sync::Arc;
use std::time::Duration;

use sluice_state::agents::AgentError;

use crate::approvals;
use crate::context::ApiContext;
use crate::event_limits::EventLimits;
use crate::git;
use crate::guardian::GuardianSettings;
use crate::guardian::watcher::Guardian;
use crate::loops::{LoopFault, LoopTimer, every};
use crate::otel::OtelTarget;
use crate::otel::exporter::Exporter;
use crate::tasks::Tasks;
use crate::webhooks::Webhook;
use crate::webhooks::consumer::{Consumer, WebhookQuota};

mod event_store;
mod kept_workspaces;
mod retention;

/// Settings of the upkeep.
#[derive(Debug, Clone)]
pub struct UpkeepSettings {
    /// Time for which the record of a run is kept after its end.
    pub record_keep: Duration,
    /// Time for which the events that runs report are kept.
    pub event_keep: Duration,
    /// Limits of the events that runs report.
    pub events: EventLimits,
    /// Webhooks.
    pub webhooks: Vec<Webhook>,
    /// Rules of the Guardian.
    pub guardian: GuardianSettings,
    /// Targets of OpenTelemetry.
    pub otel: Vec<OtelTarget>,
}

impl Default for UpkeepSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self {
            record_keep: 14 * DAY,
            event_keep: 30 * DAY,
            events: EventLimits::default(),
            webhooks: Vec::new(),
            guardian: GuardianSettings::default(),
            otel: Vec::new(),
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// The first turn is a minute after the start, because a start has other work.
const RETENTION: LoopTimer = LoopTimer { name: "retention", period: HOUR, first: MINUTE };
const AGENTS: LoopTimer = LoopTimer { name: "agents", period: MINUTE, first: MINUTE };
const HEARTBEATS: LoopTimer =
    LoopTimer { name: "heartbeats", period: Duration::from_secs(5), first: Duration::from_secs(5) };
/// Calls wait for these decisions, so the interval is short.
const DECISIONS: LoopTimer =
    LoopTimer { name: "approvals and questions", period: Duration::from_secs(1), first: Duration::from_secs(1) };
const EVENT_STORE: LoopTimer =
    LoopTimer { name: "event store", period: Duration::from_secs(10), first: Duration::ZERO };

/// Starts all loops, the Guardian, the exports to OpenTelemetry and the webhooks.
pub(crate) fn start(tasks: &mut Tasks, context: &Arc<ApiContext>, settings: &UpkeepSettings, origin: &str) {
    let keep = Arc::new(retention::Keep::of(settings));
    periodic(tasks, context, RETENTION, move |context| {
        let keep = Arc::clone(&keep);
        async move { retention::turn(&context, &keep).await }
    });
    periodic(tasks, context, AGENTS, |context| async move { release_agents(&context).await });
    let approved = Arc::clone(context);
    tasks.spawn("approved publications", |mut stop| async move {
        git::resume_publications(&approved).await;
        stop.stopped().await;
    });
    periodic(tasks, context, DECISIONS, |context| async move { approvals::upkeep::turn(&context).await });
    let limits = settings.events;
    periodic(tasks, context, EVENT_STORE, move |context| async move { event_store::look(&context, &limits).await });
    let last = Arc::clone(context);
    let (loops, log) = (Arc::clone(&context.loops), context.log);
    let flushed = Arc::clone(context);
    tasks.spawn(HEARTBEATS.name, |stop| async move {
        let turn = || {
            let context = Arc::clone(&flushed);
            async move { Ok(write_heartbeats(&context).await?) }
        };
        every(HEARTBEATS, loops, log, stop, turn).await;
        if let Err(error) = write_heartbeats(&last).await {
            log(&format!("the last heartbeats are lost: {error}"));
        }
    });
    if !settings.guardian.is_empty() {
        let guardian = Guardian::new(Arc::clone(context), settings.guardian.clone());
        tasks.spawn("the guardian", |stop| guardian.run(stop));
    }
    for target in &settings.otel {
        let exporter = Exporter::new(Arc::clone(context), target.clone(), context.monitor.read.get());
        tasks.spawn("an export to OpenTelemetry", |stop| exporter.run(stop));
    }
    let share = WebhookQuota::of(settings.webhooks.len());
    for webhook in &settings.webhooks {
        let consumer = Consumer {
            webhook: webhook.clone(),
            store: context.store.clone(),
            share,
            origin: origin.to_owned(),
            system_keep: retention::system_keep(settings.event_keep),
            loops: Arc::clone(&context.loops),
            log: context.log,
        };
        tasks.spawn("a webhook", |stop| consumer.run(stop));
    }
}

fn periodic<F>(
    tasks: &mut Tasks,
    context: &Arc<ApiContext>,
    timer: LoopTimer,
    turn: impl Fn(Arc<ApiContext>) -> F + Send + 'static,
) where
    F: Future<Output = Result<(), LoopFault>> + Send + 'static,
{
    let context = Arc::clone(context);
    let (loops, log) = (Arc::clone(&context.loops), context.log);
    tasks.spawn(timer.name, |stop| every(timer, loops, log, stop, move || turn(Arc::clone(&context))));
}

/// Moves agents that are CONNECTED without a live run to IDLE: a person connected them, and no run followed.
async fn release_agents(context: &ApiContext) -> Result<(), LoopFault> {
    for agent in context.store.idle_agents_without_runs().await? {
        (context.log)(&format!("agent {}/{} has no live run, and is IDLE", agent.owner, agent.agent_id));
    }
    Ok(())
}

/// Writes the heartbeats since the last turn, in one transaction.
async fn write_heartbeats(context: &ApiContext) -> Result<(), AgentError> {
    let heartbeats = context.heartbeats.take();
    if heartbeats.is_empty() {
        return Ok(());
    }
    let written = context.store.record_heartbeats(heartbeats.clone()).await;
    if written.is_err() {
        heartbeats.into_iter().for_each(|heartbeat| context.heartbeats.add(heartbeat));
    }
    written
}
