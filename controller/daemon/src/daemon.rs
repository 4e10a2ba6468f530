//! The process of the daemon: its parts, its start and its stop.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_runs::host::{Host, HostError};
use sluice_state::control_log::{ControlEntry, ControlLog, ControlLogError};
use sluice_state::daemon_lock::{DaemonLock, DaemonLockError};
use sluice_state::idempotency::IdempotencyError;
use sluice_state::keys::{KeyError, Keys};
use sluice_state::layout::{Layout, LayoutError};
use sluice_state::store::{Store, StoreError};
use sluice_state::tokens::TokenError;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::access::{Access, Entrance};
use crate::api;
use crate::chat::abandoned;
use crate::connection_count::ConnectionCount;
use crate::context::ApiContext;
use crate::conversations::Conversations;
use crate::event_intake::EventIntake;
use crate::execs::Execs;
use crate::front::RequestFront;
use crate::heartbeats::Heartbeats;
use crate::listen_plan::{ListenPlan, ListenRefusal, ListenRequest, listen_plan};
use crate::listener::DaemonListener;
use crate::login_report;
use crate::monitor::{FindingCounter, Monitor, engine_probe, follower, upstream_probe};
use crate::otel::OtelTarget;
use crate::readiness::Readiness;
use crate::request_rate::RequestRate;
use crate::run_policy::RunPolicy;
use crate::runs::orchestrator::Orchestrator;
use crate::runs::service::RunService;
use crate::runs::{leftover_execs, sweeper};
use crate::settings::DaemonSettings;
use crate::stop_signal::StopSignal;
use crate::stream_count::StreamCount;
use crate::systemd;
use crate::tasks::Tasks;
use crate::tls::{self, TlsSetupError};
use crate::tokens::TokenPrincipals;
use crate::unix_socket::{DaemonSocket, SocketError, make_directory};
use crate::upkeep;
use crate::variable_values::VariableValues;
use crate::webhooks::Webhook;

/// Connections for reads of the database.
const READERS: usize = 4;
/// Time within which an earlier daemon must release the lock, and time between two tries.
const LOCK_WITHIN: Duration = Duration::from_secs(3);
const LOCK_AGAIN: Duration = Duration::from_millis(50);

