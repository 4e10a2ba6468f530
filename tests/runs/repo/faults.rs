//! Results that cannot leave a run, or only late: nothing is lost, and no run waits forever.

use std::fs::{self, File};
use std::path::PathBuf;

use nix::sys::signal::Signal;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{PATIENCE, poll};

use super::{in_repository, read, repository, writable};
use crate::agents::without_calls;

#[tokio::test]
async fn a_workspace_that_cannot_be_kept_stays() {
    let (sluice, _upstream) = without_calls().await;
    let run_id = unique_run_id("unkept");
    let script = "echo ready; until [ -e go ]; do sleep 0.01; done; echo result >made";
    let run = sluice.run(["--json", "--run-id", &run_id, "--keep-workspace", "--", "sh", "-c", script]).spawn();
    sluice.started().await;
    let (kept, work) = (sluice.state().join("kept"), sluice.runs().pop().expect("one run").join("work"));
    fs::remove_dir(&kept).and_then(|()| fs::write(&kept, "")).expect("it is empty");
    fs::write(work.join("go"), "").expect("we are root");

    let ran = run.finish().await.expect(125);

    assert!(ran.json().message().contains("cannot keep the workspace"), "{}", ran.stdout);
    assert_eq!(read(work.join("made")), "result\n");
    fs::remove_file(&kept).expect("it is ours");
    let swept = sluice.command(["sweep", "--json"]).finish().await.expect(0).value();
    let workspace = PathBuf::from(swept["leftovers"][0]["workspace"].as_str().expect("it is kept"));
    assert_eq!(read(workspace.join("made")), "result\n", "{swept}");
    assert_eq!(sluice.leftovers().await, []);
}

#[tokio::test]
async fn a_wait_for_a_directory_can_be_cancelled() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let lock = File::open(&path).expect("it is there");
    lock.lock().expect("nobody holds it");
    let run = sluice.run(["--json", "--repo", &writable(&path)]).args(in_repository("echo made >made")).spawn();
    sluice.started().await;
    let work = sluice.runs().pop().expect("one run").join("work/repo/made");

    // The first signal cancels the run if its program still runs; then its results come out, until the next one.
    let is_over = poll(PATIENCE, async || {
        if fs::read_to_string(&work).is_ok_and(|text| !text.is_empty()) {
            run.signal(Signal::SIGINT);
        }
        !run.is_running()
    });
    assert!(is_over.await);

    let ran = run.finish().await;
    let report = ran.json();
    assert!(report.message().contains("the run was cancelled meanwhile, or its time was up"), "{}", ran.stdout);
    assert!(!path.join("made").exists());
    let kept = PathBuf::from(report.workspace.clone().expect("it is kept"));
    assert_eq!(read(kept.join("repo/made")), "made\n");
    assert_eq!(sluice.leftovers().await, []);
}

#[tokio::test]
async fn a_copy_into_a_run_can_be_cancelled() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    for n in 0..20_000 {
        fs::write(path.join(format!("f{n}")), "x").expect("there is room");
    }
    let run = sluice.run(["--json", "--repo", &writable(&path), "--", "sleep", "600"]).spawn();
    assert!(poll(PATIENCE, async || sluice.runs().iter().any(|run| run.join("work/repo").exists())).await);

    run.signal(Signal::SIGINT);

    let ran = run.finish().await.expect(130);
    assert_eq!(ran.json().verdict(), (false, Some("cancelled"), 130), "{}", ran.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_refused_repository_is_no_internal_fault() {
    let (sluice, _upstream) = without_calls().await;
    for (name, text, why) in [
        ("HEAD", "ref: refs/heads/main\n", "is the directory of a git repository itself"),
        (".git/config", "[core\n", "is not a configuration of git"),
    ] {
        let path = repository(&sluice, &name.replace('/', "-"), 1000);
        fs::write(path.join(name), text).and_then(|()| fs::create_dir(path.join("refs"))).expect("it is ours");
        fs::create_dir(path.join("objects")).expect("it is ours");

        let ran = sluice.run(["--json", "--repo", &writable(&path), "--", "true"]).finish().await.expect(125);

        let report = ran.json();
        assert_eq!(report.verdict(), (false, Some("creation_failed"), 125), "{}", ran.stdout);
        let message = report.message();
        assert!(message.contains("cannot bring the files into the run: ") && message.contains(why), "{message}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn runs_that_end_together_do_not_mix() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let names = ["a", "b", "c"];
    let runs = names.map(|name| {
        let script =
            format!("until [ -e ../go ]; do sleep 0.01; done; for n in $(seq 300); do echo {name} >{name}$n; done");
        sluice.run(["-q", "--repo", &writable(&path)]).args(in_repository(&script)).spawn()
    });
    assert!(
        poll(PATIENCE, async || sluice.runs().iter().filter(|run| run.join("work/repo/text").exists()).count() == 3)
            .await
    );
    for run in sluice.runs() {
        fs::write(run.join("work/go"), "").expect("we are root");
    }

    for run in runs {
        run.finish().await.expect(0);
    }

    for name in names {
        for n in 1..=300 {
            assert_eq!(read(path.join(format!("{name}{n}"))), format!("{name}\n"));
        }
    }
    assert_eq!(fs::read_dir(&path).expect("it is there").count(), 905, "nothing else is left");
    sluice.assert_nothing_left().await;
}
