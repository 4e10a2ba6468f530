//! Policy of the daemon's runs, from the settings.
//!
//! Pure. The request sets the values of a run, else the settings for its agent and account, else those for the host. No
//! value is higher than in `limits_max`; a value that `limits_max` lacks is limited by the largest one that the
//! settings give to any run.

use sluice_daemon::grants::GrantPolicy;
use sluice_daemon::run_policy::{AccountPolicy, Graph, RunPolicy};
use sluice_daemon::stored_request::StoredLimits;
use sluice_runs::forbidden_mounts::ForbiddenPlaces;

use crate::agent_catalogue::CatalogueAgent;
use crate::settings::{AgentRunDefaults, DaemonRunSettings, RunDefaults};

/// The settings of runs: those of the host, and those of each agent.
pub(super) struct PolicyInput<'a> {
    /// Settings of the daemon's runs.
    pub(super) daemon: &'a DaemonRunSettings,
    /// Settings of `sluice run`.
    pub(super) host: &'a RunDefaults,
    /// Values of runs without an agent.
    pub(super) defaults: &'a AgentRunDefaults,
    /// Agents with the values of their runs.
    pub(super) agents: &'a [(CatalogueAgent, AgentRunDefaults)],
    /// Accounts that have profiles, with the values of their runs.
    pub(super) accounts: &'a [AccountDefaults],
    /// Places that no sandbox may see.
    pub(super) places: ForbiddenPlaces,
}

/// Values of runs that one account pays for.
pub(super) struct AccountDefaults {
    pub(super) account: String,
    /// Values of runs without an agent.
    pub(super) defaults: AgentRunDefaults,
    /// Agents with the values of their runs.
    pub(super) agents: Vec<(CatalogueAgent, AgentRunDefaults)>,
}

/// Returns the policy: the values that runs get, and the values that requests may set.
pub(super) fn policy(of: PolicyInput<'_>) -> RunPolicy {
    let PolicyInput { daemon, host, defaults, agents, accounts, places } = of;
    let every: Vec<_> = every(defaults, agents, accounts);
    let limits_max = limits_max(daemon, &every);
    RunPolicy {
        graphs: agents.iter().map(|(agent, defaults)| graph(agent, defaults)).collect(),
        default_image: host.image.clone(),
        images: daemon.images.clone(),
        projects: daemon.projects.clone(),
        grants: GrantPolicy { roots: daemon.grant_roots.clone(), forbidden: places, users: daemon.users.clone() },
        models: defaults.models.clone(),
        accounts: accounts.iter().map(of_account).collect(),
        account: host.account.to_string(),
        limits: limits(defaults),
        limits_max,
        run_time: daemon.run_deadline,
        max_cost: defaults.max_cost,
        max_cost_max: largest(daemon.limits_max.max_cost, every.iter().map(|it| it.max_cost)),
        hold: host.hold,
        running_max: daemon.max_running.host,
        owner_running_max: daemon.max_running.owner,
        project_running_max: daemon.max_running.project,
        queued_max: daemon.max_queued,
        on_cap: daemon.on_cap,
        ask_timeout: daemon.ask_timeout,
        second_person: daemon.second_person,
        session_approval_max: daemon.session_approval_max,
    }
}

fn of_account(own: &AccountDefaults) -> AccountPolicy {
    AccountPolicy {
        account: own.account.clone(),
        graphs: own.agents.iter().map(|(agent, defaults)| graph(agent, defaults)).collect(),
        models: own.defaults.models.clone(),
        limits: limits(&own.defaults),
        max_cost: own.defaults.max_cost,
    }
}

fn graph(agent: &CatalogueAgent, defaults: &AgentRunDefaults) -> Graph {
    Graph {
        graph_id: agent.agent_id.clone(),
        name: agent.name.clone(),
        description: agent.description.clone(),
        image: agent.image.clone(),
        takes_one_message: agent.takes_message(),
        output: agent.output,
        models: defaults.models.clone(),
        limits: limits(defaults),
        max_cost: defaults.max_cost,
    }
}

