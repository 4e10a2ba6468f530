//! The process of the daemon: what it holds, how it starts, how it stops.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
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
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::access::{Access, Entrance};
use crate::api;
use crate::connection_count::ConnectionCount;
use crate::context::ApiContext;
use crate::execs::Execs;
use crate::front::Front;
use crate::listen_plan::{ListenPlan, ListenRefusal, ListenRequest, listen_plan};
use crate::listener::Listener;
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
use crate::tls::{self, TlsError};
use crate::tokens::Tokens;
use crate::unix_socket::{ListeningSocket, SocketError, make_directory};
use crate::variable_values::VariableValues;

/// Connections for reads of the database.
const READERS: usize = 4;
/// Period in which failed logins are counted for one line of the control log.
const LOGIN_REPORT: Duration = Duration::from_secs(60);

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
    Tls(#[from] TlsError),
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
    tasks: Tasks,
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
    /// [`DaemonError`]; then nothing of it runs.
    pub async fn start(settings: &DaemonSettings) -> Result<RunningDaemon, DaemonError> {
        let policy = settings.runs.as_ref().map(|runs| runs.policy.clone());
        Self::start_with(settings, policy).await
    }

    /// Starts the daemon with a policy. Without the settings of runs, what is created stays in the queue.
    pub(crate) async fn start_with(
        settings: &DaemonSettings,
        policy: Option<RunPolicy>,
    ) -> Result<RunningDaemon, DaemonError> {
        let layout = Layout::open(&settings.state)?;
        let lock = take_lock(&layout)?;
        let store = Store::open_with_readers(&layout.database(), READERS)?;
        let tokens = Tokens(store.clone());
        let plan = plan(settings, tokens.has_any().await?)?;
        let keys = Keys::open(layout.state())?;
        let control = Arc::new(ControlLog::open(&layout, &keys)?);
        let access = Access::new(tokens, &settings.limits);
        let host = host(settings, &store).await?;
        let mut tasks = Tasks::default();
        let limits = &settings.limits;
        // Those of requests that a daemon was serving when it was killed.
        store.release_all_keys().await?;
        let context = Arc::new(ApiContext {
            layout,
            store,
            keys,
            access,
            control,
            limits: settings.limits,
            readiness: Readiness::default(),
            policy: policy.map(Arc::new),
            variables: VariableValues::default(),
            work: Notify::new(),
            streams: StreamCount::new(limits.streams, limits.streams_per_token),
            waits: StreamCount::new(limits.waits, limits.waits),
            file_work: StreamCount::new(limits.file_work, limits.file_work_per_token),
            execs: Execs::new(host.clone()),
            creations: Mutex::new(RequestRate::new(f64::from(limits.creations) / 60.0, limits.creations)),
            stop: tasks.signal(),
            log: settings.log,
        });
        let bound = bind(settings, &plan, &context).await?;
        let configuration = json!({
            "behind_proxy": settings.behind_proxy,
            "listen": settings.listen,
            "sandbox_enabled": settings.runs.is_some(),
            "tls": settings.tls_cert.is_some(),
        });
        let started = ControlEntry {
            operation: "daemon.start".to_owned(),
            after: Some(configuration),
            ..ControlEntry::default()
        };
        context.record_own(started).await.map_err(|_| DaemonError::NotRecorded)?;
        let addresses = bound.addresses;
        for (listener, front, count) in bound.listeners {
            tasks.spawn("a listener", |stop| listener.run(front, count, stop));
        }
        let reporter = Arc::clone(&context);
        tasks.spawn("the count of failed logins", |stop| report_failed_logins(reporter, stop));
        if let Some((orchestrator, host)) = orchestrator(settings, &context, host) {
            let of_sweep = (Arc::clone(&context), Arc::clone(&host));
            tasks.spawn("the sweep", |stop| sweeper::run(of_sweep.0, of_sweep.1, stop));
            let context = Arc::clone(&context);
            tasks.spawn("the programs in sandboxes", |stop| leftover_execs::run(context, host, stop));
            tasks.spawn("the orchestrator of runs", |stop| orchestrator.run(stop));
        }
        if let Some(time) = systemd::watchdog() {
            tasks.spawn("the watchdog", |stop| systemd::keep_alive(time, stop));
        }
        systemd::ready();
        Ok(RunningDaemon { context, tasks, addresses, _lock: lock })
    }
}

impl RunningDaemon {
    /// Returns the TCP addresses, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
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