/// Reason that the daemon does not start, or ends.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum DaemonError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Lock(#[from] DaemonLockError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tokens(#[from] TokenError),
    #[error(transparent)]
    RequestKeys(#[from] IdempotencyError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Control(#[from] ControlLogError),
    #[error(transparent)]
    Listen(#[from] ListenRefusal),
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot listen on {0}")]
    Bind(SocketAddr, #[source] io::Error),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the start cannot be recorded in the control log")]
    NotRecorded,
    #[error("{0} ended by itself, so the daemon ends; start it again, and report this with the log")]
    TaskEnded(&'static str),
}

/// A daemon that takes requests.
#[derive(Debug)]
pub struct RunningDaemon {
    pub(crate) context: Arc<ApiContext>,
    pub(crate) tasks: Tasks,
    addresses: Vec<SocketAddr>,
    /// Released last.
    _lock: DaemonLock,
}

/// Starts the daemon.
#[derive(Debug, Clone, Copy)]
pub struct Daemon;

impl Daemon {
    /// Starts the daemon: lock, database, control log, listeners.
    ///
    /// # Errors
    /// [`DaemonError`]; then no part of the daemon runs.
    pub async fn start(settings: &DaemonSettings) -> Result<RunningDaemon, DaemonError> {
        let policy = settings.runs.as_ref().and_then(|runs| runs.policy.clone());
        Self::start_with(settings, policy).await
    }

    /// Starts the daemon with a policy. Without the settings of runs, created runs stay in the queue.
    pub(crate) async fn start_with(
        settings: &DaemonSettings,
        policy: Option<RunPolicy>,
    ) -> Result<RunningDaemon, DaemonError> {
        let layout = Layout::open(&settings.state)?;
        let lock = take_lock(&layout).await?;
        let store = Store::open_with_readers(&layout.database(), READERS)?;
        let plan = plan(settings, TokenPrincipals(store.clone()).has_any().await?)?;
        let host = host(settings, &store, policy.is_some()).await?;
        let mut tasks = Tasks::default();
        let opened = Opened { layout, store, host: host.clone(), stop: tasks.signal() };
        let context = opened.context(settings, policy).await?;
        let bound = bind(settings, &plan, &context).await?;
        record_start(settings, &context).await?;
        for (listener, front, count) in bound.listeners {
            tasks.spawn("a listener", |stop| listener.run(front, count, stop));
        }
        spawn_tasks(settings, &context, host, &mut tasks);
        systemd::ready();
        Ok(RunningDaemon { context, tasks, addresses: bound.addresses, _lock: lock })
    }
}

/// Resources that the daemon has opened before it takes requests.
struct Opened {
    layout: Layout,
    store: Store,
    host: Option<Arc<Host>>,
    stop: StopSignal,
}

impl Opened {
    /// Makes the state that handlers share.
    async fn context(
        self,
        settings: &DaemonSettings,
        policy: Option<RunPolicy>,
    ) -> Result<Arc<ApiContext>, DaemonError> {
        let Self { layout, store, host, stop } = self;
        let limits = &settings.limits;
        let keys = Keys::open(layout.state())?;
        // Idempotency keys of requests that an earlier daemon was serving when it was killed.
        store.release_all_keys().await?;
        let per_minute = |number: u32| Mutex::new(RequestRate::new(f64::from(number) / 60.0, number));
        Ok(Arc::new(ApiContext {
            control: Arc::new(ControlLog::open(&layout, &keys)?),
            access: Access::new(TokenPrincipals(store.clone()), limits),
            monitor: Arc::new(Monitor::new(settings.metrics, settings.checks.clone(), store.newest_event().await?)),
            layout,
            store,
            keys,
            limits: *limits,
            readiness: Readiness::default(),
            loops: Arc::default(),
            events: EventIntake::new(&settings.upkeep.events),
            heartbeats: Heartbeats::default(),
            conversations: Conversations::new(limits),
            policy: policy.map(Arc::new),
            git: settings.git.clone(),
            variables: VariableValues::default(),
            work: Notify::new(),
            streams: StreamCount::new(limits.streams, limits.streams_per_token),
            waits: StreamCount::new(limits.waits, limits.waits_per_token),
            file_work: StreamCount::new(limits.file_work, limits.file_work_per_token),
            execs: Execs::new(host),
            creations: per_minute(limits.creations),
            chat_creations: per_minute(limits.chat_creations),
            chat_streams: StreamCount::new(limits.chats, limits.chats_per_token),
            followers: Arc::default(),
            chat: settings.chat,
            changes: per_minute(limits.changes),
            stop,
            origins: OnceLock::new(),
            viewer_files: settings.viewer_files,
            log: settings.log,
        }))
    }
}

/// Records the start, with the settings that decide permissions.
async fn record_start(settings: &DaemonSettings, context: &ApiContext) -> Result<(), DaemonError> {
    let configuration = json!({
        "behind_proxy": settings.behind_proxy,
        "listen": settings.listen,
        "otel": settings.upkeep.otel.iter().map(recorded_target).collect::<Vec<_>>(),
        "sandbox_enabled": context.policy.is_some(),
        "tls": settings.tls_cert.is_some(),
        "webhooks": settings.upkeep.webhooks.iter().map(recorded_webhook).collect::<Vec<_>>(),
    });
    let started =
        ControlEntry { operation: "daemon.start".to_owned(), after: Some(configuration), ..ControlEntry::default() };
    context.record_own(started).await.map(drop).map_err(|_| DaemonError::NotRecorded)
}

/// Starts the background tasks of the daemon.
fn spawn_tasks(settings: &DaemonSettings, context: &Arc<ApiContext>, host: Option<Arc<Host>>, tasks: &mut Tasks) {
    let reporter = Arc::clone(context);
    tasks.spawn("the report of logins", |stop| login_report::run(reporter, stop));
    let (store, monitor, loops) = (context.store.clone(), Arc::clone(&context.monitor), Arc::clone(&context.loops));
    tasks.spawn("the count of events", |stop| follower::run(store, monitor, loops, settings.log, stop));
    if let Some(orchestrator) = orchestrator(settings, context, host) {
        spawn_host_tasks(tasks, context, orchestrator.host());
        if let Some(upstream) = settings.runs.as_ref().and_then(|runs| runs.upstream.clone()) {
            let loops = Arc::clone(&context.loops);
            tasks.spawn("the probe of the upstream", |stop| upstream_probe::run(upstream, loops, settings.log, stop));
        }
        let of_chats = Arc::clone(context);
        tasks.spawn("the chats", |stop| abandoned::run(of_chats, stop));
        tasks.spawn("the orchestrator of runs", |stop| orchestrator.run(stop));
    }
    upkeep::start(tasks, context, &settings.upkeep, settings.behind_proxy.as_deref().unwrap_or_default());
    if let Some(time) = systemd::watchdog() {
        tasks.spawn("the watchdog", |stop| systemd::keep_alive(time, stop));
    }
}

impl RunningDaemon {
    /// Returns the TCP addresses, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a counter of the findings of reconciliations, for the metrics.
    #[must_use]
    pub fn finding_counter(&self) -> FindingCounter {
        FindingCounter(Arc::clone(&self.context.monitor))
    }

    /// Runs until `signal`, then stops gracefully.
    ///
    /// # Errors
    /// [`DaemonError::TaskEnded`]: a part has failed.
    pub async fn run_until(mut self, signal: impl Future<Output = ()>) -> Result<(), DaemonError> {
        let ended = tokio::select! {
            () = signal => None,
            ended = self.tasks.first_end() => Some(ended.unwrap_or("a task that panicked")),
        };
        self.stop().await;
        ended.map_or(Ok(()), |name| Err(DaemonError::TaskEnded(name)))
    }

    /// Refuses new work, finishes requests, ends streams. Requests that do not end in time are cut. Runs continue.
    pub async fn stop(self) {
        systemd::stopping();
        self.context.readiness.fail("daemon", "it is stopping");
        let Self { context, tasks, _lock, .. } = self;
        if !tasks.stop(context.limits.stop_time).await {
            (context.log)("some requests did not end in time and were cut");
        }
    }
}

/// Returns the part of a webhook that the control log records.
fn recorded_webhook(webhook: &Webhook) -> Value {
    json!({
        "allow_private": webhook.allow_private,
        "name": webhook.name,
        "target": webhook.target.to_string(),
    })
}

/// Returns the part of an OpenTelemetry target that the control log records.
fn recorded_target(target: &OtelTarget) -> Value {
    json!({ "name": target.name, "target": target.address.to_string() })
}

/// Starts the tasks that manage the host of runs.
fn spawn_host_tasks(tasks: &mut Tasks, context: &Arc<ApiContext>, host: &Arc<Host>) {
    let (probed, loops, log) = (Arc::clone(host), Arc::clone(&context.loops), context.log);
    let monitor = Arc::clone(&context.monitor);
    tasks.spawn("the probe of the engine", move |stop| engine_probe::run(probed, monitor, loops, log, stop));
    let of_sweep = (Arc::clone(context), Arc::clone(host));
    tasks.spawn("the sweep", |stop| sweeper::run(of_sweep.0, of_sweep.1, stop));
    let of_programs = (Arc::clone(context), Arc::clone(host));
    tasks.spawn("the programs in sandboxes", |stop| leftover_execs::run(of_programs.0, of_programs.1, stop));
}

/// Opens the host of runs, with the daemon's own handle to the database. If no runs may be created, earlier runs are
/// still managed, if the host can be opened.
async fn host(settings: &DaemonSettings, store: &Store, may_create: bool) -> Result<Option<Arc<Host>>, DaemonError> {
    let Some(runs) = &settings.runs else { return Ok(None) };
    match Host::open(&runs.host).await {
        Ok(host) => Ok(Some(Arc::new(Host { store: store.clone(), ..host }))),
        Err(error) if !may_create => {
            (settings.log)(&format!(
                "runs that an earlier daemon began are not looked after yet: {}",
                error_chain(&error)
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the orchestrator of runs.
fn orchestrator(settings: &DaemonSettings, context: &Arc<ApiContext>, host: Option<Arc<Host>>) -> Option<Orchestrator> {
    let (runs, host) = (settings.runs.as_ref()?, host?);
    let (planner, output_max, stop_grace) = (Arc::clone(&runs.planner), runs.output_max, runs.stop_grace);
    Some(Orchestrator::new(
        Arc::clone(context),
        RunService { host, planner, output_max, stop_grace, times: runs.times },
    ))
}

/// Takes the lock of the state directory. A daemon that was killed, or a child that it was starting, may hold it for a moment.
async fn take_lock(layout: &Layout) -> Result<DaemonLock, DaemonLockError> {
    let begun = Instant::now();
    loop {
        match DaemonLock::hold(layout.state()) {
            Err(DaemonLockError::Held(_)) if begun.elapsed() < LOCK_WITHIN => sleep(LOCK_AGAIN).await,
            result => return result,
        }
    }
}

/// Decides where to listen.
fn plan(settings: &DaemonSettings, has_token: bool) -> Result<ListenPlan, ListenRefusal> {
    listen_plan(&ListenRequest {
        listen: settings.listen.iter().map(String::as_str).collect(),
        has_certificate: settings.tls_cert.is_some(),
        has_key: settings.tls_key.is_some(),
        behind_proxy: settings.behind_proxy.as_deref(),
        has_token,
    })
}

/// Bound listeners.
struct Bound {
    listeners: Vec<(DaemonListener, Arc<RequestFront>, Arc<ConnectionCount>)>,
    addresses: Vec<SocketAddr>,
}

/// Binds all listeners.
async fn bind(settings: &DaemonSettings, plan: &ListenPlan, context: &Arc<ApiContext>) -> Result<Bound, DaemonError> {
    let limits = &settings.limits;
    let tls = settings.tls().map(|files| tls::read(&files)).transpose()?;
    make_directory(&settings.run_dir)?;
    let of_socket = || ConnectionCount::new(limits.connections, limits.connections);
    let front = |entrance, names| {
        let front = RequestFront::new(Arc::clone(context), api::router(context), entrance, names);
        if plan.proxy.is_some() && entrance == Entrance::Api { front.behind_proxy() } else { front }
    };
    let admin = DaemonSocket::bind(&settings.run_dir.join("admin.sock"), 0o600)?;
    let admin_front = front(Entrance::Admin, crate::request_source::Authorities::of_socket());
    // Everybody may connect: a token decides.
    let api = DaemonSocket::bind(&settings.run_dir.join("api.sock"), 0o666)?;
    let api_front = front(Entrance::Api, plan.socket_names());
    let mut bound = Bound {
        listeners: vec![
            (DaemonListener::Unix(admin), Arc::new(admin_front), of_socket()),
            (DaemonListener::Unix(api), Arc::new(api_front), of_socket()),
        ],
        addresses: Vec::new(),
    };
    // All clients of a proxy have its address.
    let per_address = if plan.proxy.is_some() { limits.connections } else { limits.connections_per_address };
    let count = ConnectionCount::new(limits.connections, per_address);
    let certified = tls.as_ref().map_or(&[][..], |tls| &tls.names);
    let mut origins = plan.socket_names().origins();
    for listen in &plan.tcp {
        let failed = |error| DaemonError::Bind(listen.address, error);
        let listener = TcpListener::bind(listen.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let names = plan.tcp_names(listen, address, certified);
        let own = names.origins();
        origins.extend(own.into_iter().filter(|origin| !origins.contains(origin)).collect::<Vec<_>>());
        let front = front(Entrance::Api, names);
        let front = if address.ip().is_unspecified() { front.with_reached_address(listen.scheme) } else { front };
        bound.addresses.push(address);
        bound.listeners.push((
            DaemonListener::Tcp(listener, tls.as_ref().map(|tls| tls.acceptor.clone())),
            Arc::new(front),
            Arc::clone(&count),
        ));
    }
    // They are set only here.
    let _ = context.origins.set(origins);
    Ok(bound)
}
