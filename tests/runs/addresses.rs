//! The address of the upstream, as `sluice` reads, shows and resolves it.

use sluice_testkit::tls::TlsTerminator;
use sluice_testkit::{Sluice, Upstream};

#[tokio::test]
async fn no_command_shows_the_password_of_an_address() {
    for url in
        ["http://u:pw-secret@h", "u:pw-secret@h", "http://u:pw-secret@pw-secret@h:1/x", "http://h/?key=pw-secret"]
    {
        let sluice = Sluice::with(url, "sk-1");
        for command in [&["preflight"][..], &["preflight", "--json"], &["run", "--", "true"], &["config", "show"]] {
            let ran = sluice.command(command).finish().await;

            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains("secret"), "{url}, {command:?}: {said}");
            assert!(said.contains("(redacted)") || command[0] == "run", "{url}, {command:?}: {said}");
        }
    }
}

/// Keeps the C library of a command from reading `/etc/hosts`, but leaves the file itself.
const WITHOUT_NSS: &str = r#"
printf 'hosts: dns\n' > "$0.nsswitch" && printf '127.0.0.1 gateway.sluice.test\n' > "$0.hosts"
mount --bind "$0.nsswitch" /etc/nsswitch.conf && mount --bind "$0.hosts" /etc/hosts || exit 99
! timeout 2 getent ahosts gateway.sluice.test || exit 98
exec "$@""#;

#[tokio::test]
async fn a_name_resolves_in_sluice_as_in_its_sidecar() {
    let upstream = Upstream::json(200, serde_json::json!({"data": []})).start().await;
    let sluice = Sluice::to(&upstream);
    let file = sluice.dir().join("etc").display().to_string();
    let url = upstream.url().replace("127.0.0.1", "gateway.sluice.test");

    let preflight = sluice.command(["preflight", "--upstream", &url]);
    let ran = preflight.wrapper(["unshare", "--mount", "sh", "-c", WITHOUT_NSS, &file]).finish().await;

    let says = |name: &str| ran.stdout.lines().any(|line| line.starts_with(&format!("pass  {name} ")));
    // Preflight checks the key through a sidecar.
    assert!(says("upstream") && says("upstream key"), "{} {}", ran.stdout, ran.stderr);
}

#[tokio::test]
async fn a_base_url_of_an_sdk_is_an_address() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    for ending in ["/v1", "/v1/"] {
        let url = format!("{}{ending}", upstream.url());
        let script =
            "curl --silent --fail --json '{\"model\":\"m\",\"messages\":[]}' $OPENAI_BASE_URL/chat/completions";
        sluice.run(["--upstream", &url, "--", "sh", "-ec", script]).finish().await.expect(0);
        assert_eq!(upstream.requests().last().expect("a call").target, "/v1/chat/completions");

        let preflight = sluice.command(["preflight", "--upstream", &url]).finish().await;
        assert!(preflight.stdout.contains("pass  upstream key "), "{} {}", preflight.stdout, preflight.stderr);
        assert!(!preflight.stdout.contains("without /v1"), "{}", preflight.stdout);
    }
}

#[tokio::test]
async fn a_private_authority_is_named_by_a_file() {
    let upstream = Upstream::chat("hello").start().await;
    let tls = TlsTerminator::start(&upstream, "DNS:localhost", "2");
    let sluice = Sluice::with(&tls.url("localhost"), "sk-some-key");
    let call = ["--model", "m", "hello"];

    let untrusted = sluice.command(["preflight"]).finish().await.expect(1);
    let trusted = sluice.run(["--ca", &tls.ca()]).args(call).finish().await.expect(0);
    let by_variable = sluice.run(call).env("SLUICE_CA", tls.ca()).finish().await.expect(0);
    let missing = sluice.run(["--ca", "/nowhere/ca.pem"]).args(call).finish().await.expect(125);

    assert!(untrusted.stdout.contains("name its authority with --ca"), "{}", untrusted.stdout);
    assert_eq!((trusted.stdout.as_str(), by_variable.stdout.as_str()), ("hello\n", "hello\n"));
    assert!(missing.stderr.contains("--ca") && missing.stderr.contains("/nowhere/ca.pem"), "{}", missing.stderr);
    assert_eq!(upstream.requests().len(), 2);
    sluice.assert_nothing_left().await;
}

/// `SLUICE_CA` is for the upstream.
#[tokio::test]
async fn an_unknown_authority_of_a_server_names_the_flag() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let [tls, other] = [1, 2].map(|_| TlsTerminator::start(&upstream, "DNS:localhost", "2"));
    let words = ["top", "--server", &tls.url("localhost")];

    let command = sluice.command(words).env("SLUICE_CA", tls.ca()).env("SSL_CERT_FILE", other.ca());
    let untrusted = command.finish().await.expect(125);
    let trusted = sluice.command(words).args(["--ca", &tls.ca()]).finish().await;

    assert!(untrusted.stderr.contains("; name its authority with --ca FILE"), "{}", untrusted.stderr);
    assert!(!trusted.stderr.contains("cannot connect"), "{}", trusted.stderr);
    assert!(!upstream.requests().is_empty(), "the named authority is trusted");
}

#[tokio::test]
async fn metadata_of_operator_and_run_stand_together() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);

    sluice.run(["--metadata", r#"{"team":"search"}"#, "--model", "m", "hello"]).finish().await.expect(0);
    let refused = sluice.run(["--metadata", "team=search", "--model", "m", "hello"]).finish().await.expect(125);

    let requests = upstream.requests();
    let sent = requests[0].header("x-litellm-metadata").expect("every call has them");
    assert!(sent.contains(r#""team":"search""#) && sent.contains(r#""run_id":"#), "{sent}");
    assert!(refused.stderr.contains("--metadata"), "{}", refused.stderr);
    assert_eq!(requests.len(), 1);
}
