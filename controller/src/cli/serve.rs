//! `sluice serve`: the daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use sluice_contract::exit;
use sluice_daemon::event_limits::EventLimits;
use sluice_daemon::monitor::{HostCheck, MetricsReaders};
use sluice_daemon::runs::watchdog::RunTimes;
use sluice_daemon::{Daemon, DaemonError, DaemonSettings, HttpLimits, RunSettings, UpkeepSettings};
use sluice_runs::forbidden_mounts::ForbiddenPlaces;
use sluice_state::events::EventQuota;
use sluice_state::layout::Layout;
use tokio::signal::unix::{SignalKind, signal};

use super::error::CommandError;
use super::forbidden_places::{forbidden_places, real_path};
use super::host_args::HostArgs;
use super::output::say;
use super::run::{background, seccomp};
use crate::agent_catalogue::CatalogueAgent;
use crate::git_home::git_home;
use crate::preflight::{Check, CheckStatus, daemon_preflight};
use crate::settings::{AgentRunDefaults, ServeSettings, SettingError, SettingLayers, Settings};

mod planner;
mod policy;

use planner::SettingsPlanner;
use policy::AccountDefaults;

const EXAMPLES: &str = "\
Examples:
  sluice serve                                          on 127.0.0.1:8787 and in /run/sluice
  curl --unix-socket /run/sluice/admin.sock http://localhost/api/v1/budgets      as root, without a token
  sluice serve --behind-proxy https://sluice.example.org
  sluice serve --listen 0.0.0.0:8787 --tls-cert sluice.crt --tls-key sluice.key";

