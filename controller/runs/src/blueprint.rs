//! The complete configuration of a run's container.
//!
//! Pure: converts the specification to the configuration for the engine. A snapshot test pins the result, and another
//! test compares a real container with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_contract::RunKey;
use sluice_state::layout::RunPaths;

use crate::bridge::{BRIDGE_TARGET, Bridge};
use crate::input::Stdin;

/// Mount point of the workspace.
pub const WORKSPACE: &str = "/workspace";
/// Mount point of `--repo`.
pub const REPOSITORY: &str = "/workspace/repo";
/// Directory for the files of `--out`.
pub const OUT: &str = "/workspace/out";
/// Variable with the path of that directory.
pub const OUT_VARIABLE: &str = "SLUICE_OUT";
/// Mount point of the socket's directory: not below `/run`, where the tmpfs would hide it.
const SOCKET_DIRECTORY: &str = "/llm-sock";
/// Time after the end of a run's timeout at which its sidecar ends by itself and its container has expired.
pub const EXPIRY_MARGIN: Duration = Duration::from_secs(120);
/// Port in the sandbox that leads to its sidecar.
pub(crate) const PORT: u16 = 8080;
/// Label with the time after which a container is of no use, in seconds since 1970.
pub const EXPIRES_LABEL: &str = "sluice.expires";
/// Label of a daemon's container.
pub const DRIVER_LABEL: &str = "sluice.driver";
/// Value of that label.
pub const DAEMON: &str = "daemon";

/// Specification of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec<'a> {
    /// Run and attempt.
    pub key: &'a RunKey,
    /// Instance of Sluice that owns the container.
    pub instance: &'a str,
    /// Image.
    pub image: &'a str,
    /// Connection from the sandbox to the sidecar.
    pub bridge: &'a Bridge,
    /// Program and arguments, after the image's entrypoint.
    pub argv: &'a [String],
    /// Working directory of the program.
    pub workdir: &'a str,
    /// Variables of the agent and of the user, in addition to ours.
    pub env: &'a BTreeMap<String, String>,
    /// First model that calls may name, if they are limited.
    pub model: Option<&'a str>,
    /// Other directories.
    pub volumes: &'a [Volume],
    /// Source of the program's stdin.
    pub stdin: Stdin,
    /// True if the program gets the terminal of this process.
    pub tty: bool,
    /// User and group of the program.
    pub uid: u32,
    /// Size of the engine's log in bytes for a run of a daemon, which reads the output from the engine's log.
    pub log_max: Option<u64>,
    /// Limits of the sandbox.
    pub limits: &'a SandboxLimits,
    /// The run's directories.
    pub paths: &'a RunPaths,
    /// The seccomp profile, as JSON.
    pub seccomp: &'a str,
    /// Time after which the container is of no use, in seconds since 1970.
    pub expires: u64,
}

/// A directory of the host in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path in the sandbox.
    pub target: String,
    /// Access of the sandbox.
    pub access: MountAccess,
}

/// Access of a sandbox to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountAccess {
    /// Reading.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// Limits of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Memory and swap together, in bytes.
    pub memory: u64,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Number of processes and threads.
    pub pids: u64,
}

/// Configuration for the engine. Everything else is off, or private to the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blueprint {
    /// Name, unique on this engine for one attempt of one run.
    pub name: String,
    /// Image.
    pub image: String,
    /// Entrypoint in place of the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Arguments after the entrypoint.
    pub argv: Vec<String>,
    /// `K=V`, sorted.
    pub env: Vec<String>,
    /// Numeric user and group: a name can mean another user in another image.
    pub user: String,
    /// Working directory of the program.
    pub workdir: String,
    /// Labels by which a sweep finds it.
    pub labels: BTreeMap<String, String>,
    /// Bind mounts.
    pub mounts: Vec<Volume>,
    /// Writable file systems in memory, with their options.
    pub tmpfs: BTreeMap<String, String>,
    /// Memory and swap together, in bytes.
    pub memory: u64,
    /// Microseconds of processor time in each tenth of a second.
    pub cpu_quota: u64,
    /// Number of processes and threads.
    pub pids: u64,
    /// Number of descriptors of each process.
    pub nofile: u64,
    /// Size of `/dev/shm`, in bytes.
    pub shm: u64,
    /// Source of the program's stdin.
    pub stdin: Stdin,
    /// True if the program has a terminal.
    pub tty: bool,
    /// Size of the engine's log, in bytes; `None` for the small log of a container with attached output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_max: Option<u64>,
    /// Seccomp profile.
    #[serde(skip)]
    pub seccomp: String,
}

