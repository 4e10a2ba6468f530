//! Properties of the engine, and the limits that it can enforce.
//!
//! Pure.

/// Properties of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the engine's fields")]
pub struct EngineInfo {
    pub version: String,
    pub cgroup_version: String,
    pub memory_limit: bool,
    pub swap_limit: bool,
    pub cpu_quota: bool,
    pub pids_limit: bool,
    pub init_binary: String,
    pub security_options: Vec<String>,
}

impl EngineInfo {
    /// Returns why the engine cannot run a sandbox with all of its limits, or `None` if it can.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        let option = |name: &str| self.security_options.iter().any(|option| option.contains(name));
        let missing: Vec<_> = [
            (option("name=seccomp"), "seccomp"),
            (self.memory_limit, "memory limits"),
            (self.swap_limit || self.cgroup_version == "2", "swap limits"),
            (self.cpu_quota, "processor quotas"),
            (self.pids_limit, "process limits"),
            (!self.init_binary.is_empty(), "an init process (docker-init)"),
        ]
        .into_iter()
        .filter_map(|(there, name)| (!there).then_some(name))
        .collect();
        if option("name=userns") || option("name=rootless") {
            return Some(
                "it maps users; the workspace belongs to user 1001 of the host, so run it without userns-remap".into(),
            );
        }
        (!missing.is_empty()).then(|| {
            format!("it has no {}; enable them in the kernel (cgroups), then restart it", missing.join(", no "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> EngineInfo {
        EngineInfo {
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
    fn an_unfit_engine_names_its_missing_limit() {
        assert_eq!(fit().unfit(), None);
        let rows: [(EngineInfo, &str); 6] = [
            (EngineInfo { security_options: vec![], ..fit() }, "seccomp"),
            (EngineInfo { memory_limit: false, ..fit() }, "memory limits"),
            (EngineInfo { cpu_quota: false, ..fit() }, "processor quotas"),
            (EngineInfo { pids_limit: false, ..fit() }, "process limits"),
            (EngineInfo { init_binary: String::new(), ..fit() }, "an init process"),
            (
                EngineInfo { security_options: vec!["name=seccomp".into(), "name=userns".into()], ..fit() },
                "userns-remap",
            ),
        ];
        for (info, word) in rows {
            assert!(info.unfit().is_some_and(|reason| reason.contains(word)), "{word}");
        }
    }
}