fn limits(defaults: &AgentRunDefaults) -> StoredLimits {
    StoredLimits {
        timeout_s: defaults.timeout.as_secs().max(1),
        memory: defaults.limits.memory,
        cpu_millis: defaults.limits.cpu_millis,
        pids: defaults.limits.pids,
        max_calls: defaults.max_calls,
        max_tokens: defaults.max_tokens,
        max_concurrency: defaults.max_concurrency,
        rate: defaults.rate.clone(),
        idle_s: None,
        workspace: defaults.workspace,
    }
}

/// Returns the highest limits of requests.
fn limits_max(daemon: &DaemonRunSettings, every: &[&AgentRunDefaults]) -> StoredLimits {
    let stated = &daemon.limits_max;
    let most = |stated: Option<u64>, of: fn(&AgentRunDefaults) -> u64| {
        stated.unwrap_or_else(|| every.iter().map(|it| of(it)).max().unwrap_or_default())
    };
    StoredLimits {
        timeout_s: stated.timeout.unwrap_or(daemon.run_deadline).as_secs(),
        memory: most(stated.memory, |it| it.limits.memory),
        cpu_millis: most(stated.cpu_millis, |it| it.limits.cpu_millis),
        pids: most(stated.pids, |it| it.limits.pids),
        max_calls: largest(stated.max_calls, every.iter().map(|it| it.max_calls)),
        max_tokens: largest(stated.max_tokens, every.iter().map(|it| it.max_tokens)),
        max_concurrency: largest(stated.max_concurrency, every.iter().map(|it| it.max_concurrency)),
        rate: stated.rate.clone().or_else(|| {
            let number = |rate: &String| rate.trim_end_matches("/s").parse::<u64>().ok();
            let rates = every.iter().map(|it| it.rate.as_ref().and_then(number));
            largest(None, rates).map(|rate| format!("{rate}/s"))
        }),
        idle_s: None,
        workspace: most(stated.workspace, |it| it.workspace),
    }
}

/// Returns the values of all runs that the settings know.
fn every<'a>(
    defaults: &'a AgentRunDefaults,
    agents: &'a [(CatalogueAgent, AgentRunDefaults)],
    accounts: &'a [AccountDefaults],
) -> Vec<&'a AgentRunDefaults> {
    let of_accounts = accounts.iter().map(|own| &own.defaults);
    let of_agents = agents.iter().chain(accounts.iter().flat_map(|own| &own.agents)).map(|(_, defaults)| defaults);
    std::iter::once(defaults).chain(of_accounts).chain(of_agents).collect()
}

