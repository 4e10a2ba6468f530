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

#[tokio::test]
async fn files_and_a_piped_message_are_given_again() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let (first, piped) = (unique_run_id("files"), unique_run_id("piped"));
    let (input, variables) = (sluice.file("input.txt", "text\n"), sluice.file("vars.env", "WORD=one\n"));
    let repo = sluice.dir().join("repo");
    fs::create_dir(&repo).expect("there is room");
    let patch = sluice.dir().join("out.diff");
    let (repo, shown) = (repo.display().to_string(), patch.display().to_string());
    let words = ["--quiet", "--run-id", &first, "--repo", &repo, "--patch", &shown, "--file", &input];
    let program =
        ["--env-file", &variables, "--", "sh", "-c", "cp /workspace/input.txt repo/new; echo $WORD >> repo/new"];
    sluice.run(words).args(program).finish().await.expect(0);
    let made = fs::read_to_string(&patch).expect("a patch");
    fs::remove_file(&patch).expect("it is ours");

    sluice.command(["rerun", "--quiet", &first]).env("WORD", "one").finish().await.expect(0);
    sluice.run(["--quiet", "--run-id", &piped, "--model", "m"]).stdin("from a pipe").finish().await.expect(0);
    sluice.command(["rerun", "--quiet", &piped]).finish().await.expect(0);

    assert!(made.contains("+text\n+one\n"), "{made}");
    assert_eq!(fs::read_to_string(&patch).expect("the same patch"), made);
    let bodies: Vec<Value> = upstream.requests().iter().map(ReceivedRequest::json).collect();
    assert_eq!(bodies[0]["messages"], json!([{"role": "user", "content": "from a pipe"}]));
    assert_eq!(bodies[0]["messages"], bodies[1]["messages"]);
    sluice.assert_nothing_left().await;
}