/// Variables that only Sluice sets.
const RESERVED_VARIABLES: [&str; 9] = [
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "LLM_PROXY_PORT", "LLM_PROXY_SOCKET", "OPENAI_API_BASE",
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "RUN_ID", "SLUICE_MODEL",
];

/// Variables that Sluice sets unless the agent or the user does. Without these variables, telemetry would wait seconds
/// for hosts that no sandbox reaches, and Python without a terminal would buffer its output until it ends.
const DEFAULTS: [(&str, &str); 7] = [
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("CREWAI_DISABLE_TELEMETRY", "true"),
    ("DISABLE_TELEMETRY", "1"),
    ("DO_NOT_TRACK", "1"),
    // The `litellm` library would request prices from its own host at each start.
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("OPENAI_AGENTS_DISABLE_TRACING", "1"),
    ("PYTHONUNBUFFERED", "1"),
];

/// Value of the key variables that SDKs require. It gives no access.
const NO_KEY: &str = "sk-none-the-sidecar-holds-the-key";

/// Returns the configuration of a container.
#[must_use]
pub fn blueprint(spec: &ContainerSpec<'_>) -> Blueprint {
    let mut env: BTreeMap<_, _> = DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    if matches!(spec.bridge, Bridge::Mounted(_)) {
        // The image's own HOME belongs to another user.
        env.insert("HOME".to_owned(), WORKSPACE.to_owned());
    }
    env.extend(spec.env.clone());
    env.extend(environment(spec));
    let mut mounts = vec![
        volume(&spec.paths.work, WORKSPACE, MountAccess::ReadWrite),
        // Connecting needs no write access; with it, the sandbox could unlink the socket.
        volume(&spec.paths.sock, SOCKET_DIRECTORY, MountAccess::ReadOnly),
    ];
    let entrypoint = match spec.bridge {
        Bridge::OfImage => None,
        Bridge::Mounted(bridge) => {
            mounts.push(volume(&bridge.program, BRIDGE_TARGET, MountAccess::ReadOnly));
            Some(bridge.command())
        }
    };
    mounts.extend_from_slice(spec.volumes);
    Blueprint {
        name: container_name(spec.key),
        image: spec.image.to_owned(),
        entrypoint,
        argv: spec.argv.to_vec(),
        env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
        user: format!("{0}:{0}", spec.uid),
        workdir: spec.workdir.to_owned(),
        labels: labels(spec),
        mounts,
        tmpfs: [("/tmp", "64m"), ("/run", "8m")]
            .map(|(path, size)| {
                // With an owner: runc gives a tmpfs the mode of the image's own directory and ignores `mode`.
                let options = format!("rw,noexec,nosuid,nodev,size={size},uid={0},gid={0},mode=1777", spec.uid);
                (path.to_owned(), options)
            })
            .into(),
        memory: spec.limits.memory,
        cpu_quota: spec.limits.cpu_millis * 100,
        pids: spec.limits.pids,
        nofile: 4096,
        shm: 16 << 20,
        stdin: spec.stdin,
        tty: spec.tty,
        log_max: spec.log_max,
        seccomp: spec.seccomp.to_owned(),
    }
}

