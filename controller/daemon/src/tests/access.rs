//! Rights of each role, on each listener.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use serde_json::json;

use sluice_state::store::{Store, now_us};

use crate::principal::{Principal, Role};
use crate::test_daemon::{TestDaemon, exchange};
use crate::tokens::TokenPrincipals;

const BUDGETS: &str = "/api/v1/budgets";

#[tokio::test]
async fn only_liveness_is_anonymous() {
    let daemon = TestDaemon::start().await;
    let host = &*format!("Host: {}", daemon.address());
    for (path, word) in [("/alive", "alive\n"), ("/ready", "ready\n")] {
        let answer = daemon.bare("GET", path, &[host]).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, word));
        assert_eq!(daemon.over_socket("api.sock", "GET", path, &[]).await.status, 200);
    }
    for path in
        [BUDGETS, "/api/openapi.json", "/", "/nothing", "/alive/", "/alive/x", "/ready?x=/alive&token=slu_admin"]
    {
        let expected = if path.starts_with("/ready") { 200 } else { 401 };
        assert_eq!(daemon.bare("GET", path, &[host]).await.status, expected, "{path}");
        assert_eq!(daemon.over_socket("api.sock", "GET", path, &[]).await.status, expected, "{path}");
    }
    let by_query = format!("{BUDGETS}?token=slu_admin");
    assert_eq!(daemon.bare("GET", &by_query, &[host]).await.error(), (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn root_needs_no_token_on_the_admin_socket() {
    let daemon = TestDaemon::start().await;
    let uid = std::fs::metadata("/proc/self").expect("it is mounted").uid();
    let expected = if uid == 0 { 200 } else { 401 };
    assert_eq!(daemon.over_socket("admin.sock", "GET", BUDGETS, &[]).await.status, expected);
    assert_eq!(daemon.over_socket("api.sock", "GET", BUDGETS, &[]).await.status, 401, "uid counts nowhere else");
}

#[tokio::test]
async fn a_credential_is_judged_alone() {
    let daemon = TestDaemon::with(|settings| settings.limits.failed_login_delay = Duration::ZERO).await;
    let admin = &*daemon.bearer("slu_admin");
    let bad = [
        &["Authorization: Bearer slu_unknown"][..],
        &["Authorization: Bearer"],
        &["Authorization: Basic cm9vdDo="],
        &["Cookie: session=1"],
        &[admin, "Cookie: a=b"],
        &[admin, admin],
    ];
    for headers in bad {
        for path in [BUDGETS, "/alive", "/ready"] {
            let answer = daemon.over_socket("admin.sock", "GET", path, headers).await;
            assert_eq!(answer.status, 401, "{path} {headers:?}: root's own uid does not help");
        }
    }
    let owner = &[&*daemon.bearer("slu_alice")];
    let answer = daemon.over_socket("admin.sock", "GET", "/ready", owner).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ready\n"), "an owner sees no reasons");
    let answer = daemon.over_socket("admin.sock", "GET", "/ready", &[admin]).await;
    assert_eq!(answer.json(), json!({ "status": "ready", "reasons": {} }));
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_once() {
    let daemon = TestDaemon::start().await;
    assert_eq!(daemon.get("slu_alice", BUDGETS).await.status, 200);
    let principal = Principal {
        id: format!("token:{}", daemon.token_id("slu_alice")),
        ..Principal::for_tests(Role::Owner, "alice", &["acct-1"])
    };
    let tokens = TokenPrincipals(Store::open(&daemon.settings.state.join("sluice.db")).expect("it is there"));
    assert!(tokens.is_valid(&principal.id).await.expect("it is there"));
    tokens.0.revoke_token(daemon.token_id("slu_alice"), now_us()).await.expect("it is there");
    assert!(!tokens.is_valid(&principal.id).await.expect("it is there"), "its streams end");
    assert_eq!(daemon.get("slu_alice", BUDGETS).await.error(), (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn foreign_hosts_and_pages_are_refused_before_routing() {
    let daemon = TestDaemon::start().await;
    let own = format!("Host: {}", daemon.address());
    let token = &*daemon.bearer("slu_admin");
    for path in ["/alive", BUDGETS, "/nothing"] {
        for host in ["Host: evil.example", "Host: 127.0.0.1", "Host: evil.example:8787"] {
            assert_eq!(
                daemon.bare("GET", path, &[host, token]).await.error(),
                (421, "wrong_host".to_owned()),
                "{host}"
            );
        }
        assert_eq!(daemon.bare("GET", path, &[token]).await.status, 421, "no host");
        let page = "Origin: http://127.0.0.1:1";
        assert_eq!(daemon.bare("GET", path, &[&own, token, page]).await.error(), (403, "wrong_origin".to_owned()));
        let site = "Sec-Fetch-Site: same-site";
        assert_eq!(daemon.bare("GET", path, &[&own, token, site]).await.status, 403);
    }
    let answer = daemon.bare("OPTIONS", BUDGETS, &[&own, token, &format!("Origin: http://{}", daemon.address())]).await;
    assert_eq!(answer.status, 405);
    assert!(!answer.head.contains("access-control"), "{}", answer.head);
    for header in
        ["cache-control: no-store", "x-content-type-options: nosniff", "content-security-policy: default-src 'none'"]
    {
        assert!(answer.head.contains(header), "{header}: {}", answer.head);
    }
}

#[tokio::test]
async fn sockets_are_for_their_users() {
    let daemon = TestDaemon::start().await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").mode() & 0o7777;
    assert_eq!(mode(&daemon.settings.run_dir), 0o700);
    assert_eq!(mode(&daemon.socket("admin.sock")), 0o600);
    assert_eq!(mode(&daemon.socket("api.sock")), 0o666);
}

/// Changes a budget with these headers, and returns the address that the control log has for it.
async fn recorded_source(daemon: &TestDaemon, forwarded: &[&str]) -> Option<String> {
    let host = format!("Host: {}", daemon.address());
    let token = daemon.bearer("slu_admin");
    let headers = [&[&*host, &*token], forwarded].concat();
    let body = json!({"kind": "set", "usd": "1"}).to_string();
    let stream = tokio::net::TcpStream::connect(daemon.address()).await.expect("it listens");
    let answer = exchange(stream, "PUT", "/api/v1/budgets/acct-1", &headers, Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let lines = daemon.control_log();
    let line = lines.iter().rfind(|line| line.operation == "budget.set");
    line.expect("each change is recorded").source.clone()
}

#[tokio::test]
async fn a_forged_forwarded_address_is_ignored() {
    let daemon = TestDaemon::start().await;
    for forged in [
        &["X-Forwarded-For: 203.0.113.9"][..],
        &["Forwarded: for=203.0.113.9", "X-Real-IP: 203.0.113.9"],
        &["X-Forwarded-For: 203.0.113.8", "X-Forwarded-For: 203.0.113.9"],
    ] {
        assert_eq!(recorded_source(&daemon, forged).await.as_deref(), Some("127.0.0.1"), "{forged:?}");
    }
}

#[tokio::test]
async fn behind_a_proxy_the_last_hop_alone_counts() {
    let proxied = Some("https://sluice.example.org".to_owned());
    let daemon = TestDaemon::with(|settings| settings.behind_proxy = proxied).await;
    for (forwarded, expected) in [
        (&["X-Forwarded-For: 10.0.0.1, 203.0.113.9"][..], "203.0.113.9"),
        (&["X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 203.0.113.9"], "203.0.113.9"),
        (&["X-Forwarded-For: 203.0.113.9,2001:db8::1"], "2001:db8::1"),
        // No address, and no identity of another header.
        (&["X-Forwarded-For: 203.0.113.9, admin"], "127.0.0.1"),
        (&["Forwarded: for=203.0.113.9", "X-Real-IP: 203.0.113.9", "X-Forwarded-User: root"], "127.0.0.1"),
    ] {
        assert_eq!(recorded_source(&daemon, forwarded).await.as_deref(), Some(expected), "{forwarded:?}");
    }
}
