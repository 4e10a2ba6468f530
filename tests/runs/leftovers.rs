//! Leftovers of a run after any end: its audit file only.

use std::fs::{self, File};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use serde_json::json;
use sluice_testkit::controller::RunningCommand;
use sluice_testkit::engine::{self, Hold, docker};
use sluice_testkit::upstream::ClosedPort;
use sluice_testkit::{PATIENCE, Sluice, Upstream, poll};

mod signals;

/// A program that ignores signals and runs until it is killed.
const STUBBORN: [&str; 4] = ["--", "sh", "-c", "trap '' TERM INT HUP; echo started; while :; do sleep 60; done"];

#[tokio::test]
async fn only_the_audit_file_of_a_run_remains() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let ends: [(&[&str], i32); 6] = [
        (&["--model", "m", "hello"], 0),
        (&["--", "true"], 0),
        (&["--", "false"], 1),
        (&["--", "no-such-program"], 127),
        (&["--timeout", "500ms", "--", "sleep", "60"], 124),
        (&["--memory", "32m", "--", "tail", "/dev/zero"], 137),
    ];
    for (at, (args, code)) in ends.iter().enumerate() {
        sluice.run(["--quiet"]).args(*args).finish().await.expect(*code);
        assert_eq!(sluice.assert_nothing_left().await.len(), at + 1, "{args:?}");
    }
}

