//! Whether this machine can do what is asked of it: a list, each with what to do about it.

use serde::Serialize;

use crate::engine::Facts;

mod budgets;
mod checks;
mod litellm;
mod probe;

pub use checks::preflight;
pub use probe::GRAPH;

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What came of it.
    pub status: Status,
    /// What was found; or what is wrong and what to do.
    pub detail: String,
    /// The budget at LiteLLM that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A budget at LiteLLM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Whose it is: `customer`, `key`, `team`, `team_member`, `user` and so on.
    pub of: String,
    /// Its limit; null where LiteLLM does not give it.
    pub limit_usd: Option<String>,
    /// What is spent of it; null where LiteLLM does not say.
    pub spent_usd: Option<String>,
    /// When it begins anew, as LiteLLM writes it; null where that is not known, or never.
    pub resets: Option<String>,
    /// Whether LiteLLM refuses calls for it.
    pub is_used_up: bool,
}

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Pass,
    /// It works, and could be better.
    Warn,
    /// Runs would not start.
    Fail,
    /// It could not be asked, since something before it failed.
    Skipped,
}

/// Why an engine cannot hold a sandbox as we promise it, if so.
#[must_use]
pub fn unfit(facts: &Facts) -> Option<String> {
    let option = |name: &str| facts.security_options.iter().any(|option| option.contains(name));
    let missing: Vec<_> = [
        (option("name=seccomp"), "seccomp"),
        (facts.memory_limit, "memory limits"),
        (facts.swap_limit || facts.cgroup_version == "2", "swap limits"),
        (facts.cpu_quota, "processor quotas"),
        (facts.pids_limit, "process limits"),
        (!facts.init_binary.is_empty(), "an init process (docker-init)"),
    ]
    .into_iter()
    .filter_map(|(there, name)| (!there).then_some(name))
    .collect();
    if option("name=userns") || option("name=rootless") {
        return Some(
            "it maps users; the workspace belongs to user 1001 of the host, so run it without userns-remap".into(),
        );
    }
    (!missing.is_empty())
        .then(|| format!("it has no {}; enable them in the kernel (cgroups), then restart it", missing.join(", no ")))
}

impl Status {
    /// The word in front of a line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> Facts {
        Facts {
            version: "20.10.24".into(),
            cgroup_version: "2".into(),
            memory_limit: true,
            swap_limit: true,
            cpu_quota: true,
            pids_limit: true,
            init_binary: "docker-init".into(),
            security_options: vec!["name=seccomp,profile=default".into(), "name=cgroupns".into()],
        }
    }

    #[test]
    fn an_engine_without_a_limit_is_unfit_and_says_which() {
        assert_eq!(unfit(&fit()), None);
        let rows: [(Facts, &str); 6] = [
            (Facts { security_options: vec![], ..fit() }, "seccomp"),
            (Facts { memory_limit: false, ..fit() }, "memory limits"),
            (Facts { cpu_quota: false, ..fit() }, "processor quotas"),
            (Facts { pids_limit: false, ..fit() }, "process limits"),
            (Facts { init_binary: String::new(), ..fit() }, "an init process"),
            (Facts { security_options: vec!["name=seccomp".into(), "name=userns".into()], ..fit() }, "userns-remap"),
        ];
        for (facts, word) in rows {
            assert!(unfit(&facts).is_some_and(|reason| reason.contains(word)), "{word}");
        }
    }
}
