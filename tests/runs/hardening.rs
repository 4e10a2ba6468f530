//! A container's settings, seen from outside and from inside, and the kernel's denials.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use serde_json::{Value, json};

use crate::agents::{kit, without_calls};
use crate::bridge::ByHand;

mod container;
mod sidecar;

use container::is_nothing;

const PROFILE: &str = include_str!("../../deploy/seccomp.json");

#[tokio::test]
async fn a_sandbox_cannot_change_files_or_users() {
    let (sluice, _upstream) = without_calls().await;
    let programs = sluice.dir().join("programs");
    fs::create_dir(&programs).expect("a fresh directory takes another");
    let id = programs.join("id");
    fs::copy("/usr/bin/id", &id).expect("there is an id");
    chown(&id, Some(0), Some(0)).expect("we are root");
    fs::set_permissions(&id, fs::Permissions::from_mode(0o6755)).expect("it is ours");
    let run = sluice.run(["-q", "--volume", &format!("{}:/programs", programs.display())]).args(kit());

    let seen = run.args(["--", "python3", "/kit/agents/inside.py"]).finish().await.expect(0).value();

    let none = "0000000000000000";
    let refused = |errno: &str, places: &[&str]| -> BTreeMap<String, String> {
        places.iter().map(|place| ((*place).to_owned(), errno.to_owned())).collect()
    };
    let mut create =
        refused("EROFS", &["", "/bin", "/etc", "/home", "/llm-sock", "/opt/sluice", "/sys", "/usr/bin", "/var/tmp"]);
    create.extend(refused("EACCES", &["/dev", "/root", "/sys/fs/cgroup"]));
    create.extend(refused("ENOENT", &["/proc"]));
    create.extend(refused("done", &["/dev/shm", "/run", "/tmp", "/workspace"]));
    assert_eq!(seen["create"], json!(create));
    assert_eq!(
        seen["status"],
        json!({
            "Uid": "1001", "Gid": "1001", "Groups": "1001",
            "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
            "NoNewPrivs": "1", "Seccomp": "2",
        })
    );
    assert_eq!(
        seen["init"],
        json!({"Name": "docker-init", "CapEff": none, "CapBnd": none, "NoNewPrivs": "1", "Seccomp": "2"})
    );
    assert_eq!(seen["limits"], json!({"core": [0, 0], "nofile": [4096, 4096]}));
    for (path, came_to) in seen["change"].as_object().expect("an object") {
        // Some kernels have no such file.
        assert!(["EROFS", "ENOENT", "EACCES"].iter().any(|no| came_to == no), "{path}: {came_to}");
    }
    assert_eq!(
        seen["socket"],
        json!({
            "unlink": "EROFS", "rename": "EROFS", "chmod": "EROFS", "symlink": "EROFS", "mkdir": "EROFS",
            "files": ["llm.sock"],
        })
    );
    assert_eq!(
        seen["become"],
        json!({
            "setuid": "EPERM", "setgid": "EPERM", "setgroups": "EPERM", "chroot": "EPERM", "mknod": "EPERM",
            "nice": "EPERM", "core": "not allowed to raise maximum limit", "su": [false, ""],
            "id": [true, "1001"], "setuid id": [true, "1001"], "setgid id": [true, "1001"],
        })
    );
    for (path, shown) in seen["shown"].as_object().expect("an object") {
        let expected = match path.as_str() {
            "/etc/shadow" | "/root" => *shown == "EACCES",
            // Process 1 belongs to the sandbox itself, so these show something.
            "/proc/1/environ" | "/proc/1/root" => !is_nothing(shown),
            _ => is_nothing(shown),
        };
        assert!(expected, "{path}: {shown}");
    }
    let all = json!(["nodev", "noexec", "nosuid"]);
    for place in ["/dev/shm", "/run", "/tmp"] {
        assert_eq!(seen["mounts"][place], all, "{place}");
    }
    assert_eq!(seen["executes"], json!({"/tmp": "EACCES", "/dev/shm": "EACCES", "/workspace": "done"}));
    sluice.assert_nothing_left().await;
}

