//! Logins of browsers, and what their sessions may do.

use serde_json::{Value, json};
use sluice_state::store::now_us;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::document::operations;
use crate::run_policy::RunPolicy;
use crate::test_daemon::{TestAnswer, TestDaemon, exchange, policy, read_answer};

const CODES: &str = "/api/v1/login-codes";
const CONFIRM: &str = "/login/confirm";

/// A browser that is logged in.
pub(super) struct Browser<'a> {
    daemon: &'a TestDaemon,
    /// The header with its cookie.
    pub(super) cookie: String,
}

impl Browser<'_> {
    async fn send(&self, method: &str, path: &str, body: Option<&Value>, headers: &[&str]) -> TestAnswer {
        let stream = TcpStream::connect(self.daemon.address()).await.expect("it listens");
        let host = format!("Host: {}", self.daemon.address());
        let headers = [&[&*host, &*self.cookie], headers].concat();
        exchange(stream, method, path, &headers, body.map(Value::to_string).as_deref()).await
    }

    pub(super) async fn api(&self, method: &str, path: &str, body: Option<&Value>) -> TestAnswer {
        self.send(method, path, body, &["X-Sluice: 1"]).await
    }
}

/// Sends a form to the daemon's own address.
async fn form(daemon: &TestDaemon, path: &str, headers: &[&str], body: &str) -> TestAnswer {
    form_to(daemon, &daemon.address().to_string(), path, headers, body).await
}

/// Sends a form to a host.
async fn form_to(daemon: &TestDaemon, host: &str, path: &str, headers: &[&str], body: &str) -> TestAnswer {
    let mut stream = TcpStream::connect(daemon.address()).await.expect("it listens");
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.expect("it reads");
    read_answer(stream).await
}

fn own_origin(daemon: &TestDaemon) -> String {
    format!("Origin: http://{}", daemon.address())
}

/// Returns a new code.
async fn code(daemon: &TestDaemon, token: &str, admin: bool) -> String {
    let answer = daemon.request(token, "POST", CODES, Some(&json!({ "admin": admin }))).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["code"].as_str().expect("a code").to_owned()
}

async fn confirm(daemon: &TestDaemon, code: &str, headers: &[&str]) -> TestAnswer {
    form(daemon, CONFIRM, &[&[&*own_origin(daemon)], headers].concat(), &format!("code={code}")).await
}

/// Returns the header with the cookie that an answer sets.
fn cookie(answer: &TestAnswer) -> String {
    assert_eq!(answer.status, 303, "{answer:?}");
    let set = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    format!("Cookie: {}", set.split(';').next().expect("a value"))
}

pub(super) async fn log_in<'a>(daemon: &'a TestDaemon, token: &str, admin: bool) -> Browser<'a> {
    let code = code(daemon, token, admin).await;
    Browser { daemon, cookie: cookie(&confirm(daemon, &code, &[]).await) }
}

