//! Files, artifacts and audit records of runs, over the API.

use std::fs;
use std::os::unix::fs::MetadataExt;

use sluice_testkit::{PATIENCE, poll};

use super::*;

const PATH: &str = "/api/v1/sandboxes";

#[tokio::test]
async fn files_go_in_and_out_of_a_live_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "printf 'a\\nb' > report; mkdir d; ln -s /etc/passwd d/link; while [ ! -e d/go ]; do sleep 0.05; done; \
                  id -u; stat -c %u:%a d/go; head -c 3 d/go";
    let id = daemon.create(shell(script)).await;
    daemon.reaches(&id, "RUNNING").await;
    let files = format!("{PATH}/{id}/files");
    let is_made = poll(PATIENCE, async || daemon.get(&format!("{files}?path=/workspace/d")).await.status == 200);
    assert!(is_made.await, "the program makes it");

    let uid = fs::metadata(work(&sluice, &id)).expect("it is there").uid();
    let mut client = daemon.connect().await;
    let content = vec![b'y'; 5 << 20];
    let written = client.request("PUT", &format!("{files}/workspace/d/go"), &[], &content).await.expect(200);
    daemon.reaches(&id, "COMPLETED").await;

    assert_eq!(written.json()["size"], content.len());
    let output = lines(&daemon.get(&format!("{PATH}/{id}/logs?stream=stdout")).await.expect(200));
    let output: String = output.iter().filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(output, format!("{uid}\n{uid}:644\nyyy"));
    let late = daemon.get(&format!("{files}/workspace/report")).await;
    assert_eq!((late.status, &late.error()["code"]), (410, &json!("workspace_removed")));
}

#[tokio::test]
async fn names_that_change_all_the_time_lead_nowhere() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let program = "import os\n\
                   names = [lambda: open('new', 'w').write('mine'), lambda: os.symlink('/etc/passwd', 'new'),\n\
                   \x20   lambda: os.mkfifo('new'), lambda: os.symlink('../conf/audit.key', 'new'), lambda: os.link('kept', 'new')]\n\
                   open('kept', 'w').write('mine')\n\
                   while True:\n\
                   \x20   for make in names:\n\
                   \x20       try:\n\
                   \x20           make(); os.rename('new', 'x')\n\
                   \x20       except OSError: pass\n";
    let id = daemon.create(json!({"argv": ["python3", "-c", program], "model": "m"})).await;
    daemon.reaches(&id, "RUNNING").await;
    let files = format!("{PATH}/{id}/files");
    let mut client = daemon.connect().await;
    let mut statuses = std::collections::BTreeSet::new();
    for round in 0..600 {
        let answer = client.request("GET", &format!("{files}/workspace/x"), &[], ()).await;
        statuses.insert(answer.status);
        if answer.status == 200 {
            assert!(["mine", "", "put"].contains(&answer.text().as_str()), "{}", answer.text());
        }
        if round % 20 == 0 {
            let written = client.request("PUT", &format!("{files}/workspace/x"), &[], "put").await;
            assert!([200, 409].contains(&written.status), "{}", written.text());
            let listed = client.request("GET", &format!("{files}?path=/workspace"), &[], ()).await;
            assert_eq!(listed.status, 200, "{}", listed.text());
        }
    }
    assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 404, 409].contains(status)), "{statuses:?}");
    assert!(fs::read_to_string("/etc/passwd").expect("it is there").contains("root"));
}

#[tokio::test]
async fn artifacts_outlive_their_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "mkdir out/d; printf result > out/d/a.txt; printf '#!/bin/sh' > out/tool; chmod 700 out/tool; \
                  ln -s /etc/passwd out/link; mkfifo out/p; echo other > elsewhere; while [ ! -e go ]; do sleep 0.05; done";
    let id = daemon.create(shell(script)).await;
    daemon.reaches(&id, "RUNNING").await;
    let path = format!("{PATH}/{id}/artifacts");
    let early = daemon.get(&path).await.expect(200).json();
    assert_eq!((&early["collected"], &early["artifacts"]), (&json!(false), &json!([])));

    // The next daemon knows the run from its directory alone.
    daemon.kill().await;
    let daemon = sluice.serve().await;
    go(&sluice, &id);
    daemon.reaches(&id, "COMPLETED").await;
    let list = daemon.get(&path).await.expect(200).json();

    let artifacts: Vec<_> =
        list["artifacts"].as_array().expect("a list").iter().map(|it| (&it["name"], &it["mode"])).collect();
    assert_eq!(artifacts, [(&json!("tool"), &json!("0755")), (&json!("d/a.txt"), &json!("0644"))], "{list}");
    let digest = "f6a214f7a5fcda0c2cee9660b7fc29f5649e3c68aad48e20e950137c98913a68";
    assert_eq!((&list["artifacts"][1]["size"], &list["left_out"]), (&json!(6), &json!(2)));
    assert_eq!(list["artifacts"][1]["sha256"], digest);
    let content = daemon.get(&format!("{path}/d/a.txt")).await.expect(200);
    assert_eq!((content.text().as_str(), content.header("x-content-type-options")), ("result", Some("nosniff")));
    daemon.get(&format!("{path}/elsewhere")).await.expect(404);
    assert!(sluice.runs().iter().all(|path| path.to_string_lossy().contains(".removed")), "the workspace is gone");
}

#[tokio::test]
async fn audit_records_are_served_while_the_run_works() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id =
        daemon.create(shell(&format!("{CALL}; echo called; while [ ! -e go ]; do sleep 0.05; done; {CALL}"))).await;
    daemon.reaches(&id, "RUNNING").await;
    daemon.logged(&id, 1).await;
    let path = format!("{PATH}/{id}/audit");

    let live = lines(&daemon.get(&path).await.expect(200));
    go(&sluice, &id);
    daemon.reaches(&id, "COMPLETED").await;
    let after = live.last().expect("there are some")["position"].clone();
    let rest = daemon.get(&format!("{path}?after={after}")).await.expect(200);

    let kinds = |lines: &[Value]| lines.iter().map(|line| line["record"]["kind"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(&live), ["open", "intent", "outcome"]);
    assert_eq!(kinds(&lines(&rest)), ["intent", "outcome", "close"]);
    let all = [live, lines(&rest)].concat();
    assert!(all.windows(2).all(|pair| pair[0]["sha256"] == pair[1]["record"]["prev"]), "{all:?}");
    let text = Value::from(all).to_string();
    assert!(!text.contains(upstream.url()) && !text.contains("\"pid\"") && !text.contains("peer"), "{text}");
    let task = daemon.get(&format!("{PATH}/{id}/task")).await.expect(200).json();
    assert_eq!((&task["task"], &task["messages"]), (&Value::Null, &json!([])));
}
