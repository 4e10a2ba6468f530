//! A blueprint as a request to the engine.

use std::collections::BTreeMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};

use crate::blueprint::{Blueprint, MountAccess, Volume};
use crate::input::Stdin;
use crate::tty;

/// Returns the request that creates the container.
pub(super) fn body(blueprint: &Blueprint) -> ContainerCreateBody {
    let has_stdin = blueprint.stdin == Stdin::Ours;
    ContainerCreateBody {
        image: Some(blueprint.image.clone()),
        entrypoint: blueprint.entrypoint.clone(),
        cmd: Some(blueprint.argv.clone()),
        env: Some(blueprint.env.clone()),
        user: Some(blueprint.user.clone()),
        working_dir: Some(blueprint.workdir.clone()),
        labels: Some(blueprint.labels.clone().into_iter().collect()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(blueprint.tty),
        attach_stdin: Some(has_stdin),
        open_stdin: Some(has_stdin),
        // The program's stdin ends with ours.
        stdin_once: Some(has_stdin),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(host(blueprint)),
        ..ContainerCreateBody::default()
    }
}

/// Returns the request for a container that only reserves a name.
pub(super) fn placeholder(image: &str, labels: &BTreeMap<String, String>) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(vec!["true".to_owned()]),
        labels: Some(labels.clone().into_iter().collect()),
        host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    }
}

fn host(blueprint: &Blueprint) -> HostConfig {
    let signed = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
    HostConfig {
        network_mode: Some("none".to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned(), format!("seccomp={}", blueprint.seccomp)]),
        privileged: Some(false),
        readonly_rootfs: Some(true),
        tmpfs: Some(blueprint.tmpfs.clone().into_iter().collect()),
        mounts: Some(blueprint.mounts.iter().map(mount).collect()),
        memory: signed(blueprint.memory),
        memory_swap: signed(blueprint.memory),
        cpu_period: Some(100_000),
        cpu_quota: signed(blueprint.cpu_quota),
        pids_limit: signed(blueprint.pids),
        ulimits: Some(vec![ulimit("core", 0), ulimit("nofile", blueprint.nofile)]),
        // Engines before API 1.42 ignore it, and get the size when the container has started.
        console_size: if blueprint.tty {
            tty::size().map(|size| vec![size.rows.into(), size.columns.into()])
        } else {
            None
        },
        shm_size: signed(blueprint.shm),
        init: Some(true),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        auto_remove: Some(false),
        // Output is read from the attached streams, or from this log. A log with one file must not be compressed.
        log_config: Some(HostConfigLogConfig {
            typ: Some("local".to_owned()),
            config: Some(
                [("max-size", &*log_size(blueprint.log_max)), ("max-file", "1"), ("compress", "false")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
            ),
        }),
        ..HostConfig::default()
    }
}

/// Returns the size of the engine's log. With attached output, the log is not read, so it is small.
fn log_size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "64k".to_owned(), |bytes| bytes.to_string())
}

fn mount(volume: &Volume) -> Mount {
    let read_only = volume.access == MountAccess::ReadOnly;
    Mount {
        typ: Some(MountType::BIND),
        source: Some(volume.source.to_string_lossy().into_owned()),
        target: Some(volume.target.clone()),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            // Mounts below a read-only source would stay writable.
            non_recursive: Some(read_only),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

fn ulimit(name: &str, value: u64) -> ResourcesUlimits {
    let value = i64::try_from(value).ok();
    ResourcesUlimits { name: Some(name.to_owned()), soft: value, hard: value }
}
