//! The sidecar of a live run: its user, its capabilities, its key, and files that the user cannot reach.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use sluice_contract::{AuditSigner, PrivateKey};
use sluice_testkit::Sluice;
use sluice_testkit::controller::{RunningCommand, unique_run_id};

use crate::agents::without_calls;

/// The default of `sidecar_uid`.
const UIDS: std::ops::RangeInclusive<u32> = 2_000_000_000..=2_000_065_535;

/// `/proc/PID/status`, member by member.
fn status(pid: i32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let members = text.lines().filter_map(|line| line.split_once(':'));
    members.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Returns the pid of a run's sidecar, which has the run id among its arguments.
fn sidecar(sluice: &Sluice, run_id: &str) -> i32 {
    let names = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == run_id.as_bytes())
    };
    sluice.processes().into_iter().find(names).expect("each live run has a sidecar")
}

/// A run that lives until the test ends it.
async fn live<'a>(sluice: &'a Sluice, run_id: &str) -> RunningCommand<'a> {
    let run = sluice.run([
        "-q", "--stop-grace", "0s", "--run-id", run_id, "--timeout", "15m", "--", "sh", "-c", "echo up; sleep 600",
    ]);
    let run = run.spawn();
    run.prints("up\n").await;
    run
}

async fn end(run: RunningCommand<'_>) {
    run.signal(Signal::SIGTERM);
    run.finish().await.expect(143);
}

/// Output of a shell script that this user runs.
fn as_user(uid: u32, script: &str) -> String {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let said = Command::new("setpriv").args(ids).args(["--clear-groups", "sh", "-c", script]).output();
    String::from_utf8_lossy(&said.expect("there is a setpriv").stdout).into_owned()
}

#[tokio::test]
async fn each_live_sidecar_is_a_user_without_capabilities() {
    let (sluice, _upstream) = without_calls().await;
    let ids = [unique_run_id("one"), unique_run_id("two")];
    let runs = (live(&sluice, &ids[0]).await, live(&sluice, &ids[1]).await);

    let uids = ids.each_ref().map(|id| {
        let status = status(sidecar(&sluice, id));
        let none = "0000000000000000";
        for (member, value) in [
            ("CapInh", none),
            ("CapPrm", none),
            ("CapEff", none),
            ("CapBnd", none),
            ("CapAmb", none),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
            ("Groups", ""),
        ] {
            assert_eq!(status[member], value, "{member}");
        }
        let sock = fs::metadata(sluice.state().join("runs").join(format!("{id}.0/sock"))).expect("it was made");
        let (uid, gid) = (sock.uid(), sock.gid());
        assert!(UIDS.contains(&uid) && gid == uid, "{uid}:{gid}");
        assert_eq!([&status["Uid"], &status["Gid"]], [&[uid; 4].map(|id| id.to_string()).join("\t"); 2]);
        uid
    });

    assert_ne!(uids[0], uids[1]);
    end(runs.0).await;
    end(runs.1).await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_sidecars_user_cannot_read_host_files() {
    let (sluice, _upstream) = without_calls().await;
    let ids = [unique_run_id("one"), unique_run_id("two")];
    let runs = (live(&sluice, &ids[0]).await, live(&sluice, &ids[1]).await);
    let uid: u32 =
        status(sidecar(&sluice, &ids[0]))["Uid"].split('\t').next().and_then(|id| id.parse().ok()).expect("an id");
    for id in &ids {
        let audit = fs::metadata(sluice.audit_path(id)).expect("it was made");
        assert_eq!((audit.uid(), audit.mode() & 0o7777), (0, 0o600));
    }

    let (state, own, other) = (sluice.state(), sluice.audit_path(&ids[0]), sluice.audit_path(&ids[1]));
    let [state, own, other] = [&state, &own, &other].map(|path| path.display().to_string());
    let engine = "/var/run/docker.sock";
    let seen = as_user(
        uid,
        &format!(
            "id -u; for path in {other} {own} {state} {state}/audit {state}/keys/signing {state}/sluice.db; do \
                [ ! -r $path ] || echo read $path; [ ! -w $path ] || echo write $path; \
                [ ! -d $path ] || ls $path; done 2>/dev/null; \
             rm -f {other} 2>/dev/null && echo removed; [ ! -e {engine} ] || [ ! -w {engine} ] || echo {engine}"
        ),
    );

    assert_eq!(seen, format!("{uid}\n"));
    assert!(Path::new(&other).exists());
    end(runs.0).await;
    end(runs.1).await;
    sluice.assert_nothing_left().await;
}

/// Returns true if these bytes are in the memory of a process.
fn remembers(pid: i32, wanted: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs, and we are root");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("it runs, and we are root");
    maps.lines().any(|line| {
        let (range, rights) = line.split_once(' ').expect("a range and its rights");
        let (from, to) = range.split_once('-').expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let (from, to) = (number(from), number(to));
        let mut bytes = vec![0; usize::try_from(to - from).expect("it fits in memory")];
        // Some ranges belong to the kernel.
        let is_read = rights.starts_with("rw") && memory.read_exact_at(&mut bytes, from).is_ok();
        is_read && bytes.windows(wanted.len()).any(|window| window == wanted)
    })
}

/// The seed of a key file, as bytes.
fn seed(file: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex digits") as u8;
    file[..64].chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[tokio::test]
async fn a_sidecar_has_the_key_of_its_run_alone() {
    let (sluice, _upstream) = without_calls().await;
    let id = unique_run_id("keyed");
    let run = live(&sluice, &id).await;
    let path = sluice.state().join("runs").join(format!("{id}.0/conf/audit.key"));
    let meta = fs::metadata(&path).expect("it was made");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o600));
    let own = fs::read(&path).expect("we are root");
    let of_state = fs::read(sluice.state().join("keys/signing")).expect("we are root");
    let signer = AuditSigner::parse(&own).expect("a key file");
    let certificate = signer.certificate().expect("it is certified").clone();
    let state_key = PrivateKey::parse(&of_state).expect("a key").public();
    assert!(state_key.certifies(&id, 0, &certificate));

    let pid = sidecar(&sluice, &id);
    assert!(remembers(pid, &seed(&own)), "the search finds the key that is there");
    assert!(!remembers(pid, &seed(&of_state)) && !remembers(pid, &of_state[..64]), "the key of all runs");

    end(run).await;
    assert!(!path.exists(), "it goes with the run");
    let close = sluice.audit(&id).close().clone();
    assert_eq!(close["key_id"], signer.key().public().id());
    assert_eq!(close["certificate"], serde_json::to_value(&certificate).expect("it is a record"));
    sluice.command(["audit", "verify", &id]).finish().await.expect(0);
    sluice.assert_nothing_left().await;
}