/// Returns the stated maximum, else the largest default; `None` if one of the defaults means no limit.
fn largest<T: Ord>(stated: Option<T>, defaults: impl Iterator<Item = Option<T>>) -> Option<T> {
    stated.or_else(|| defaults.collect::<Option<Vec<T>>>()?.into_iter().max())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_runs::blueprint::SandboxLimits;

    use super::*;
    use crate::agent_catalogue;
    use crate::settings::{HighestLimits, SettingLayers, Settings};

    fn defaults(memory: u64, max_calls: Option<u64>) -> AgentRunDefaults {
        AgentRunDefaults {
            timeout: Duration::from_secs(120),
            limits: SandboxLimits { memory, cpu_millis: 1000, pids: 256 },
            models: vec!["m".to_owned()],
            max_calls,
            max_tokens: None,
            max_concurrency: None,
            rate: max_calls.map(|rate| format!("{rate}/s")),
            max_cost: max_calls.map(|calls| calls.cast_signed() * 1_000_000),
            workspace: 10 << 30,
            sidecar_flags: Vec::new(),
        }
    }

    fn made(
        highest: HighestLimits,
        host: &AgentRunDefaults,
        agents: &[(CatalogueAgent, AgentRunDefaults)],
    ) -> RunPolicy {
        let none = |_: &str| None;
        let layers = SettingLayers::collect(&Default::default(), none, Some(std::path::Path::new("/dev/null")));
        let layers = layers.expect("the defaults are right");
        let Settings { run, .. } = layers.settings().expect("the defaults are right");
        let daemon = DaemonRunSettings { limits_max: highest, ..layers.daemon_runs().expect("the defaults are right") };
        let places = ForbiddenPlaces::default();
        policy(PolicyInput { daemon: &daemon, host: &run, defaults: host, agents, accounts: &[], places })
    }

    fn agents(memory: u64, max_calls: Option<u64>) -> Vec<(CatalogueAgent, AgentRunDefaults)> {
        agent_catalogue::catalogue().into_iter().take(1).map(|agent| (agent, defaults(memory, max_calls))).collect()
    }

    #[test]
    fn the_largest_default_is_the_maximum() {
        let policy = made(HighestLimits::default(), &defaults(1 << 30, Some(5)), &agents(2 << 30, Some(9)));
        let StoredLimits { timeout_s, memory, max_calls, rate, .. } = policy.limits_max.clone();
        assert_eq!((timeout_s, memory, max_calls, rate.as_deref()), (7200, 2 << 30, Some(9), Some("9/s")));
        assert_eq!((policy.max_cost, policy.max_cost_max), (Some(5_000_000), Some(9_000_000)));
        assert_eq!((policy.limits.memory, policy.graphs[0].limits.memory), (1 << 30, 2 << 30));
        let open = made(HighestLimits::default(), &defaults(1 << 30, None), &agents(2 << 30, Some(9)));
        assert_eq!((open.limits_max.max_calls, open.max_cost_max), (None, None), "a run of the host has no limit");
    }

    #[test]
    fn a_stated_maximum_takes_the_place_of_defaults() {
        let highest = HighestLimits {
            timeout: Some(Duration::from_secs(20_000)),
            memory: Some(8 << 30),
            max_calls: Some(3),
            max_cost: Some(7),
            workspace: Some(20 << 30),
            ..HighestLimits::default()
        };
        let policy = made(highest, &defaults(1 << 30, Some(5)), &agents(2 << 30, None));
        let StoredLimits { timeout_s, memory, pids, max_calls, .. } = policy.limits_max.clone();
        assert_eq!((timeout_s, memory, pids, max_calls), (20_000, 8 << 30, 256, Some(3)));
        assert_eq!((policy.limits.workspace, policy.limits_max.workspace), (10 << 30, 20 << 30));
        assert_eq!(policy.max_cost_max, Some(7));
        assert_eq!(policy.deadline(&policy.limits_max), Duration::from_secs(20_000), "longer than run_deadline");
        assert_eq!(policy.deadline(&policy.limits), Duration::from_secs(7200));
    }

    #[test]
    fn images_are_found_by_name_and_run_by_digest() {
        let mut policy = made(HighestLimits::default(), &defaults(1 << 30, None), &[]);
        policy.images = ["tools:1@sha256:aa", "other@sha256:bb", "twice@sha256:cc", "twice@sha256:dd", "sha256:ee"]
            .map(str::to_owned)
            .into();
        for (asked, found) in [
            ("tools:1", Some("tools:1@sha256:aa")),
            ("tools:1@sha256:aa", Some("tools:1@sha256:aa")),
            ("other", Some("other@sha256:bb")),
            ("twice", None),
            ("twice@sha256:dd", Some("twice@sha256:dd")),
            ("sha256:ee", Some("sha256:ee")),
            ("tools", None),
            ("tools:1@sha256:ab", None),
            ("", None),
            ("sluice-runtime:latest", Some("sluice-runtime:latest")),
        ] {
            assert_eq!(policy.image(asked), found, "{asked}");
        }
    }
}