#[tokio::test]
async fn an_images_volume_is_removed_with_its_container() {
    /// An image that is removed at the end.
    struct Image(String);
    impl Drop for Image {
        fn drop(&mut self) {
            let removed = std::process::Command::new("docker").args(["image", "rm", "--force", &self.0]).output();
            assert!(removed.is_ok() || std::thread::panicking());
        }
    }
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let image = Image(format!("sluice-test-volume-{}", std::process::id()));
    let base = engine::lines(["create", "sluice-runtime:latest"]).await.concat();
    let committed = docker(["commit", "--change", "VOLUME /data", &base, &image.0]).await;
    engine::lines(["rm", &base]).await;
    assert_eq!(committed.code, 0, "{}", committed.stderr);

    let live = sluice.run(["--image", &image.0, "--", "sleep", "600"]).spawn();
    let container = sluice.started().await;
    let mounts = engine::inspect(&container).await["Mounts"].clone();
    let volume = mounts.as_array().into_iter().flatten().find(|mount| mount["Type"] == "volume").cloned();
    let volume = volume.unwrap_or_else(|| panic!("the image has a volume: {mounts}"));
    live.signal(Signal::SIGTERM);
    live.finish().await.expect(143);

    let name = volume["Name"].as_str().expect("a volume has a name");
    assert_eq!(docker(["volume", "inspect", name]).await.code, 1, "the volume {name} is left");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_missing_image_is_named_and_leaves_nothing() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let ran = sluice.run(["--image", "no/such:image", "--json", "--", "true"]).finish().await.expect(125);

    let report = ran.value();
    assert_eq!((&report["ok"], &report["error_code"]), (&json!(false), &json!("creation_failed")));
    let message = report["error_message"].as_str().unwrap_or_default();
    for word in ["no/such:image", "--image", "build.sh"] {
        assert!(message.contains(word), "{message}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_unreachable_upstream_is_reported_before_the_start() {
    let nowhere = ClosedPort::new();
    let sluice = Sluice::with(&nowhere.url(), "sk-nobody-wants-it");

    let ran = sluice.run(["--json", "--", "true"]).finish().await.expect(125);

    let report = ran.json();
    assert_eq!(report.verdict(), (false, Some("creation_failed"), 125));
    for word in [nowhere.url().as_str(), "--upstream"] {
        assert!(report.message().contains(word), "{}", report.message());
    }
    assert_eq!(report.timings.container_start, None);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_failed_sidecar_start_is_explained_and_leaves_nothing() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (name, script, words) in [
        ("fails", "echo 'so it is' >&2; exit 3", &["so it is"][..]),
        ("announces another run", "echo '{\"event\":\"ready\",\"run_id\":\"another\"}'; exec sleep 600", &["ready"]),
        ("hangs", "exec sleep 600", &["20 s"]),
        (
            "answers no health check",
            "while [ \"$1\" != --run-id ]; do shift; done; read -r key; \
             echo \"{\\\"event\\\":\\\"ready\\\",\\\"run_id\\\":\\\"$2\\\"}\"; exec sleep 600",
            &["health"],
        ),
    ] {
        let proxy = sluice.script(name, script);
        let report = sluice.run(["--proxy", &proxy, "--json", "--", "true"]).finish().await.expect(125).json();

        assert_eq!(report.verdict(), (false, Some("creation_failed"), 125), "{name}");
        for word in words {
            assert!(report.message().contains(word), "{name}: {}", report.message());
        }
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_container_that_does_not_start_leaves_nothing() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // The profile denies every call, so the program cannot even begin.
    let profile = sluice.file("seccomp.json", r#"{"defaultAction": "SCMP_ACT_ERRNO"}"#);

    let ran = sluice.run(["--seccomp", &profile, "--json", "--", "true"]).finish().await.expect(125);

    assert_eq!(ran.json().verdict(), (false, Some("creation_failed"), 125));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_hanging_sidecar_is_killed_with_an_incomplete_log() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json", "--", "sh", "-c", "until [ -e /workspace/go ]; do sleep 0.01; done"]).spawn();
    sluice.started().await;
    let sidecar = sluice.processes();
    assert_eq!(sidecar.len(), 1, "one sidecar");

    // It exists but is hung.
    let frozen = nix::sys::signal::kill(nix::unistd::Pid::from_raw(sidecar[0]), Signal::SIGSTOP);
    frozen.expect("the sidecar lives");
    fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");

    let report = live.finish().await.expect(120).json();
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120));
    assert!(!report.audit.complete, "{:?}", report.audit);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn a_container_that_is_taken_away_ends_the_run() {
    let upstream = Upstream::never().start().await;
    for (how, message) in [(&["rm", "--force"][..], "was removed from outside"), (&["kill"], "signal 9")] {
        let sluice = Sluice::to(&upstream);
        let live = sluice.run(["--json", "--", "sleep", "600"]).spawn();
        let container = sluice.started().await;

        engine::lines(how.iter().chain([&container.as_str()])).await;

        let report = live.finish().await.expect(137).json();
        assert_eq!(report.verdict(), (false, Some("container_failed"), 137), "{how:?}");
        assert!(report.message().contains(message), "{how:?}: {}", report.message());
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_paused_container_is_stopped_too() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--timeout", "20s", "--json", "--", "sleep", "600"]).spawn();

    engine::lines(["pause", &sluice.started().await]).await;

    assert_eq!(live.finish().await.expect(124).json().verdict(), (false, Some("timeout"), 124));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_stuck_reader_blocks_neither_sandbox_nor_ctrl_c() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // The shell holds the pipe open, and reads nothing.
    let script = r#"mkfifo pipe; exec 3<>pipe; "$@" >pipe & echo $! >pid; wait $!; echo "code $?""#;
    let words = ["-q", "--timeout", "1s", "--", "sh", "-c", "echo $$; yes"];
    let live = sluice.run(words).wrapper(["bash", "-c", script, "bash"]).spawn();

    sluice.container_event("destroy", 1).await;
    assert!(live.is_running());
    let pid = fs::read_to_string(sluice.dir().join("pid")).expect("the script has written it");
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().expect("a pid"));
    let mut ended = std::pin::pin!(live.finish());
    // The first one may still find the run at work on its end; a user presses the key again.
    let ended = loop {
        // It may have ended a moment ago.
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        if let Ok(ended) = tokio::time::timeout(Duration::from_millis(300), &mut ended).await {
            break ended;
        }
    };
    assert_eq!(ended.stdout, "code 124\n");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_slow_engine_leaves_nothing_after_a_cancel() {
    let upstream = Upstream::never().start().await;
    for request in ["/containers/create", "/attach", "/start"] {
        let sluice = Sluice::to(&upstream);
        let hold = Hold::request(request);
        let live = sluice.run(["--json", "--", "sleep", "600"]).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
        hold.held().await;

        live.signal_group(Signal::SIGINT);
        hold.release();

        let report = live.finish().await.expect(130).json();
        assert_eq!(report.verdict(), (false, Some("cancelled"), 130), "{request}");
        sluice.assert_nothing_left().await;
    }
}

/// Makes 20,000 directories: 100 in each of 200. Ends once it is told.
const HOARD: &str = "cd /workspace; for a in $(seq 200); do mkdir -p $a; (cd $a; seq 100 | xargs mkdir); done; \
                     until [ -e go ]; do sleep 0.01; done; echo done";

/// Lets the program of the only run end, and waits for the answer. The run waits up to ten seconds for the returned lock
/// before it removes its directory.
async fn ended(sluice: &Sluice, live: &RunningCommand<'_>) -> Flock<File> {
    let works = async || sluice.runs().iter().any(|run| run.join("work").exists());
    assert!(poll(PATIENCE, works).await, "the run has a workspace");
    let [run] = &sluice.runs()[..] else { panic!("one run: {:?}", sluice.runs()) };
    let directory = File::open(run).expect("it is ours");
    let lock = Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, error)| error).expect("nobody removes it");
    fs::write(run.join("work/go"), "").expect("the workspace is ours too");
    live.prints("\"timings\"").await;
    lock
}

/// Number of directories of runs that have been set aside and are not removed yet.
fn set_aside(sluice: &Sluice) -> usize {
    sluice.runs().iter().filter(|path| path.display().to_string().contains(".removed-")).count()
}

#[tokio::test]
async fn the_answer_precedes_the_removal_of_the_workspace() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let live = sluice.run(["--json", "--", "sh", "-c", HOARD]).spawn();
    let lock = ended(&sluice, &live).await;

    assert!(live.is_running(), "it stays until all is gone");
    assert_eq!(set_aside(&sluice), 1);
    drop(lock);
    let ran = live.finish().await.expect(0);
    assert_eq!(ran.json().content, "done\n");
    // A busy machine may need more than the 10 s; then the directory is reported and left to the next run.
    assert_eq!(ran.stderr.contains("is not removed yet"), set_aside(&sluice) > 0, "{}", ran.stderr);
    removed_by(&sluice, &["run", "--quiet", "--", "true"]).await;
    sluice.assert_nothing_left().await;
}

/// Repeats a command until no directory is left that was set aside.
async fn removed_by(sluice: &Sluice, command: &[&str]) {
    for _ in 0..10 {
        if set_aside(sluice) == 0 {
            return;
        }
        sluice.command(command).finish().await.expect(0);
    }
}

#[tokio::test]
async fn the_next_run_finishes_an_interrupted_workspace_removal() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for heals in ["run", "sweep"] {
        let live = sluice.run(["--json", "--", "sh", "-c", HOARD]).spawn();
        let lock = ended(&sluice, &live).await;
        live.kill().await;
        drop(lock);
        assert_eq!(set_aside(&sluice), 1, "{heals}");

        if heals == "run" {
            removed_by(&sluice, &["run", "--quiet", "--", "true"]).await;
        } else {
            assert_eq!(sluice.leftovers().await.len(), 1, "a sweep that only looks names it");
            let said = sluice.command(["sweep"]).finish().await.expect(0).stdout;
            assert!(said.contains("directory") && said.contains("removed"), "{said}");
        }
        sluice.assert_nothing_left().await;
    }
}
