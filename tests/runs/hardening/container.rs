//! A running container, compared member by member in the output of `docker inspect`.

use std::fs;

use serde_json::{Map, Value, json};
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::engine;

use super::PROFILE;
use crate::agents::without_calls;

/// Null, false, zero and empty: the engine's values of unset members.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_nothing),
        Value::Object(members) => members.is_empty(),
    }
}

/// All members that are set. Engines of other versions have other members, which are not set.
fn said(object: &Value) -> Map<String, Value> {
    let members = object.as_object().expect("an object").iter().filter(|(_, value)| !is_nothing(value));
    members.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The expected container.
struct Expected {
    id: String,
    instance: String,
    /// The directory of the test, with `st`, `code` and `data`.
    top: String,
}

impl Expected {
    fn directory(&self, name: &str) -> String {
        format!("{}/st/runs/{}.0/{name}", self.top, self.id)
    }

    fn labels(&self) -> Value {
        json!({"sluice.attempt": "0", "sluice.instance": self.instance, "sluice.role": "sandbox", "sluice.run": self.id})
    }

    fn config(&self) -> Value {
        json!({
            "User": "1001:1001",
            "WorkingDir": "/workspace",
            "AttachStdout": true,
            "AttachStderr": true,
            "Image": "sluice-runtime:latest",
            "Entrypoint": ["/opt/sluice/entrypoint.sh"],
            "Cmd": ["sh", "-c", "echo up; exec sleep 600"],
            "Healthcheck": {"Test": ["NONE"]},
            "Env": [
                "A=1 x",
                "ANTHROPIC_API_KEY=sk-none-the-sidecar-holds-the-key",
                "ANTHROPIC_BASE_URL=http://localhost:8080",
                "B=2",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
                "CREWAI_DISABLE_TELEMETRY=true",
                "DISABLE_TELEMETRY=1",
                "DO_NOT_TRACK=1",
                "LITELLM_LOCAL_MODEL_COST_MAP=True",
                "LLM_PROXY_PORT=8080",
                "LLM_PROXY_SOCKET=/llm-sock/llm.sock",
                "OPENAI_AGENTS_DISABLE_TRACING=1",
                "OPENAI_API_BASE=http://localhost:8080",
                "OPENAI_API_KEY=sk-none-the-sidecar-holds-the-key",
                "OPENAI_BASE_URL=http://localhost:8080/v1",
                "PYTHONUNBUFFERED=1",
                format!("RUN_ID={}", self.id),
                "SLUICE_MODEL=m",
                // From the image.
                "PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "NPM_CONFIG_PREFIX=/opt/tools",
                "NPM_CONFIG_CACHE=/tmp/npm",
                "NPM_CONFIG_UPDATE_NOTIFIER=false",
                "NPM_CONFIG_FUND=false",
                "PIP_NO_CACHE_DIR=1",
                "PIP_DISABLE_PIP_VERSION_CHECK=1",
                "HOME=/workspace",
                "OPENCODE_CONFIG=/etc/sluice/opencode.json",
                "NODE_OPTIONS=--dns-result-order=ipv4first",
            ],
        })
    }

    fn host(&self) -> Value {
        json!({
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "ReadonlyRootfs": true,
            "Tmpfs": {
                "/tmp": "rw,noexec,nosuid,nodev,size=64m,uid=1001,gid=1001,mode=1777",
                "/run": "rw,noexec,nosuid,nodev,size=8m,uid=1001,gid=1001,mode=1777",
            },
            "ShmSize": 16 << 20,
            "Memory": 100 << 20,
            "MemorySwap": 100 << 20,
            "CpuPeriod": 100_000,
            "CpuQuota": 50_000,
            "PidsLimit": 77,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": 4096, "Hard": 4096},
            ],
            "Init": true,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "LogConfig": {"Type": "local", "Config": {"max-size": "64k", "max-file": "1", "compress": "false"}},
            "Runtime": "runc",
            "Mounts": [
                bind(&self.directory("work"), "/workspace", true),
                bind(&self.directory("sock"), "/llm-sock", false),
                bind(&format!("{}/code", self.top), "/workspace/repo", false),
                bind(&format!("{}/data", self.top), "/data", true),
            ],
        })
    }

    fn mounts(&self) -> Value {
        json!([
            mounted(&format!("{}/data", self.top), "/data", true),
            mounted(&self.directory("sock"), "/llm-sock", false),
            mounted(&self.directory("work"), "/workspace", true),
            mounted(&format!("{}/code", self.top), "/workspace/repo", false),
        ])
    }
}

