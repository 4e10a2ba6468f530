//! Remains of a run: artifacts, records of its audit file, its task.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use sluice_state::records::{Artifact, ArtifactList};

use crate::test_daemon::TestDaemon;

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proxy/contract/tests/golden").join(name)
}

#[tokio::test]
async fn artifacts_are_listed_and_read_by_their_names() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let path = format!("/api/v1/sandboxes/{id}/artifacts");
    let early = daemon.get("slu_viewer", &path).await;
    assert_eq!(early.error(), (404, "not_found".to_owned()), "a viewer of another owner");
    let early = daemon.get("slu_alice", &path).await.json();
    assert_eq!((&early["collected"], &early["artifacts"]), (&json!(false), &json!([])));

    let record = daemon.running.context.layout.records().of(&format!("{id}.0").parse().expect("a key"));
    let artifact = |path: &[u8], mode, modified| Artifact {
        path: path.to_vec(),
        size: 4,
        mode,
        sha256: "aa".to_owned(),
        modified,
    };
    let list = ArtifactList {
        artifacts: vec![artifact(b"a/b.txt", 0o644, 0), artifact(b"x\xff", 0o755, i64::MAX), artifact(b"..", 0o644, 0)],
        left_out: 3,
        ..ArtifactList::default()
    };
    for number in 0..3 {
        record.create_artifact(number).and_then(|mut file| write!(file, "one{number}")).expect("there is room");
    }
    record.write_artifacts(&list).expect("there is room");
    daemon.end(&id).await;

    let first = daemon.get("slu_alice", &format!("{path}?limit=2")).await.json();
    assert_eq!((&first["collected"], &first["left_out"], &first["next_cursor"]), (&json!(true), &json!(3), &json!(2)));
    let expected = json!({ "name": "a/b.txt", "size": 4, "mode": "0644", "sha256": "aa", "modified_at": "1970-01-01T00:00:00.000000Z" });
    assert_eq!(first["artifacts"][0], expected);
    assert_eq!(
        (&first["artifacts"][1]["name_base64"], &first["artifacts"][1]["modified_at"]),
        (&json!("eP8="), &Value::Null)
    );
    let last = daemon.get("slu_alice", &format!("{path}?limit=2&cursor=2")).await.json();
    assert_eq!((last["artifacts"].as_array().map(Vec::len), &last["has_more"]), (Some(1), &json!(false)));
    let beyond = daemon.get("slu_alice", &format!("{path}?cursor=99999999999")).await.json();
    assert_eq!((&beyond["artifacts"], &beyond["has_more"]), (&json!([]), &json!(false)));

    for (name, content) in [("a/b.txt", "one0"), ("a%2Fb.txt", "one0"), ("x%ff", "one1"), ("%2e%2e", "one2")] {
        let answer = daemon.get("slu_alice", &format!("{path}/{name}")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, content), "{name}");
        assert!(answer.head.contains("content-disposition: attachment"), "{}", answer.head);
    }
    for name in ["a", "b.txt", "../artifacts.json", "%2e%2e%2fartifacts.json", "artifact.0", "/a/b.txt", "a//b.txt"] {
        let answer = daemon.get("slu_alice", &format!("{path}/{name}")).await;
        assert_eq!(answer.error(), (404, "no_file".to_owned()), "{name}");
    }
    record.remove().expect("it is ours");
    for target in [path.clone(), format!("{path}/a/b.txt")] {
        assert_eq!(daemon.get("slu_alice", &target).await.error(), (410, "record_removed".to_owned()));
    }
}

#[tokio::test]
async fn records_of_calls_are_shown_without_the_host() {
    let daemon = TestDaemon::with_runs().await;
    let (id, paths) = daemon.working_run().await;
    let path = format!("/api/v1/sandboxes/{id}/audit");
    assert_eq!(daemon.get("slu_alice", &path).await.body, "", "no call was made");
    std::fs::create_dir_all(paths.audit.parent().expect("a directory")).expect("there is room");
    std::fs::copy(golden("signed.jsonl"), &paths.audit).expect("there is room");

    let answer = daemon.get("slu_alice", &path).await;
    let lines: Vec<Value> = answer
        .body
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect("one object in a line"))
        .collect();
    assert_eq!((answer.status, &lines[0]["record"]["kind"]), (200, &json!("open")));
    assert_eq!(lines[0]["sha256"], lines[1]["record"]["prev"]);
    for secret in ["127.0.0.1", "\"pid\"", "\"uid\"", "boot_id", "upstream", "peer"] {
        assert!(!answer.body.contains(secret), "{secret}: {}", answer.body);
    }
    let last = lines.last().expect("there are some")["position"].as_u64().expect("a number");
    assert_eq!(daemon.get("slu_alice", &format!("{path}?after={last}")).await.body, "");
    for query in ["?after=1", "?after=18446744073709551615", "?limit=0", "?limit=1001", "?follow=true"] {
        assert_eq!(daemon.get("slu_alice", &format!("{path}{query}")).await.status, 422, "{query}");
    }
    assert_eq!(daemon.get("slu_bob", &path).await.error(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn the_task_of_a_run_is_shown() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "fix it" })).await;
    let shown = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/task")).await.json();
    let expected = json!({
        "sandbox_id": id, "task": "fix it", "messages": [{ "role": "user", "content": "fix it" }], "argv": null,
        "repository": null
    });
    assert_eq!(shown, expected);
    let id = daemon.create("slu_alice", json!({ "argv": ["true"] })).await;
    let shown = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/task")).await.json();
    assert_eq!((&shown["task"], &shown["messages"], &shown["argv"]), (&Value::Null, &json!([]), &json!(["true"])));
    assert_eq!(
        daemon.get("slu_bob", &format!("/api/v1/sandboxes/{id}/task")).await.error(),
        (404, "not_found".to_owned())
    );
}
