//! The container of a run, every value on purpose.
//!
//! Pure: from what is asked for to the whole of what the engine is told. A snapshot holds it, and a test compares a
//! real container with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sluice_contract::RunKey;
use sluice_state::layout::RunPaths;

use crate::input::Stdin;
use crate::rundir::SANDBOX_UID;

/// Where the workspace is mounted.
pub const WORKSPACE: &str = "/workspace";
/// Where `--repo` is mounted.
pub const REPOSITORY: &str = "/workspace/repo";
/// Where the socket's directory is mounted: not below `/run`, where the tmpfs would hide it.
const SOCKET_DIRECTORY: &str = "/llm-sock";
const PORT: u16 = 8080;

/// What a container is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec<'a> {
    /// Which start of which run.
    pub key: &'a RunKey,
    /// Whose container it is.
    pub instance: &'a str,
    /// The image.
    pub image: &'a str,
    /// The program and its arguments, behind the image's entrypoint.
    pub argv: &'a [String],
    /// Where the program starts.
    pub workdir: &'a str,
    /// What the agent and the user want in the environment, beside ours.
    pub env: &'a BTreeMap<String, String>,
    /// The first of the models that the run may name, if they are limited.
    pub model: Option<&'a str>,
    /// Other directories.
    pub volumes: &'a [Volume],
    /// What the program finds on its stdin.
    pub stdin: Stdin,
    /// Whether it has our terminal.
    pub tty: bool,
    /// Bounds.
    pub limits: &'a Limits,
    /// The run's directories.
    pub paths: &'a RunPaths,
    /// The seccomp profile, as JSON.
    pub seccomp: &'a str,
    /// When the container is of no use to anybody any more, in seconds since 1970.
    pub expires: u64,
}

/// A directory of the host in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// On the host, absolute.
    pub source: PathBuf,
    /// In the sandbox, absolute.
    pub target: String,
    /// Whether it may be written.
    pub access: Access,
}

/// What a sandbox may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read it.
    ReadOnly,
    /// Write it.
    ReadWrite,
}

/// The bounds of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Memory and swap together, in bytes.
    pub memory: u64,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// What the engine is told; everything that is not here is off, or private to the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blueprint {
    /// Unique on this engine for one start of one run.
    pub name: String,
    /// The image.
    pub image: String,
    /// Behind the image's entrypoint.
    pub argv: Vec<String>,
    /// `K=V`, sorted.
    pub env: Vec<String>,
    /// By number: the name may mean somebody else in another image.
    pub user: String,
    /// Where the program starts.
    pub workdir: String,
    /// How a sweep knows it.
    pub labels: BTreeMap<String, String>,
    /// Bind mounts.
    pub mounts: Vec<Volume>,
    /// Places in memory that may be written, with their options.
    pub tmpfs: BTreeMap<String, String>,
    /// Memory and swap together, in bytes.
    pub memory: u64,
    /// Microseconds of processor time in each tenth of a second.
    pub cpu_quota: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Descriptors of each process.
    pub nofile: u64,
    /// Size of `/dev/shm`, in bytes.
    pub shm: u64,
    /// What the program finds on its stdin.
    pub stdin: Stdin,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The system calls that are left.
    #[serde(skip)]
    pub seccomp: String,
}

/// Names in the environment that are ours to set.
const OURS: [&str; 9] = [
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "LLM_PROXY_PORT", "LLM_PROXY_SOCKET", "OPENAI_API_BASE",
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "RUN_ID", "SLUICE_MODEL",
];

/// What a sandbox has unless the agent or the user sets it. Telemetry waits for hosts that no sandbox reaches: seconds of
/// a run. Python without a terminal keeps its output back until it ends.
const DEFAULTS: [(&str, &str); 7] = [
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("CREWAI_DISABLE_TELEMETRY", "true"),
    ("DISABLE_TELEMETRY", "1"),
    ("DO_NOT_TRACK", "1"),
    // The `litellm` library would ask a host of its own for prices, at each start.
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("OPENAI_AGENTS_DISABLE_TRACING", "1"),
    ("PYTHONUNBUFFERED", "1"),
];

/// The value of the keys that SDKs insist on: it opens nothing.
const NO_KEY: &str = "sk-none-the-sidecar-holds-the-key";

/// The container for an order.
#[must_use]
pub fn blueprint(order: &ContainerSpec<'_>) -> Blueprint {
    let mut env: BTreeMap<_, _> = DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    env.extend(order.env.clone());
    env.extend(environment(order));
    let mut mounts = vec![
        volume(&order.paths.work, WORKSPACE, Access::ReadWrite),
        // Connecting needs no right to write; with one, the sandbox could unlink the socket.
        volume(&order.paths.sock, SOCKET_DIRECTORY, Access::ReadOnly),
    ];
    mounts.extend_from_slice(order.volumes);
    Blueprint {
        name: container_name(order.key),
        image: order.image.to_owned(),
        argv: order.argv.to_vec(),
        env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
        user: format!("{SANDBOX_UID}:{SANDBOX_UID}"),
        workdir: order.workdir.to_owned(),
        labels: labels(order),
        mounts,
        tmpfs: [("/tmp", "64m"), ("/run", "8m")]
            .map(|(path, size)| {
                // By owner: runc gives a tmpfs the mode of the image's own directory, whatever is asked for.
                let options =
                    format!("rw,noexec,nosuid,nodev,size={size},uid={SANDBOX_UID},gid={SANDBOX_UID},mode=1777");
                (path.to_owned(), options)
            })
            .into(),
        memory: order.limits.memory,
        cpu_quota: order.limits.cpu_millis * 100,
        pids: order.limits.pids,
        nofile: 4096,
        shm: 16 << 20,
        stdin: order.stdin,
        tty: order.tty,
        seccomp: order.seccomp.to_owned(),
    }
}

