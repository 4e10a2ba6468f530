//! A sandbox reaches its own sidecar, and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::{Value, json};
use sluice_testkit::Sluice;
use sluice_testkit::engine;

use crate::agents::{kit, without_calls};
use crate::bridge::{ByHand, for_sandbox, socket_in};

/// Output of `network.py` in a sandbox that tries these addresses too.
async fn network(sluice: &Sluice, more: &[&str]) -> Value {
    let run = sluice.run(["-q"]).args(kit()).args(["--", "python3", "/kit/agents/network.py"]);
    run.args(more).finish().await.expect(0).value()
}

/// Checks that every attempt of this kind had this outcome.
#[track_caller]
fn assert_all(seen: &Value, kind: &str, outcome: &str) {
    let attempts = seen[kind].as_object().expect("one of the kinds that network.py tells of");
    let odd: BTreeMap<_, _> = attempts.iter().filter(|(_, came_to)| *came_to != outcome).collect();
    assert!(!attempts.is_empty() && odd.is_empty(), "{kind}: {odd:?}");
}

#[tokio::test]
async fn a_sandbox_has_only_loopback_and_no_names() {
    let (sluice, _upstream) = without_calls().await;

    let mut seen = network(&sluice, &[]).await;

    // On a host without IPv6, the error is another one.
    for (address, came_to) in seen["connect_6"].as_object().expect("what came of each") {
        assert!(
            ["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].iter().any(|no| came_to == no),
            "{address}: {came_to}"
        );
    }
    assert_eq!(
        seen["connect"].as_object_mut().expect("an object").remove("127.0.0.53:53"),
        Some(json!("ECONNREFUSED"))
    );
    for (kind, outcome) in [("connect", "ENETUNREACH"), ("send", "ENETUNREACH"), ("resolve", "EAI_AGAIN")] {
        assert_all(&seen, kind, outcome);
    }
    let slowest = seen["slowest"].as_f64().expect("seconds");
    assert!(slowest < 4.0, "an attempt took {slowest} s: it waited, and did not fail immediately");
    assert_eq!(
        [&seen["interfaces"], &seen["routes"], &seen["listeners"], &seen["processes"]],
        [&json!(["lo"]), &json!([]), &json!(["127.0.0.1:8080"]), &json!(["docker-init", "python3", "sh", "socat"])]
    );
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_sandbox_has_one_socket_and_no_dangerous_device() {
    let (sluice, _upstream) = without_calls().await;
    let engine_sockets = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"];

    let seen = network(&sluice, &engine_sockets).await;

    for socket in engine_sockets {
        assert_eq!(seen["connect"][socket], "ENOENT", "{socket}");
    }
    let devices = ["full", "null", "pts/ptmx", "random", "tty", "urandom", "zero"];
    let mut expected: BTreeMap<_, _> = devices.iter().map(|name| (format!("/dev/{name}"), "character")).collect();
    expected.insert("/llm-sock/llm.sock".to_owned(), "socket");
    assert_eq!(seen["special_files"], json!(expected));
}

#[tokio::test]
async fn listeners_of_the_host_are_unreachable() {
    let (sluice, upstream) = without_calls().await;
    let abstract_name = format!("sluice-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&abstract_name).expect("a short name");
    let _listener = UnixListener::bind_addr(&address).expect("the name is unique");
    let socket = sluice.dir().join("host.sock");
    let _other = UnixListener::bind(&socket).expect("a fresh directory takes a socket");
    let socket = socket.display().to_string();
    let tcp = upstream.url().trim_start_matches("http://").to_owned();
    let by_abstract_name = format!("@{abstract_name}");

    let seen = network(&sluice, &[&tcp, &by_abstract_name, &socket]).await;

    let came_to = [&tcp, &by_abstract_name, &socket].map(|address| seen["connect"][address].clone());
    assert_eq!(came_to, ["ECONNREFUSED", "ECONNREFUSED", "ENOENT"]);
    assert_eq!(upstream.requests().len(), 0);
}

/// The namespaces of a process, by kind.
fn namespaces(pid: &str) -> BTreeMap<&'static str, String> {
    let of = |kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("the process runs, and we are root");
    ["cgroup", "ipc", "mnt", "net", "pid", "uts"].map(|kind| (kind, of(kind).display().to_string())).into()
}

#[tokio::test]
async fn runs_share_nothing_with_each_other_or_host() {
    let (sluice, _upstream) = without_calls().await;
    let script = "import socket, signal\n\
        held = [socket.create_server(('127.0.0.1', 9999)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]\n\
        for listener, name in zip(held[1:], ['\\0sluice-sibling', '/tmp/sibling.sock']):\n    \
            listener.bind(name); listener.listen()\n\
        print('listening', flush=True)\n\
        signal.pause()";
    let sibling = sluice.run(["-q", "--stop-grace", "0s", "--timeout", "15m", "--", "python3", "-c", script]).spawn();
    sibling.prints("listening").await;
    let other =
        sluice.run(["-q", "--stop-grace", "0s", "--timeout", "15m", "--", "sh", "-c", "echo up; sleep 600"]).spawn();
    other.prints("up").await;

    let theirs = ["127.0.0.1:9999", "@sluice-sibling", "/tmp/sibling.sock"];
    let seen = network(&sluice, &theirs).await;

    assert_eq!(theirs.map(|address| seen["connect"][address].clone()), ["ECONNREFUSED", "ECONNREFUSED", "ENOENT"]);
    let sockets = seen["special_files"].as_object().expect("an object").iter().filter(|(_, kind)| *kind == "socket");
    assert_eq!(sockets.map(|(path, _)| path).collect::<Vec<_>>(), ["/llm-sock/llm.sock"]);
    let mut all = vec![namespaces("self")];
    for name in sluice.containers().await {
        all.push(namespaces(&engine::inspect(&name).await["State"]["Pid"].to_string()));
    }
    assert_eq!(all.len(), 3);
    for kind in all[0].keys() {
        let different: std::collections::BTreeSet<_> = all.iter().map(|of| &of[kind]).collect();
        assert_eq!(different.len(), 3, "{kind}: {all:?}");
    }
    for run in [sibling, other] {
        run.signal(nix::sys::signal::Signal::SIGTERM);
        run.finish().await.expect(143);
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_bridge_fails_after_the_sidecars_end() {
    let sidecar = for_sandbox().start().await;
    let container = ByHand::start(&["-v", &socket_in(sidecar.dir())], &["sh", "-c", "touch /tmp/up; sleep 600"]).await;
    let ask = "until [ -e /tmp/up ]; do :; done; curl -sS -o /dev/null -w '%{http_code}' http://localhost:8080/health";
    assert_eq!(container.shell(ask).await.stdout, "200");

    sidecar.kill().await;

    assert!(sidecar.socket().exists(), "a killed sidecar leaves its socket");
    let said = container.shell(ask).await;
    // curl reports an empty reply or a reset, depending on which comes first.
    assert!([52, 56].contains(&said.code) && said.stdout == "000", "{said:?}");
}
