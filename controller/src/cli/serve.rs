//! `sluice serve`: the daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sluice_contract::exit;
use sluice_daemon::event_limits::EventLimits;
use sluice_daemon::run_policy::{Graph, RunPolicy};
use sluice_daemon::stored_request::RunLimits;
use sluice_daemon::{Daemon, DaemonError, DaemonSettings, HttpLimits, RunSettings, UpkeepSettings};
use sluice_runs::sandbox_user;
use sluice_state::events::EventQuota;
use tokio::signal::unix::{SignalKind, signal};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::say;
use super::run::seccomp;
use crate::agent_catalogue::Agent;
use crate::settings::{ServeSettings, Settings};

/// Longest time from the claim of a run to its end, retries included.
const RUN_TIME: Duration = Duration::from_secs(2 * 3600);

mod planner;

use planner::SettingsPlanner;

const EXAMPLES: &str = "\
Examples:
  sluice serve                                          on 127.0.0.1:8787 and in /run/sluice
  curl --unix-socket /run/sluice/admin.sock http://localhost/api/v1/budgets      as root, without a token
  sluice serve --behind-proxy https://sluice.example.org
  sluice serve --listen 0.0.0.0:8787 --tls-cert sluice.crt --tls-key sluice.key";

/// Runs the daemon: an HTTP API over the state directory, in the foreground, until SIGTERM or SIGINT.
///
/// Root has access through admin.sock; all others, and TCP, need a token. Beyond loopback addresses it starts only with a
/// token in the database, and with TLS or behind a proxy. Runs go on when it ends.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = "Exit codes: 0 stopped by a signal; 1 it could not start, or a part of it failed; \
                                                2 usage, or addresses that are not safe.")]
pub(super) struct ServeArgs {
    /// A TCP address, HOST:PORT; repeat for more [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// The directory of the sockets, for this user alone [default: /run/sluice]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<String>,
    /// The certificate of the TCP addresses and those that certify it, as PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Its key, as PEM, readable by its owner alone
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// The origin of a proxy on this host that ends TLS, such as https://sluice.example.org
    #[arg(long, value_name = "ORIGIN")]
    behind_proxy: Option<String>,
    #[command(flatten)]
    host: HostArgs,
}

impl ServeArgs {
    fn given(&self) -> BTreeMap<&'static str, String> {
        let listen = (!self.listen.is_empty()).then(|| self.listen.join(" "));
        [
            ("listen", &listen),
            ("run_dir", &self.run_dir),
            ("tls_cert", &self.tls_cert),
            ("tls_key", &self.tls_key),
            ("behind_proxy", &self.behind_proxy),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect()
    }
}

pub(super) async fn run(args: &ServeArgs) -> Result<ExitCode, CommandError> {
    let layers = args.host.layers(args.given()).map_err(|error| CommandError::usage(&error))?;
    let serve = layers.serve().map_err(|error| CommandError::usage(&error))?;
    let all = layers.settings().map_err(|error| CommandError::usage(&error))?;
    let has_key = all.litellm.upstream.is_some() && all.litellm.key.is_some();
    if !serve.sandbox_enabled {
        say("no sandboxes can be created: sandbox_enabled = true (SLUICE_SANDBOX_ENABLED) switches them on");
    } else if !has_key {
        say("no sandboxes can be created: they need upstream and key_file");
    }
    let upkeep = upkeep(&serve);
    let settings = DaemonSettings {
        state: layers.state_dir(),
        run_dir: serve.run_dir,
        listen: serve.listen,
        tls_cert: serve.tls_cert,
        tls_key: serve.tls_key,
        behind_proxy: serve.behind_proxy,
        runs: Some(runs(all, serve.sandbox_enabled && has_key)?),
        limits: HttpLimits::default(),
        upkeep,
        log: say,
    };
    let failed = |error: std::io::Error| CommandError::failed(&error);
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let running = Daemon::start(&settings).await.map_err(|error| match &error {
        DaemonError::Listen(_) | DaemonError::Tls(_) => CommandError::usage(&error),
        _ => CommandError::failed(&error),
    })?;
    say(&places(running.addresses(), settings.tls_cert.is_some(), &settings.run_dir));
    let stopped = running.run_until(async {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    stopped.await.map_err(|error| CommandError::new(exit::FAILED, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what is kept, and the webhooks. One that may go to any address is reported at each start.
fn upkeep(serve: &ServeSettings) -> UpkeepSettings {
    for webhook in serve.webhooks.iter().filter(|webhook| webhook.allow_private) {
        say(&format!(
            "webhook {} may connect to private and loopback addresses (allow_private): whoever answers for {} gets events",
            webhook.name, webhook.target
        ));
    }
    let limits = EventLimits::default().with_rate(serve.event_rate);
    let quota = EventQuota { events: u64::from(serve.events_per_run), ..limits.quota };
    UpkeepSettings {
        record_keep: serve.record_keep,
        event_keep: serve.event_keep,
        events: EventLimits { quota, ..limits },
        webhooks: serve.webhooks.clone(),
    }
}

fn runs(settings: Settings, may_create: bool) -> Result<RunSettings, CommandError> {
    let seccomp = seccomp::profile(&settings).map_err(|error| CommandError::usage(&error))?;
    let sandbox_users = sandbox_user::DEFAULT_UIDS.parse().expect("a test reads it");
    Ok(RunSettings {
        policy: may_create.then(|| policy(&settings)),
        host: settings.host.clone(),
        output_max: settings.run.output_max as u64,
        stop_grace: settings.run.stop_grace,
        planner: Arc::new(SettingsPlanner { settings, seccomp, sandbox_users }),
    })
}

/// Returns what runs may be.
fn policy(settings: &Settings) -> RunPolicy {
    let defaults = &settings.run;
    let limits = RunLimits {
        timeout_s: defaults.timeout.as_secs(),
        memory: defaults.limits.memory,
        cpu_millis: defaults.limits.cpu_millis,
        pids: defaults.limits.pids,
        max_calls: None,
        max_tokens: None,
        max_concurrency: None,
        rate: None,
    };
    let graph = |agent: &Agent| Graph {
        graph_id: agent.agent_id.clone(),
        name: agent.name.clone(),
        description: agent.description.clone(),
        image: agent.image.clone(),
        takes_one_message: agent.takes_message(),
    };
    RunPolicy {
        graphs: settings.agents.iter().map(graph).collect(),
        default_image: defaults.image.clone(),
        images: Vec::new(),
        models: defaults.models.clone(),
        account: defaults.account.to_string(),
        limits_max: RunLimits { timeout_s: RUN_TIME.as_secs(), ..limits.clone() },
        limits,
        idle: Duration::from_secs(600),
        run_time: RUN_TIME,
        max_cost: defaults.max_cost,
        hold: defaults.hold,
        running_max: 20,
        owner_running_max: 20,
        project_running_max: 5,
        queued_max: 1000,
    }
}

/// Returns where the daemon listens.
fn places(addresses: &[std::net::SocketAddr], tls: bool, run_dir: &Path) -> String {
    let scheme = if tls { "https" } else { "http" };
    let tcp = addresses.iter().map(|address| format!("{scheme}://{address}"));
    let sockets = ["admin.sock", "api.sock"].map(|name| run_dir.join(name).display().to_string());
    let all: Vec<_> = tcp.chain(sockets).collect();
    format!("listening on {}", all.join(", "))
}