/// Returns the container's name.
#[must_use]
pub fn container_name(key: &RunKey) -> String {
    format!("sluice-{key}")
}

/// Returns the labels that identify our container, whatever its name.
#[must_use]
pub fn identity(key: &RunKey, instance: &str) -> BTreeMap<String, String> {
    [
        ("sluice.attempt", key.attempt.to_string()),
        ("sluice.instance", instance.to_owned()),
        ("sluice.role", "sandbox".to_owned()),
        ("sluice.run", key.run_id.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the reason why a variable cannot have this name, or `None` if it can.
#[must_use]
pub fn reserved_variable(name: &str) -> Option<&'static str> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        Some("is not a name for a variable")
    } else if RESERVED_VARIABLES.contains(&name) {
        Some("is set by sluice: it leads the agent to its sidecar, which holds the key")
    } else {
        None
    }
}

/// Returns the reason why a volume cannot be mounted there, or `None` if it can.
#[must_use]
pub fn reserved_target(target: &str) -> Option<&'static str> {
    let path = Path::new(target);
    if !path.is_absolute() || path.components().any(|part| matches!(part, std::path::Component::ParentDir)) {
        return Some("is not an absolute path in the sandbox");
    }
    if path.starts_with(Path::new(WORKSPACE).join(".sluice")) || path == Path::new(WORKSPACE) {
        return Some("is the workspace itself; name a directory in it");
    }
    // In many images, some of these are links into others: /bin, /lib64, /var/run.
    const SYSTEM: &str = "bin boot dev etc lib lib32 lib64 libx32 llm-sock .sluice proc root run sbin sys tmp usr var";
    let top = path.components().nth(1).and_then(|part| part.as_os_str().to_str());
    let hides = top.is_none_or(|top| SYSTEM.split(' ').any(|name| name == top));
    let ours = path == Path::new("/opt") || path.starts_with("/opt/sluice");
    (hides || ours).then_some("hides a part of the sandbox")
}