/// A bind mount in the form of the request.
fn bind(source: &str, target: &str, is_writable: bool) -> Value {
    let mut bind =
        json!({"Type": "bind", "Source": source, "Target": target, "BindOptions": {"Propagation": "rprivate"}});
    if !is_writable {
        bind["ReadOnly"] = json!(true);
        // Mounts below its source would stay writable.
        bind["BindOptions"]["NonRecursive"] = json!(true);
    }
    bind
}

/// A bind mount as the engine reports it.
fn mounted(source: &str, target: &str, is_writable: bool) -> Value {
    json!({"Type": "bind", "Source": source, "Destination": target, "Mode": "", "RW": is_writable, "Propagation": "rprivate"})
}

/// Converts a time of the engine to seconds since 1970.
async fn seconds(time: &Value) -> u64 {
    let time = time.as_str().expect("a time");
    let output = tokio::process::Command::new("date").args(["+%s", "--date", time]).output().await;
    let output = output.expect("there is a date");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("date prints seconds")
}

#[track_caller]
fn assert_hidden(paths: &Value, expected: &[&str]) {
    for path in expected {
        assert!(paths.as_array().is_some_and(|paths| paths.contains(&json!(path))), "{path}: {paths}");
    }
}

#[tokio::test]
async fn a_running_container_matches_the_list_exactly() {
    let (sluice, _upstream) = without_calls().await;
    for name in ["code", "data"] {
        fs::create_dir(sluice.dir().join(name)).expect("a fresh directory takes another");
    }
    let id = unique_run_id("hard");
    let limits = ["--memory", "100m", "--cpus", "0.5", "--pids", "77", "--timeout", "50s", "--stop-grace", "0s"];
    let mounts = ["--repo", "code", "--volume", "data:/data:rw"];
    let run = sluice.run(["-q", "--run-id", &id, "--model", "m", "--env", "B=2", "--env", "A=1 x"]);
    let run = run.args(limits).args(mounts).args(["--", "sh", "-c", "echo up; exec sleep 600"]).spawn();
    run.prints("up").await;

    let seen = engine::inspect(&sluice.started().await).await;

    let instance = sluice.label().await.trim_start_matches("sluice.instance=").to_owned();
    let expected = Expected { id, instance, top: sluice.dir().display().to_string() };

    let (mut config, mut host) = (said(&seen["Config"]), said(&seen["HostConfig"]));
    let mut labels = said(&config.remove("Labels").expect("labels"));
    let expires = labels.remove("sluice.expires").expect("a label");
    // The image sets this label, and the engine chooses the host name.
    labels.remove("sluice.inputs");
    config.remove("Hostname");
    assert_eq!((Value::from(labels), Value::from(config)), (expected.labels(), expected.config()));
    let expires: u64 = expires.as_str().expect("a text").parse().expect("seconds");
    assert!(expires > seconds(&seen["Created"]).await + 50, "{expires}");

    // Engines of other versions hide more.
    let masked = host.remove("MaskedPaths").expect("a list");
    assert_hidden(&masked, &["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"]);
    let read_only = host.remove("ReadonlyPaths").expect("a list");
    assert_hidden(&read_only, &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]);
    let security = host.remove("SecurityOpt").expect("a list");
    let profile = security[1].as_str().and_then(|text| text.strip_prefix("seccomp=")).expect("a profile");
    let parse = |text| serde_json::from_str::<Value>(text).expect("a profile is JSON");
    assert_eq!(
        (&security[0], &security[2], parse(profile)),
        (&json!("no-new-privileges"), &Value::Null, parse(PROFILE))
    );
    assert_eq!(Value::from(host), expected.host());

    let mut mounts = seen["Mounts"].as_array().expect("a list").clone();
    mounts.sort_by_key(|mount| mount["Destination"].to_string());
    assert_eq!(Value::from(mounts), expected.mounts());

    let network = &seen["NetworkSettings"];
    assert_eq!(said(&network["Networks"]).keys().collect::<Vec<_>>(), ["none"]);
    for place in [network, &network["Networks"]["none"]] {
        for nothing in ["Ports", "Gateway", "IPAddress", "MacAddress", "GlobalIPv6Address", "Links", "Aliases"] {
            assert!(is_nothing(&place[nothing]), "{nothing}: {place}");
        }
    }
    assert_eq!(
        (&seen["Name"], &seen["State"]["Status"]),
        (&json!(format!("/sluice-{}.0", expected.id)), &json!("running"))
    );

    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish().await.expect(143);
    sluice.assert_nothing_left().await;
}