#[tokio::test]
async fn a_code_logs_one_browser_in_by_a_click() {
    let daemon = TestDaemon::start().await;
    let host = &*format!("Host: {}", daemon.address());
    let code = code(&daemon, "slu_alice", false).await;
    let text = format!("code={code}");
    for _ in 0..2 {
        assert_eq!(daemon.bare("GET", "/login", &[host]).await.status, 200, "a scanner of links uses nothing up");
    }
    // A file of this machine opens the page, twice: its origin is null.
    let file = ["Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    for _ in 0..2 {
        let page = form(&daemon, "/login", &file, &text).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.body.contains("Log in as alice (owner)") && !page.head.contains("set-cookie"), "{page:?}");
        let policy = "style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; \
                      base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
        assert!(page.head.contains(policy) && page.head.contains("default-src 'none'; script-src 'self' 'sha256-"));
        assert!(!page.head.contains("unsafe-") && page.head.contains("referrer-policy: same-origin"), "{}", page.head);
    }
    let foreign = ["Origin: http://127.0.0.1:1", "Origin: null", "Origin: http://evil.example"];
    for origin in foreign {
        let answer = form(&daemon, CONFIRM, &[origin], &text).await;
        assert_eq!(answer.error(), (403, "wrong_origin".to_owned()), "{origin}");
    }
    assert_eq!(form(&daemon, CONFIRM, &[], &text).await.error(), (403, "wrong_origin".to_owned()), "no origin");
    assert_eq!(form(&daemon, "/login", &["Origin: http://evil.example"], &text).await.status, 403);

    let first = confirm(&daemon, &code, &[]).await;
    let second = confirm(&daemon, &code, &[]).await;

    let set = first.head.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    assert!(set.starts_with(&format!("set-cookie: sluice-{}=sls_", daemon.address().port())), "{set}");
    assert!(set.ends_with("; path=/; max-age=43200; httponly; samesite=strict"), "{set}");
    assert!(first.head.contains("\r\nlocation: /\r\n") || first.head.contains("\nlocation: /\r"), "{}", first.head);
    assert_eq!(second.status, 401, "{second:?}");
    let browser = Browser { daemon: &daemon, cookie: cookie(&first) };
    assert!(browser.send("GET", "/", None, &[]).await.head.contains("location: /sandboxes"));
    let page = browser.send("GET", "/sandboxes", None, &[]).await;
    assert!(page.status == 200 && page.body.contains("alice (owner)"), "{page:?}");
}

#[tokio::test]
async fn a_session_is_who_made_its_code() {
    let daemon = TestDaemon::with_runs().await;
    let browser = log_in(&daemon, "slu_alice", false).await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let foreign = daemon.create("slu_bob", json!({ "task": "x" })).await;

    let who = browser.api("GET", "/api/v1/session", None).await.json();
    assert_eq!((&who["owner"], &who["role"], &who["way"]), (&json!("alice"), &json!("owner"), &json!("session")));
    assert!(who["expires_at"].is_string(), "{who}");
    assert_eq!(browser.api("GET", &format!("/api/v1/sandboxes/{id}"), None).await.status, 200);
    assert_eq!(browser.api("GET", &format!("/api/v1/sandboxes/{foreign}"), None).await.status, 404);
    assert!(browser.send("GET", &format!("/sandboxes/{id}"), None, &[]).await.body.contains(&id));
    assert_eq!(browser.send("GET", &format!("/sandboxes/{foreign}"), None, &[]).await.status, 404);
    let created = browser.api("POST", "/api/v1/sandboxes", Some(&json!({ "task": "x" }))).await;
    assert_eq!(created.status, 201, "{created:?}");
    for (path, body) in [("/api/v1/sandboxes", None), ("/api/v1/sandboxes", Some(json!({ "task": "x" })))] {
        let method = if body.is_some() { "POST" } else { "GET" };
        for mark in [&[][..], &["X-Sluice: 0"], &["X-Sluice: 1", "X-Sluice: 1"]] {
            let answer = browser.send(method, path, body.as_ref(), mark).await;
            assert_eq!(answer.error(), (403, "x_sluice_required".to_owned()), "{method} {path}");
        }
    }
    for (method, path, error) in [
        ("GET", "/no-such-page", (404, "not_found")),
        ("GET", "/ai/agents", (403, "x_sluice_required")),
        ("POST", "/no-such-page", (403, "x_sluice_required")),
    ] {
        let (status, word) = browser.send(method, path, None, &[]).await.error();
        assert_eq!((status, word.as_str()), error, "{method} {path}");
    }
    let bearer = daemon.bearer("slu_alice");
    let both = browser.send("GET", "/api/v1/session", None, &["X-Sluice: 1", &bearer]).await;
    assert_eq!(both.status, 401, "two credentials are none");
    for name in ["admin.sock", "api.sock"] {
        let answer = daemon.over_socket(name, "GET", "/api/v1/session", &[&browser.cookie, "X-Sluice: 1"]).await;
        assert_eq!(answer.status, 401, "{name} has no sessions");
    }
}