fn environment(spec: &ContainerSpec<'_>) -> BTreeMap<String, String> {
    let base = format!("http://localhost:{PORT}");
    [
        ("ANTHROPIC_API_KEY", NO_KEY.to_owned()),
        ("ANTHROPIC_BASE_URL", base.clone()),
        ("LLM_PROXY_PORT", PORT.to_string()),
        ("LLM_PROXY_SOCKET", format!("{SOCKET_DIRECTORY}/llm.sock")),
        ("OPENAI_API_BASE", base.clone()),
        ("OPENAI_API_KEY", NO_KEY.to_owned()),
        ("OPENAI_BASE_URL", format!("{base}/v1")),
        ("RUN_ID", spec.key.run_id.to_string()),
    ]
    .into_iter()
    .chain(spec.model.map(|model| ("SLUICE_MODEL", model.to_owned())))
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn labels(spec: &ContainerSpec<'_>) -> BTreeMap<String, String> {
    let mut labels = identity(spec.key, spec.instance);
    labels.insert(EXPIRES_LABEL.to_owned(), spec.expires.to_string());
    if spec.log_max.is_some() {
        labels.insert(DRIVER_LABEL.to_owned(), DAEMON.to_owned());
    }
    labels
}

fn volume(source: &Path, target: &str, access: MountAccess) -> Volume {
    Volume { source: source.to_owned(), target: target.to_owned(), access }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::MountedBridge;

    #[test]
    fn a_container_is_what_the_snapshot_says() {
        let key: RunKey = "r1.2".parse().expect("a key");
        let root = PathBuf::from("/state/runs/r1.2");
        let paths = RunPaths {
            sock: root.join("sock"),
            conf: root.join("conf"),
            control: root.join("conf/control.sock"),
            relay: root.join("conf/relay/sock"),
            relay_token: root.join("conf/relay.token"),
            audit_key: root.join("conf/audit.key"),
            work: root.join("work"),
            socket: root.join("sock/llm.sock"),
            audit: "/state/audit/r1.2.jsonl".into(),
            root,
        };
        let spec = ContainerSpec {
            key: &key,
            instance: "0123456789abcdef0123456789abcdef",
            image: "sluice-runtime:latest",
            bridge: &Bridge::OfImage,
            argv: &["node".into(), "/opt/sluice/agent/run.mjs".into()],
            workdir: WORKSPACE,
            env: &BTreeMap::from([("LANG".into(), "C.UTF-8".into()), ("DO_NOT_TRACK".into(), "0".into())]),
            model: Some("demo"),
            volumes: &[volume(Path::new("/src/app"), "/workspace/repo", MountAccess::ReadOnly)],
            stdin: Stdin::Closed,
            tty: false,
            uid: crate::rundir::SANDBOX_UID,
            log_max: None,
            limits: &SandboxLimits { memory: 512 << 20, cpu_millis: 1000, pids: 256 },
            paths: &paths,
            seccomp: "{}",
            expires: 1_790_000_000,
        };
        insta::assert_json_snapshot!(blueprint(&spec));

        let bridge = Bridge::Mounted(MountedBridge {
            program: "/usr/local/bin/sluice-proxy".into(),
            entrypoint: vec!["/app/start.sh".into()],
        });
        let mounted = blueprint(&ContainerSpec { bridge: &bridge, ..spec.clone() });
        let own = blueprint(&spec);
        let command = ["/.sluice/bridge", "bridge", "--", "/app/start.sh"].map(str::to_owned);
        assert_eq!((own.entrypoint, mounted.entrypoint.as_deref()), (None, Some(&command[..])));
        assert_eq!(mounted.argv, own.argv);
        let more = volume(Path::new("/usr/local/bin/sluice-proxy"), "/.sluice/bridge", MountAccess::ReadOnly);
        assert_eq!(mounted.mounts.iter().filter(|mount| !own.mounts.contains(mount)).collect::<Vec<_>>(), [&more]);
        assert_eq!(mounted.env.iter().filter(|name| !own.env.contains(name)).collect::<Vec<_>>(), ["HOME=/workspace"]);
        let home = BTreeMap::from([("HOME".into(), "/tmp".into())]);
        let chosen = blueprint(&ContainerSpec { bridge: &bridge, env: &home, ..spec.clone() });
        assert!(chosen.env.contains(&"HOME=/tmp".to_owned()), "{:?}", chosen.env);

        let daemon = blueprint(&ContainerSpec { uid: 2_000_007, log_max: Some(1 << 20), ..spec });
        assert_eq!((daemon.user.as_str(), daemon.log_max), ("2000007:2000007", Some(1 << 20)));
        assert!(daemon.tmpfs.values().all(|options| options.contains("uid=2000007,gid=2000007")), "{daemon:?}");
        assert_eq!((daemon.labels.get(DRIVER_LABEL), own.labels.get(DRIVER_LABEL)), (Some(&DAEMON.to_owned()), None));
    }

    #[test]
    fn variables_of_sluice_are_reserved() {
        for name in RESERVED_VARIABLES {
            assert!(reserved_variable(name).is_some(), "{name}");
        }
        for name in ["", "A=B", "A B", "é"] {
            assert!(reserved_variable(name).is_some(), "{name}");
        }
        assert_eq!(reserved_variable("LANG"), None);
    }

    #[test]
    fn volumes_hide_nothing_of_the_sandbox() {
        for target in [
            "rel", "/", "/workspace", "/workspace/", "/workspace/.sluice", "/llm-sock", "/llm-sock/x", "/proc/1",
            "/a/../run", "/.sluice/bridge",
        ] {
            assert!(reserved_target(target).is_some(), "{target}");
        }
        for target in ["/workspace/repo", "/wheels", "/mnt/data"] {
            assert_eq!(reserved_target(target), None, "{target}");
        }
    }
}
