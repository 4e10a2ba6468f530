//! Webhooks of a real daemon, and the code of the guide that verifies their signatures.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use sluice_testkit::tls::TlsTerminator;
use sluice_testkit::{PATIENCE, ReceivedRequest, poll};

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";

/// Writes the settings of a webhook that goes to a receiver on this host.
fn configure(sluice: &Sluice, tls: &TlsTerminator) {
    let secret = sluice.file("hook.secret", SECRET);
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
    let settings = format!(
        "[[webhooks]]\nname = 'ops'\nurl = '{}/hook'\nsecret_files = ['{secret}']\nca = '{}'\nallow_private = true\n\
         types = ['sandbox.*']\n",
        tls.url("localhost"),
        tls.ca()
    );
    sluice.file("sluice.toml", &settings);
}

/// Verifies a message with the function of the guide.
fn verifies(request: &ReceivedRequest, secret: &str) -> bool {
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/serve.md")).expect("it is there");
    let (_, rest) = guide.split_once("```python\n").expect("it has the function");
    let (function, _) = rest.split_once("```").expect("the block ends");
    let headers: Value = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .into_iter()
        .map(|name| (name.to_owned(), json!(request.header(name))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let call = "import json, sys\nprint(verify(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode()))";
    let ran = Command::new("python3")
        .args(["-c", &format!("{function}\n{call}"), secret, &headers.to_string(), &request.text()])
        .output()
        .expect("python3 is there");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout == b"True\n"
}

#[tokio::test]
async fn a_webhook_is_tested_and_verified() {
    let receiver = Upstream::json(200, json!({})).start().await;
    let tls = TlsTerminator::start(&receiver, "DNS:localhost", "2");
    let sluice = Sluice::to(&receiver);
    configure(&sluice, &tls);

    let sent = sluice.command(["webhook", "test", "ops", "--json"]).finish().await.expect(0).value();

    let request = receiver.received().await;
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/hook"));
    assert_eq!(request.header("webhook-id"), sent["message_id"].as_str());
    assert_eq!(request.json()["type"], "webhook.test");
    assert!(verifies(&request, SECRET), "{request:?}");
    assert!(!verifies(&request, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "another secret");
    let altered = ReceivedRequest { body: b"{}".to_vec(), ..request };
    assert!(!verifies(&altered, SECRET));
    let open = sluice.dir().join("hook.secret");
    fs::set_permissions(open, Permissions::from_mode(0o644)).expect("it is ours");
    let refused = sluice.command(["webhook", "test", "ops"]).finish().await.expect(2);
    assert!(refused.stderr.contains("other users can read it"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_killed_daemon_delivers_every_event() {
    let receiver = Upstream::json(200, json!({})).hold_head().start().await;
    let tls = TlsTerminator::start(&receiver, "DNS:localhost", "2");
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    configure(&sluice, &tls);
    let daemon = sluice.serve().await;
    daemon.process().says("may connect to private and loopback addresses").await;
    let begun = async || sluice.command(["webhook", "list", "--json"]).finish().await.expect(0).value();
    assert!(poll(PATIENCE, async || begun().await["webhooks"][0]["position"].is_i64()).await);

    let id = daemon.create(shell("exit 0")).await;
    receiver.held(1).await;
    daemon.kill().await;
    receiver.release();
    let daemon = sluice.serve().await;
    daemon.ended(&id).await;

    let delivered = async || begun().await["webhooks"][0]["waiting"] == 0 && receiver.requests().len() >= 3;
    assert!(poll(PATIENCE, delivered).await, "{:?}", receiver.requests());
    let requests = receiver.requests();
    assert!(requests.iter().all(|request| verifies(request, SECRET)));
    let of = |event_type: &str| -> Vec<_> {
        let of_type = requests.iter().filter(|request| request.json()["type"] == event_type);
        of_type.map(|request| (request.header("webhook-id").map(str::to_owned), request.text())).collect()
    };
    let created = of("sandbox.created");
    assert!(created.len() >= 2 && created.iter().all(|one| *one == created[0]), "one id and body: {created:?}");
    let stopped = of("sandbox.stopped");
    let stopped: Value = serde_json::from_str(&stopped[0].1).expect("it is JSON");
    assert_eq!((&stopped["data"]["state"], &stopped["data"]["sandbox_id"]), (&json!("COMPLETED"), &json!(id)));
    let listed = begun().await;
    let hook = &listed["webhooks"][0];
    assert_eq!((&hook["dead"], &hook["fault"]), (&json!(0), &Value::Null), "{listed}");
    assert!(!listed.to_string().contains("/hook"), "the path may be a credential");
}