    /// Refuses new work, finishes requests, ends streams. What has not ended in time is cut. Runs go on.
    pub async fn stop(self) {
        systemd::stopping();
        self.context.readiness.fail("daemon", "it is stopping");
        let Self { context, tasks, _lock, .. } = self;
        if !tasks.stop(context.limits.stop_time).await {
            (context.log)("some requests did not end in time and were cut");
        }
    }
}

/// Opens the host of runs, with the daemon's own handle to the database.
async fn host(settings: &DaemonSettings, store: &Store) -> Result<Option<Arc<Host>>, DaemonError> {
    let Some(runs) = &settings.runs else { return Ok(None) };
    Ok(Some(Arc::new(Host { store: store.clone(), ..Host::open(&runs.host).await? })))
}

/// Returns the orchestrator of runs, and their host.
fn orchestrator(
    settings: &DaemonSettings,
    context: &Arc<ApiContext>,
    host: Option<Arc<Host>>,
) -> Option<(Orchestrator, Arc<Host>)> {
    let (runs, policy, host) = (settings.runs.as_ref()?, context.policy.as_ref()?, host?);
    let (planner, output_max, stop_grace) = (Arc::clone(&runs.planner), runs.output_max, runs.stop_grace);
    let service = RunService { host: Arc::clone(&host), planner, output_max, stop_grace };
    Some((Orchestrator::new(Arc::clone(context), Arc::clone(policy), service), host))
}

/// Takes the lock of the state directory.
fn take_lock(layout: &Layout) -> Result<DaemonLock, DaemonError> {
    Ok(DaemonLock::hold(layout.state())?)
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
    listeners: Vec<(Listener, Arc<Front>, Arc<ConnectionCount>)>,
    addresses: Vec<SocketAddr>,
}

/// Binds all listeners.
async fn bind(settings: &DaemonSettings, plan: &ListenPlan, context: &Arc<ApiContext>) -> Result<Bound, DaemonError> {
    let limits = &settings.limits;
    let tls = settings.tls().map(|files| tls::read(&files)).transpose()?;
    make_directory(&settings.run_dir)?;
    let of_socket = || ConnectionCount::new(limits.connections, limits.connections);
    let front = |entrance, names| {
        let front = Front::new(Arc::clone(context), api::router(context), entrance, names);
        if plan.proxy.is_some() && entrance == Entrance::Api { front.behind_proxy() } else { front }
    };
    let admin = ListeningSocket::bind(&settings.run_dir.join("admin.sock"), 0o600)?;
    let admin_front = front(Entrance::Admin, crate::request_source::Authorities::of_socket());
    // Everybody may connect: a token decides.
    let api = ListeningSocket::bind(&settings.run_dir.join("api.sock"), 0o666)?;
    let api_front = front(Entrance::Api, plan.socket_names());
    let mut bound = Bound {
        listeners: vec![
            (Listener::Unix(admin), Arc::new(admin_front), of_socket()),
            (Listener::Unix(api), Arc::new(api_front), of_socket()),
        ],
        addresses: Vec::new(),
    };
    // All clients of a proxy have its address.
    let per_address = if plan.proxy.is_some() { limits.connections } else { limits.connections_per_address };
    let count = ConnectionCount::new(limits.connections, per_address);
    let certified = tls.as_ref().map_or(&[][..], |tls| &tls.names);
    for listen in &plan.tcp {
        let failed = |error| DaemonError::Bind(listen.address, error);
        let listener = TcpListener::bind(listen.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let front = front(Entrance::Api, plan.tcp_names(listen, address, certified));
        let front = if address.ip().is_unspecified() { front.with_reached_address(listen.scheme) } else { front };
        bound.addresses.push(address);
        bound.listeners.push((
            Listener::Tcp(listener, tls.as_ref().map(|tls| tls.acceptor.clone())),
            Arc::new(front),
            Arc::clone(&count),
        ));
    }
    Ok(bound)
}

/// Writes the number of failed logins to the control log, at most once in a minute.
async fn report_failed_logins(context: Arc<ApiContext>, mut stop: StopSignal) {
    let mut ticks = interval_at(Instant::now() + LOGIN_REPORT, LOGIN_REPORT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_last = tokio::select! {
            () = stop.stopped() => true,
            _ = ticks.tick() => false,
        };
        let failures = context.access.take_failures();
        if failures > 0 {
            let entry = ControlEntry {
                operation: "login.failed".to_owned(),
                after: Some(json!({ "count": failures })),
                ..ControlEntry::default()
            };
            if context.record_own(entry).await.is_err() {
                context.readiness.fail("control log", "it cannot be written");
            }
        }
        if is_last {
            return;
        }
    }
}