/// Expected result of each attempt of `denied_calls.py`.
fn expected(attempt: &str) -> &'static str {
    match attempt.split(':').next() {
        Some("abi") => "SIGSYS",
        Some("clone3" | "listmount" | "open_tree_attr" | "statmount") => "ENOSYS",
        _ => "EPERM",
    }
}

#[track_caller]
fn assert_denied(tried: &Value) {
    let tried = tried.as_object().expect("denied_calls.py prints an object");
    let odd: BTreeMap<_, _> = tried.iter().filter(|(attempt, came_to)| *came_to != expected(attempt)).collect();
    assert!(tried.len() > 300 && odd.is_empty(), "of {} attempts: {odd:?}", tried.len());
}

#[tokio::test]
async fn the_sandbox_denies_each_call_of_the_profile() {
    let (sluice, _upstream) = without_calls().await;
    let profile = sluice.dir().join("profile");
    fs::create_dir(&profile).expect("a fresh directory takes another");
    fs::write(profile.join("seccomp.json"), PROFILE).expect("it is ours");
    let run = sluice.run(["-q", "--volume", &format!("{}:/profile", profile.display())]).args(kit());

    let ran = run.args(["--", "python3", "/kit/denied_calls.py", "/profile/seccomp.json"]).finish().await.expect(0);

    assert_denied(&ran.value());
}

/// Returns the capabilities that this test can give to a container, of the ones that every engine knows.
fn our_capabilities() -> Vec<&'static str> {
    const NAMES: [&str; 38] = [
        "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
        "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
        "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
        "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
        "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    ];
    let status = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let bound = status.lines().find_map(|line| line.strip_prefix("CapBnd:\t")).expect("the kernel says so");
    let bound = u64::from_str_radix(bound, 16).expect("a number");
    NAMES.iter().enumerate().filter(|(bit, _)| bound >> bit & 1 == 1).map(|(_, name)| *name).collect()
}

/// In the sandbox, a call may also fail because a capability is missing. Here the program has all capabilities.
#[tokio::test]
async fn the_profile_alone_denies_each_of_its_calls() {
    let profile = concat!("seccomp=", env!("CARGO_MANIFEST_DIR"), "/../deploy/seccomp.json");
    let kit = concat!(env!("CARGO_MANIFEST_DIR"), "/python:/kit:ro");
    let capabilities = our_capabilities();
    let mut flags = vec!["--user", "0:0", "--security-opt", profile, "-v", kit];
    flags.extend(capabilities.iter().flat_map(|name| ["--cap-add", name]));

    let said = ByHand::run(&flags, &["python3", "/kit/denied_calls.py"]).await;

    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_denied(&serde_json::from_str(&said.stdout).expect("JSON"));
}

#[test]
fn each_entry_of_the_profile_has_a_reason() {
    let profile: Value = serde_json::from_str(PROFILE).expect("a profile is JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let entries = profile["syscalls"].as_array().expect("a list");
    let silent: Vec<_> = entries.iter().filter(|entry| entry["comment"].as_str().is_none_or(str::is_empty)).collect();
    assert!(!entries.is_empty() && silent.is_empty(), "{silent:?}");
    // Only the native architecture, and nothing of another inside it.
    for architecture in profile["archMap"].as_array().expect("a list") {
        assert_eq!(architecture["subArchitectures"], json!([]), "{architecture}");
    }
}

#[tokio::test]
async fn everyday_tools_of_agents_work() {
    let (sluice, _upstream) = without_calls().await;

    let run = sluice.run(["-q"]).args(kit()).args(["--", "bash", "/kit/agents/tools.sh"]);
    let ran = run.finish().await.expect(0);

    let tools = [
        "node", "node fetch", "python", "getaddrinfo", "git", "curl", "curl by socket", "socat", "bash", "perl", "tar",
        "flock", "mkfifo", "limits", "nice", "timeout", "setpriv",
    ];
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), tools);
}