#[tokio::test]
async fn a_session_of_another_login_stays() {
    let daemon = TestDaemon::start().await;
    let alice = log_in(&daemon, "slu_alice", false).await;
    let attack = code(&daemon, "slu_bob", false).await;

    let refused = confirm(&daemon, &attack, &[&alice.cookie]).await;
    assert!(refused.status == 409 && refused.body.contains("already logged in"), "{refused:?}");
    assert_eq!(alice.api("GET", "/api/v1/session", None).await.json()["owner"], "alice");
    let renewed = cookie(&confirm(&daemon, &code(&daemon, "slu_alice", false).await, &[&alice.cookie]).await);
    assert_ne!(renewed, alice.cookie, "a login has a new id");
    assert_eq!(alice.api("GET", "/api/v1/session", None).await.status, 401, "and the one before is over");
    assert_eq!(confirm(&daemon, &attack, &[]).await.status, 303, "the code is not used up");
}

#[tokio::test]
async fn a_session_ends_by_logout_and_with_its_token() {
    let daemon = TestDaemon::start().await;
    let browser = log_in(&daemon, "slu_alice", false).await;
    let mut stream = TcpStream::connect(daemon.address()).await.expect("it listens");
    let open = format!(
        "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nX-Sluice: 1\r\n{}\r\n\r\n",
        daemon.address(),
        browser.cookie
    );
    stream.write_all(open.as_bytes()).await.expect("it reads");
    let mut begun = Vec::new();
    while !String::from_utf8_lossy(&begun).contains("snapshot") {
        assert!(stream.read_buf(&mut begun).await.expect("it answers") > 0, "{begun:?}");
    }
    let ended = browser.api("POST", "/api/v1/session/logout", None).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    assert!(ended.head.contains("max-age=0"), "{}", ended.head);
    assert_eq!(browser.api("GET", "/api/v1/session", None).await.error(), (401, "unauthorized".to_owned()));
    // The stream that it had open ends too.
    stream.read_to_end(&mut begun).await.expect("it is closed");
    assert_eq!(browser.send("GET", "/", None, &[]).await.status, 401, "a page, not an error");
    assert_eq!(browser.send("GET", "/login", None, &[]).await.status, 200);

    let browser = log_in(&daemon, "slu_alice", false).await;
    daemon.store().revoke_token(daemon.token_id("slu_alice"), now_us()).await.expect("it is there");
    assert_eq!(browser.api("GET", "/api/v1/session", None).await.status, 401);
    let told: Vec<_> = daemon.control_log().into_iter().map(|line| (line.operation, line.way)).collect();
    let pair = |operation: &str, way: &str| (operation.to_owned(), way.to_owned());
    let expected = [
        pair("daemon.start", "daemon"),
        pair("login_code.create", "bearer"),
        pair("session.create", "session"),
        pair("session.logout", "session"),
        pair("login_code.create", "bearer"),
        pair("session.create", "session"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_session_of_an_admin_is_an_owner_unless_asked() {
    let daemon = TestDaemon::start().await;
    for (token, admin, role) in
        [("slu_admin", false, "owner"), ("slu_admin", true, "admin"), ("slu_viewer", false, "viewer")]
    {
        let browser = log_in(&daemon, token, admin).await;
        assert_eq!(browser.api("GET", "/api/v1/session", None).await.json()["role"], role, "{token}");
        let more = browser.api("POST", CODES, Some(&json!({}))).await;
        assert_eq!(more.error(), (403, "needs_token".to_owned()), "a session makes no other");
    }
    for token in ["slu_alice", "slu_viewer"] {
        let answer = daemon.request(token, "POST", CODES, Some(&json!({ "admin": true }))).await;
        assert_eq!(answer.error(), (403, "admin_only".to_owned()));
    }
    let made = daemon.request("slu_alice", "POST", CODES, Some(&json!({}))).await.json();
    let path = format!("{CODES}/{}", made["login_id"].as_str().expect("an id"));
    assert_eq!(daemon.get("slu_alice", &path).await.json()["state"], "waiting");
    assert_eq!(daemon.get("slu_bob", &path).await.status, 404);
    confirm(&daemon, made["code"].as_str().expect("a code"), &[]).await;
    assert_eq!(daemon.get("slu_alice", &path).await.json()["state"], "used");
    assert_eq!(made["origins"][0], format!("http://{}", daemon.address()));
}

#[tokio::test]
async fn no_secret_is_taken_from_a_query() {
    let daemon = TestDaemon::start().await;
    let code = code(&daemon, "slu_alice", false).await;
    let host = &*format!("Host: {}", daemon.address());
    for path in ["/login", "/"] {
        let answer = daemon.bare("GET", &format!("{path}?code={code}"), &[host]).await;
        assert_eq!(answer.error(), (422, "unknown_field".to_owned()), "{path}");
    }
    let query = format!("{CONFIRM}?code={code}");
    assert_eq!(form(&daemon, &query, &[&own_origin(&daemon)], "").await.status, 422);
    assert_eq!(confirm(&daemon, &code, &[]).await.status, 303, "it was not used up");
    for body in ["", "code=%3Cscript%3E", "code=a&code=b", "code=a&owner=root"] {
        let answer = form(&daemon, CONFIRM, &[&own_origin(&daemon)], body).await;
        assert_eq!(answer.error(), (422, "invalid_field".to_owned()), "{body}");
    }
}

/// Operations that a session does not have, in addition to those of admins.
const WITH_A_TOKEN: [&str; 13] = [
    "POST /api/v1/sandboxes/{id}/git/publish",
    "POST /api/v1/sandboxes/{id}/git/pr",
    "POST /api/v1/sandboxes/{id}/git/pr/merge",
    "POST /api/v1/agents",
    "DELETE /api/v1/agents/{id}",
    "POST /api/v1/agents/{id}/heartbeat",
    "POST /api/v1/sandboxes/{id}/exec",
    "DELETE /api/v1/sandboxes/{id}/exec/{exec_id}",
    "POST /api/v1/sandboxes/{id}/exec/{exec_id}/stdin",
    "POST /api/v1/sandboxes/{id}/exec/{exec_id}/resize",
    "PUT /api/v1/sandboxes/{id}/files/{path}",
    "POST /api/v1/login-codes",
    "GET /api/v1/login-codes/{id}",
];
/// Operation of admins that an admin's session has: it reads figures, and changes nothing.
const READ_BY_ADMINS: &str = "GET /api/v1/monitoring/status";

#[tokio::test]
async fn a_session_never_passes_a_route_of_admins() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| {
        settings.limits.requests_per_second = 10_000;
        settings.limits.request_burst = 10_000;
    })
    .await;
    let id = daemon.create("slu_admin", json!({ "task": "x" })).await;
    let browser = log_in(&daemon, "slu_admin", true).await;
    let mut refused = Vec::new();
    for operation in operations() {
        if operation.is_anonymous || operation.is_stream || operation.path.ends_with("/logout") {
            continue;
        }
        let mut values = vec!["x"; operation.parameters().len()];
        values
            .iter_mut()
            .take(1)
            .for_each(|value| *value = if operation.path.contains("sandboxes") { &id } else { "x" });
        let path = operation.at(&values);
        let path = if path.ends_with("/wait") { format!("{path}?timeout=10ms") } else { path };
        let name = format!("{} {}", operation.method, operation.path);
        let owner = daemon.request("slu_alice", &operation.method, &path, operation.body.as_ref()).await;
        let is_admins = owner.status == 403 && owner.error().1 == "admin_only" && operation.path != "/metrics";
        let answer = browser.api(&operation.method, &path, operation.body.as_ref()).await;
        let needs_token = answer.status == 403 && answer.error().1 == "needs_token";
        let expected = (is_admins && name != READ_BY_ADMINS) || WITH_A_TOKEN.contains(&name.as_str());
        assert_eq!(needs_token, expected, "{name}: {answer:?}");
        refused.extend(needs_token.then_some(name));
    }
    let budgets = "PUT /api/v1/budgets/{account}";
    assert!(refused.iter().any(|refused| refused == budgets), "{refused:?}");
    let foreign = json!({ "task": "x", "owner_id": "bob" });
    let answer = browser.api("POST", "/api/v1/sandboxes", Some(&foreign)).await;
    assert_eq!(answer.error(), (403, "admin_only".to_owned()), "it creates what is its own");
}

/// Pages of the console, with and without a login.
const PAGES: [&str; 8] =
    ["/login", "/sandboxes", "/sandboxes/new", "/approvals", "/agents", "/spending", "/host", "/chat"];

#[tokio::test]
async fn every_page_has_the_headers_of_pages() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let browser = log_in(&daemon, "slu_alice", false).await;
    let stranger = Browser { daemon: &daemon, cookie: "Accept: text/html".to_owned() };
    let run = format!("/sandboxes/{id}");
    for (reader, login) in [(&browser, 200), (&stranger, 401)] {
        for path in PAGES.iter().copied().chain([&*run]) {
            let page = reader.send("GET", path, None, &[]).await;
            let expected = if path == "/login" { 200 } else { login };
            assert_eq!(page.status, expected, "{path}: {page:?}");
            for header in [
                "content-security-policy: default-src 'none'; script-src 'self' 'sha256-",
                "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r",
                "\ncross-origin-opener-policy: same-origin\r",
                "\ncross-origin-resource-policy: same-origin\r",
                "\nreferrer-policy: same-origin\r",
                "\nx-content-type-options: nosniff\r",
                "\ncache-control: no-store\r",
            ] {
                assert!(page.head.contains(header), "{path}: {header}: {}", page.head);
            }
            for word in ["unsafe-", "access-control-", "data:"] {
                assert!(!page.head.contains(word), "{path}: {word}: {}", page.head);
            }
            // Script of the page, or of another origin beside it, must find nothing that logs in.
            let cookie = browser.cookie.rsplit_once('=').expect("a cookie has a value").1;
            for secret in [cookie, "slu_"] {
                assert!(!page.body.contains(secret), "{path}: {secret}: {}", page.body);
            }
        }
    }
}

