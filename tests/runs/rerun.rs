//! `sluice rerun`: the request of an earlier run, once more.

use std::fs;

use serde_json::{Value, json};
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{ReceivedRequest, Sluice, Upstream};

#[tokio::test]
async fn the_same_request_is_made_again() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let (first, second) = (unique_run_id("first"), unique_run_id("second"));
    let data = sluice.dir().join("data");
    fs::create_dir(&data).expect("there is room");
    fs::write(data.join("file"), "text").expect("there is room");
    let volume = format!("{}:/data", data.display());
    let words =
        ["--quiet", "--run-id", &first, "--account", "acct-1", "--timeout", "9m", "-v", &volume, "-e", "WORD=one"];
    let program = ["--max-calls", "3", "--", "sh", "-c", "cat /data/file; echo $WORD"];
    let ran = sluice.run(words).args(program).finish().await.expect(0);

    let missing = sluice.command(["rerun", &first]).finish().await.expect(125);
    let again =
        sluice.command(["rerun", "--quiet", "--run-id", &second, &first]).env("WORD", "two").finish().await.expect(0);

    assert_eq!((ran.stdout.as_str(), again.stdout.as_str()), ("textone\n", "texttwo\n"));
    assert!(missing.stderr.contains("set WORD in the environment"), "{}", missing.stderr);
    let request = async |run: &str| -> Value {
        sluice.command(["inspect", "--json", run]).finish().await.expect(0).value()["request"].clone()
    };
    let (one, two) = (request(&first).await, request(&second).await);
    assert_eq!(two["settings"]["max_calls"], json!("3"));
    for name in ["account", "argv", "volumes", "settings", "image", "variables", "upstream"] {
        assert_eq!(one[name], two[name], "{name}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn messages_are_asked_again_with_another_model() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("asked");
    let messages = sluice.file("chat.json", r#"[{"role":"user","content":"one"},{"role":"user","content":"two"}]"#);
    sluice.run(["--quiet", "--run-id", &run, "--model", "m", "--messages", &messages]).finish().await.expect(0);
    fs::remove_file(&messages).expect("it is ours");

    let again = sluice.command(["rerun", "--quiet", "--model", "other", &run]).finish().await.expect(0);

    assert_eq!(again.stdout, "hello\n");
    let bodies: Vec<Value> = upstream.requests().iter().map(ReceivedRequest::json).collect();
    let models: Vec<_> = bodies.iter().map(|body| body["model"].clone()).collect();
    assert_eq!(models, [json!("m"), json!("other")]);
    assert_eq!(bodies[0]["messages"], bodies[1]["messages"]);
    sluice.assert_nothing_left().await;
}