/// The container's name.
#[must_use]
pub fn container_name(key: &RunKey) -> String {
    format!("sluice-{key}")
}

/// The labels by which a container is known to be ours, whatever its name.
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

/// Why a name cannot be given to a variable, if so.
#[must_use]
pub fn reserved_variable(name: &str) -> Option<&'static str> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        Some("is no name for a variable")
    } else if OURS.contains(&name) {
        Some("is set by sluice: it leads the agent to its sidecar, which holds the key")
    } else {
        None
    }
}

/// Why a volume cannot be mounted there, if so.
#[must_use]
pub fn reserved_target(target: &str) -> Option<&'static str> {
    let path = Path::new(target);
    if !path.is_absolute() || path.components().any(|part| matches!(part, std::path::Component::ParentDir)) {
        return Some("is not an absolute path in the sandbox");
    }
    if path.starts_with(Path::new(WORKSPACE).join(".sluice")) || path == Path::new(WORKSPACE) {
        return Some("is the workspace itself; name a directory in it");
    }
    // Also what is a link into these in many images: /bin, /lib64, /var/run.
    const SYSTEM: &str = "bin boot dev etc lib lib32 lib64 libx32 llm-sock proc root run sbin sys tmp usr var";
    let top = path.components().nth(1).and_then(|part| part.as_os_str().to_str());
    let hides = top.is_none_or(|top| SYSTEM.split(' ').any(|name| name == top));
    let ours = path == Path::new("/opt") || path.starts_with("/opt/sluice");
    (hides || ours).then_some("hides a part of the sandbox")
}

fn environment(order: &ContainerSpec<'_>) -> BTreeMap<String, String> {
    let base = format!("http://localhost:{PORT}");
    [
        ("ANTHROPIC_API_KEY", NO_KEY.to_owned()),
        ("ANTHROPIC_BASE_URL", base.clone()),
        ("LLM_PROXY_PORT", PORT.to_string()),
        ("LLM_PROXY_SOCKET", format!("{SOCKET_DIRECTORY}/llm.sock")),
        ("OPENAI_API_BASE", base.clone()),
        ("OPENAI_API_KEY", NO_KEY.to_owned()),
        ("OPENAI_BASE_URL", format!("{base}/v1")),
        ("RUN_ID", order.key.run_id.to_string()),
    ]
    .into_iter()
    .chain(order.model.map(|model| ("SLUICE_MODEL", model.to_owned())))
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn labels(order: &ContainerSpec<'_>) -> BTreeMap<String, String> {
    let mut labels = identity(order.key, order.instance);
    labels.insert("sluice.expires".to_owned(), order.expires.to_string());
    labels
}

fn volume(source: &Path, target: &str, access: Access) -> Volume {
    Volume { source: source.to_owned(), target: target.to_owned(), access }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_what_the_snapshot_says() {
        let key: RunKey = "r1.2".parse().expect("a key");
        let root = PathBuf::from("/state/runs/r1.2");
        let paths = RunPaths {
            sock: root.join("sock"),
            conf: root.join("conf"),
            audit_key: root.join("conf/audit.key"),
            work: root.join("work"),
            socket: root.join("sock/llm.sock"),
            audit: "/state/audit/r1.2.jsonl".into(),
            root,
        };
        let order = ContainerSpec {
            key: &key,
            instance: "0123456789abcdef0123456789abcdef",
            image: "sluice-runtime:latest",
            argv: &["node".into(), "/opt/sluice/agent/run.mjs".into()],
            workdir: WORKSPACE,
            env: &BTreeMap::from([("LANG".into(), "C.UTF-8".into()), ("DO_NOT_TRACK".into(), "0".into())]),
            model: Some("demo"),
            volumes: &[volume(Path::new("/src/app"), "/workspace/repo", Access::ReadOnly)],
            stdin: Stdin::Closed,
            tty: false,
            limits: &Limits { memory: 512 << 20, cpu_millis: 1000, pids: 256 },
            paths: &paths,
            seccomp: "{}",
            expires: 1_790_000_000,
        };
        insta::assert_json_snapshot!(blueprint(&order));
    }

    #[test]
    fn names_that_lead_to_the_model_are_ours() {
        for name in OURS {
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
            "/a/../run",
        ] {
            assert!(reserved_target(target).is_some(), "{target}");
        }
        for target in ["/workspace/repo", "/wheels", "/mnt/data"] {
            assert_eq!(reserved_target(target), None, "{target}");
        }
    }
}