/// Runs the daemon: an HTTP API over the state directory, in the foreground, until SIGTERM or SIGINT.
///
/// Root has access through admin.sock; all others, and TCP, need a token. Beyond loopback addresses it starts only with TLS
/// and with a token in the database. Runs go on when it ends.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = "Exit codes: 0 stopped by a signal; 1 it could not start, since a check failed or for another reason, or a part of it failed; \
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
    /// Key of the certificate, as PEM, readable by its owner alone
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
    let (litellm, records) = (all.litellm.clone(), all.record);
    let creates = serve.sandbox_enabled && has_key;
    let (runs, checks) = runs(args, &layers, all, &serve, creates).await?;
    let upkeep = upkeep(&serve);
    let settings = DaemonSettings {
        state: layers.state_dir(),
        run_dir: serve.run_dir,
        git: git_home(&layers.state_dir()),
        listen: serve.listen,
        tls_cert: serve.tls_cert,
        tls_key: serve.tls_key,
        behind_proxy: serve.behind_proxy,
        metrics: if serve.metrics_public { MetricsReaders::Everyone } else { MetricsReaders::WithRole },
        checks: checks.iter().map(|check| HostCheck { name: check.name, status: check.status.name() }).collect(),
        viewer_files: serve.viewer_files,
        chat: serve.chat,
        runs: Some(runs),
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
    let layout = Layout::open(&settings.state).map_err(|error| CommandError::failed(&error))?;
    background::start(&litellm, records, layout, Some(running.finding_counter()));
    let stopped = running.run_until(async {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    stopped.await.map_err(|error| CommandError::new(exit::FAILED, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the retention settings, and the webhooks. A webhook that may go to any address is reported at each start.
fn upkeep(serve: &ServeSettings) -> UpkeepSettings {
    for webhook in serve.webhooks.iter().filter(|webhook| webhook.allow_private) {
        say(&format!(
            "webhook {} may connect to private and loopback addresses (allow_private): the server that answers for {} \
             gets events",
            webhook.name, webhook.target
        ));
    }
    let limits = EventLimits::default().with_rate(serve.event_rate);
    let quota = EventQuota { events: u64::from(serve.events_per_run), ..limits.quota };
    UpkeepSettings {
        record_keep: serve.record_keep,
        event_keep: serve.event_keep,
        events: EventLimits { quota, disk_free_min: serve.event_disk_free, ..limits },
        webhooks: serve.webhooks.clone(),
        guardian: serve.guardian.clone(),
        otel: serve.otel.clone(),
    }
}

/// Returns the settings of runs, and the checks of the host. If runs may be created, a failed check is an error,
/// because each run would fail.
async fn runs(
    args: &ServeArgs,
    layers: &SettingLayers,
    settings: Settings,
    serve: &ServeSettings,
    may_create: bool,
) -> Result<(RunSettings, Vec<Check>), CommandError> {
    let usage = |error| CommandError::usage(&error);
    let daemon = layers.daemon_runs().map_err(usage)?;
    let seccomp = seccomp::profile(&settings).map_err(|error| CommandError::usage(&error))?;
    let checks = if may_create { daemon_preflight(&settings, &daemon.users, git_home).await } else { Vec::new() };
    judge(&checks)?;
    let agents = agents_of(args, &settings, None).map_err(usage)?;
    let accounts = accounts_of(args, layers, &settings).map_err(usage)?;
    let policy = policy::policy(policy::PolicyInput {
        daemon: &daemon,
        host: &settings.run,
        defaults: &layers.agent_run_defaults().map_err(usage)?,
        agents: &agents,
        accounts: &accounts,
        places: places_of(&settings, serve),
    });
    let of_agents = |agents: Vec<(CatalogueAgent, AgentRunDefaults)>| {
        agents.into_iter().map(|(agent, own)| (agent.agent_id, own.sidecar_flags)).collect()
    };
    let agent_flags: BTreeMap<_, _> = of_agents(agents);
    let account_flags: BTreeMap<_, BTreeMap<_, _>> =
        accounts.into_iter().map(|own| (own.account, of_agents(own.agents))).collect();
    let all_flags = account_flags.values().chain([&agent_flags]).flat_map(BTreeMap::values);
    for flags in all_flags.chain([&settings.run.sidecar_flags]) {
        planner::check_metadata(flags).map_err(|error| CommandError::usage(&error))?;
    }
    let runs = RunSettings {
        policy: may_create.then_some(policy),
        host: settings.host.clone(),
        upstream: settings.litellm.upstream.clone().filter(|_| may_create),
        output_max: settings.run.output_max as u64,
        stop_grace: settings.run.stop_grace,
        times: RunTimes {
            stale_start: daemon.stale_start,
            idle: daemon.idle,
            stuck: daemon.stuck,
            heartbeat: daemon.heartbeat,
        },
        planner: Arc::new(SettingsPlanner {
            settings,
            seccomp,
            sandbox_users: daemon.users,
            agent_flags,
            account_flags,
        }),
    };
    Ok((runs, checks))
}

/// Returns the accounts that have profiles, with the values of their runs.
fn accounts_of(
    args: &ServeArgs,
    layers: &SettingLayers,
    settings: &Settings,
) -> Result<Vec<AccountDefaults>, SettingError> {
    let of_account = |account: &str| -> Result<_, SettingError> {
        let own = args.host.collect([("account", account.to_owned())].into())?;
        Ok(AccountDefaults {
            account: account.to_owned(),
            defaults: own.agent_run_defaults()?,
            agents: agents_of(args, settings, Some(account))?,
        })
    };
    layers.profile_accounts().map(of_account).collect()
}

/// Returns the agents with the values of their runs: with the profiles of the agent and of the account, and the agent's
/// needs according to the catalogue.
fn agents_of(
    args: &ServeArgs,
    settings: &Settings,
    account: Option<&str>,
) -> Result<Vec<(CatalogueAgent, AgentRunDefaults)>, SettingError> {
    let values = settings.agents.iter().map(|agent| {
        let mut named = BTreeMap::from([("agent", agent.agent_id.clone())]);
        named.extend(account.map(|account| ("account", account.to_owned())));
        Ok((agent.clone(), args.host.collect(named)?.agent_run_defaults()?))
    });
    values.collect()
}

/// Returns the places of this host that no sandbox of the daemon may see.
fn places_of(settings: &Settings, serve: &ServeSettings) -> ForbiddenPlaces {
    let mut places = forbidden_places(settings);
    places.sockets = Some(real_path(&serve.run_dir));
    places
}

/// Reports the checks before a start.
///
/// # Errors
/// A check says that each run would fail.
fn judge(checks: &[Check]) -> Result<(), CommandError> {
    let with = |status| checks.iter().filter(move |check| check.status == status);
    for check in with(CheckStatus::Warn) {
        say(&format!("warning: {}: {}", check.name, check.detail));
    }
    let faults: Vec<_> = with(CheckStatus::Fail).map(|check| format!("{}: {}", check.name, check.detail)).collect();
    if faults.is_empty() {
        return Ok(());
    }
    let message = format!("each run would fail, so the daemon does not start: {}", faults.join("; "));
    Err(CommandError { code: exit::FAILED, message })
}

/// Returns the message with the addresses and sockets that the daemon listens on.
fn places(addresses: &[std::net::SocketAddr], tls: bool, run_dir: &Path) -> String {
    let scheme = if tls { "https" } else { "http" };
    let tcp = addresses.iter().map(|address| format!("{scheme}://{address}"));
    let sockets = ["admin.sock", "api.sock"].map(|name| run_dir.join(name).display().to_string());
    let all: Vec<_> = tcp.chain(sockets).collect();
    format!("listening on {}", all.join(", "))
}
