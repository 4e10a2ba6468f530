//! The peer check: the kernel's identity of the caller.

use serde_json::json;
use sluice_testkit::{Sidecar, Upstream};

use super::{CHAT, undeclared};

#[tokio::test]
async fn only_the_listed_users_may_call() {
    let upstream = Upstream::chat("hello").start().await;
    let me = nix::unistd::getuid().as_raw().to_string();
    for (uids, allowed) in
        [(vec![], true), (vec![me.as_str()], true), (vec!["54321", me.as_str()], true), (vec!["54321"], false)]
    {
        let flags = uids.iter().flat_map(|uid| ["--peer-uid", uid]);
        let sidecar = Sidecar::to(&upstream).args(flags).start().await;

        let call = sidecar.post(CHAT, undeclared()).await;
        let health = sidecar.get("/health").await;

        if allowed {
            call.expect(200);
            health.expect(200);
            let peer = sidecar.audit_with("outcome", 1).await.only_call().intent["peer"].clone();
            assert_eq!(peer, json!({"uid": nix::unistd::getuid().as_raw(), "pid": std::process::id()}));
        } else {
            call.expect_refusal(403, "peer_not_allowed");
            health.expect_refusal(403, "peer_not_allowed");
            sidecar.stop().await;
            assert_eq!(sidecar.audit().refused_reasons(), ["peer_not_allowed", "peer_not_allowed"]);
        }
    }
}

#[tokio::test]
async fn the_kernel_identifies_another_user() {
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--peer-uid", "54321"]).start().await;
    let socket = sidecar.socket().display().to_string();
    let call = |uid: &str| {
        let mut curl = std::process::Command::new("setpriv");
        curl.args([&format!("--reuid={uid}"), "--clear-groups", "curl", "-s", "--max-time", "90", "-o", "/dev/null"]);
        curl.args(["-w", "%{http_code}", "--unix-socket", &socket, "http://localhost/v1/chat/completions"]);
        curl.args(["-H", "x-uid: 54321", "-d", "{\"model\":\"m\",\"messages\":[]}"]).current_dir("/");
        tokio::task::spawn_blocking(move || curl.output().expect("curl and setpriv are there"))
    };

    let (wrong, right) = (call("54322").await, call("54321").await);

    let said = [wrong, right].map(|output| String::from_utf8_lossy(&output.expect("it ran").stdout).into_owned());
    assert_eq!(said, ["403", "200"]);
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.audit().only_call().intent["peer"]["uid"], 54321);
}