#[tokio::test]
async fn no_answer_but_an_asset_is_compressed() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_admin", json!({ "task": "x" })).await;
    let browser = log_in(&daemon, "slu_admin", true).await;
    let takes = "Accept-Encoding: gzip, deflate, br, zstd";
    let reads =
        operations().into_iter().filter(|one| one.method == "GET" && !one.is_stream && !one.path.ends_with("/wait"));
    let reads = reads.map(|one| one.at(&vec![id.as_str(); one.parameters().len()]));
    let run = format!("/sandboxes/{id}");
    let mut read = 0;
    for path in reads.chain(PAGES.map(str::to_owned)).chain([run]) {
        let answer = browser.send("GET", &path, None, &["X-Sluice: 1", takes]).await;
        assert!(!answer.head.contains("content-encoding"), "{path}: {}", answer.head);
        read += usize::from(answer.status == 200);
    }
    assert!(read > 20, "{read} answers");
}

#[tokio::test]
async fn assets_are_found_by_their_hash_alone() {
    let daemon = TestDaemon::start().await;
    let host = &*format!("Host: {}", daemon.address());
    let page = daemon.bare("GET", "/login", &[host]).await.body;
    let style = page.split('"').find(|part| part.ends_with("/console.css")).expect("a style");
    let script = style.replace("console.css", "app.js");
    for (path, kind) in [(style, "text/css"), (&script, "text/javascript")] {
        let answer = daemon.bare("GET", path, &[host]).await;
        assert!(answer.status == 200 && answer.head.contains(kind) && answer.head.contains("nosniff"), "{answer:?}");
        let tag = answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag").trim().to_owned();
        let known = daemon.bare("GET", path, &[host, &format!("If-None-Match: {tag}")]).await;
        assert_eq!((known.status, known.body.len()), (304, 0));
        let packed = daemon.bare("GET", path, &[host, "Accept-Encoding: gzip, deflate, br"]).await;
        assert!(packed.head.contains("content-encoding: deflate"), "{}", packed.head);
    }
    for path in [style.replace("/assets/", "/assets/0"), style.replace("console.css", "x.css"), "/assets/x".to_owned()]
    {
        assert_eq!(daemon.bare("GET", &path, &[host]).await.error(), (404, "not_found".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn sessions_with_and_without_tls_are_kept_apart() {
    const PROXY: &str = "sluice.example.org";
    let daemon = TestDaemon::with(|settings| settings.behind_proxy = Some(format!("https://{PROXY}"))).await;
    let (port, own_host) = (daemon.address().port(), format!("Host: {}", daemon.address()));
    let (origin, proxy_host) = (format!("Origin: https://{PROXY}"), format!("Host: {PROXY}"));
    let value = |answer: &TestAnswer| cookie(answer).split_once('=').expect("a value").1.to_owned();

    let text = format!("code={}", code(&daemon, "slu_alice", false).await);
    let secure = form_to(&daemon, PROXY, CONFIRM, &[&origin], &text).await;
    let plain = confirm(&daemon, &code(&daemon, "slu_alice", false).await, &[]).await;

    assert!(secure.head.contains("set-cookie: __host-sluice-443=sls_"), "{}", secure.head);
    assert!(secure.head.contains("; samesite=strict; secure"), "{}", secure.head);
    let status = async |host: &str, name: &str, value: &str| {
        let cookie = format!("Cookie: {name}={value}");
        daemon.bare("GET", "/api/v1/session", &[host, &cookie, "X-Sluice: 1"]).await.status
    };
    let own_name = format!("sluice-{port}");
    for (session, works) in [(value(&secure), [200, 401]), (value(&plain), [401, 200])] {
        assert_eq!(status(&proxy_host, "__Host-sluice-443", &session).await, works[0]);
        assert_eq!(status(&own_host, &own_name, &session).await, works[1]);
    }
    assert_eq!(status(&proxy_host, &own_name, &value(&plain)).await, 401, "the cookie of another port");
}

#[tokio::test]
async fn a_session_says_what_it_may_spend() {
    let policy = RunPolicy { session_approval_max: Some(2_500_000_000), ..policy() };
    let account = policy.account.clone();
    let daemon = TestDaemon::with_policy(Some(policy), |_| {}).await;
    let browser = log_in(&daemon, "slu_admin", false).await;

    let session = browser.api("GET", "/api/v1/session", None).await.json();
    assert_eq!((&session["role"], &session["accounts"]), (&json!("owner"), &json!([account])), "{session}");
    assert_eq!(session["approval_max_usd"], "2.5", "{session}");
    assert_eq!(browser.api("GET", "/api/v1/usage", None).await.status, 200);
    assert_eq!(browser.api("GET", "/api/v1/monitoring/status", None).await.status, 403);
    let token = daemon.get("slu_alice", "/api/v1/session").await.json();
    assert_eq!(token["approval_max_usd"], json!(null), "a token has the limits of its role");
    let viewer = log_in(&daemon, "slu_viewer", false).await;
    assert_eq!(viewer.api("GET", "/api/v1/session", None).await.json()["approval_max_usd"], json!(null));
}

#[tokio::test]
async fn a_session_suspends_its_own_agents_alone() {
    let daemon = TestDaemon::start().await;
    for (token, id) in [("slu_alice", "own"), ("slu_bob", "other")] {
        let made = daemon.request(token, "POST", "/api/v1/agents", Some(&json!({ "agent_id": id }))).await;
        assert_eq!(made.status, 201, "{made:?}");
        let connect = json!({ "target_state": "CONNECTED" });
        let path = format!("/api/v1/agents/{id}/transition");
        assert_eq!(daemon.request(token, "POST", &path, Some(&connect)).await.status, 200);
    }
    let suspend = json!({ "target_state": "SUSPENDED" });
    let own = log_in(&daemon, "slu_alice", false).await;
    assert_eq!(own.api("POST", "/api/v1/agents/own/transition", Some(&suspend)).await.json()["state"], "SUSPENDED");
    let admin = log_in(&daemon, "slu_admin", true).await;
    let other = admin.api("POST", "/api/v1/agents/bob%2Fother/transition", Some(&suspend)).await;
    assert_eq!(other.status, 404, "that of another owner takes a token: {other:?}");
    assert_eq!(daemon.get("slu_bob", "/api/v1/agents/other").await.json()["state"], "CONNECTED");
}
