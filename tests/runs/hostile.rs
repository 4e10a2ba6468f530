//! Hostile programs: each run ends in time and leaves nothing.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_testkit::controller::Invocation;
use sluice_testkit::{Sluice, Upstream, engine};

use crate::agents::{kit, without_calls};

const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/measured.py");

/// `sluice run` of a program of `tests/python/agents`, with these flags.
fn hostile<'a>(sluice: &'a Sluice, flags: &[&str], program: &[&str]) -> Invocation<'a> {
    let (name, arguments) = program.split_first().expect("a program");
    let interpreter = if name.ends_with(".sh") { "bash" } else { "python3" };
    let run = sluice.run(["--json"]).args(flags).args(kit()).args(["--", interpreter, &format!("/kit/agents/{name}")]);
    run.args(arguments)
}

/// Runs the command under measured.py, which writes its results to the file `measured`.
fn measured<'a>(sluice: &Sluice, run: Invocation<'a>) -> Invocation<'a> {
    run.wrapper(["python3", MEASURED, &sluice.dir().join("measured").display().to_string()])
}

/// Returns the peak memory of one process in MiB, and the CPU seconds, of a controller with its sidecar.
fn took(sluice: &Sluice) -> (u64, f64) {
    let text = std::fs::read_to_string(sluice.dir().join("measured")).expect("measured.py has written it");
    let measured: Value = serde_json::from_str(&text).expect("JSON");
    (measured["peak_kib"].as_u64().expect("a number") >> 10, measured["cpu_seconds"].as_f64().expect("a number"))
}

/// Checks the milliseconds from the program's start to its end.
#[track_caller]
fn assert_ran_for(report: &sluice_testkit::controller::RunReport, range: std::ops::Range<u64>) {
    let run = Duration::from_secs_f64(report.timings.run.expect("it ran") / 1e3).as_millis();
    assert!(range.contains(&u64::try_from(run).expect("a short time")), "it ran for {run} ms, expected {range:?}");
}

#[tokio::test]
async fn a_fork_bomb_is_held_and_ended() {
    let (sluice, _upstream) = without_calls().await;
    let run = hostile(&sluice, &["--timeout", "45s", "--pids", "100"], &["fork_bomb.sh"]).spawn();
    let container = sluice.started().await;
    let processes = engine::lines(["top", &container, "-eo", "pid"]).await.len() - 1;

    let report = run.finish().await.expect(124).json();

    assert!(processes <= 100, "{processes} processes");
    assert_eq!((report.verdict(), report.stdout.as_str()), ((false, Some("timeout"), 124), "begun\n"));
    assert_ran_for(&report, 45_000..90_000);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn flooding_output_is_counted_exactly_in_little_memory() {
    let (sluice, _upstream) = without_calls().await;
    let count = ["50331653", "16777219"];
    let digest = |bytes: &str| {
        let flood = concat!(env!("CARGO_MANIFEST_DIR"), "/python/agents/flood.py");
        let script = format!("python3 {flood} {bytes} 0 | sha256sum");
        let said = Command::new("sh").args(["-c", &script]).output().expect("there is a shell");
        String::from_utf8_lossy(&said.stdout)[..64].to_owned()
    };

    let run = hostile(&sluice, &["--output-max", "1m", "--timeout", "10m"], &["flood.py", count[0], count[1]]);
    let report = measured(&sluice, run).finish().await.expect(0).json();

    let streams = [&report.output.stdout, &report.output.stderr];
    assert_eq!(streams.map(|stream| stream.bytes.to_string()), count);
    assert_eq!(streams.map(|stream| stream.sha256.clone()), count.map(digest));
    assert!(streams.iter().all(|stream| stream.truncated) && report.output_truncated);
    for text in [&report.stdout, &report.stderr] {
        assert!(text.len() < (1 << 19) + 100 && text.starts_with("0123456789abcdef"), "{} bytes are kept", text.len());
    }
    let (peak, _) = took(&sluice);
    assert!(peak < 100, "{peak} MiB");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_flood_without_end_is_ended_in_time() {
    let (sluice, _upstream) = without_calls().await;
    for program in [&["flood.py", "-1", "0"][..], &["flood.py", "-1", "-1"]] {
        let run = hostile(&sluice, &["--timeout", "20s"], program);

        let report = measured(&sluice, run).finish().await.expect(124).json();

        assert_eq!(report.verdict(), (false, Some("timeout"), 124));
        assert_ran_for(&report, 20_000..60_000);
        assert!(report.output.stdout.bytes > 4 << 20 && report.stdout.len() < 3 << 20, "{:?}", report.output);
        let (peak, _) = took(&sluice);
        assert!(peak < 100, "{peak} MiB");
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn binary_output_passes_byte_for_byte() {
    let (sluice, _upstream) = without_calls().await;
    let mut expected = vec![0; 4096];
    expected.extend(b"\xff\xc3\x28\xf0\x9f");
    expected.extend(vec![b'x'; 1 << 20]);
    expected.extend(vec![b'\r'; 100]);
    let run = sluice.run(["-q", "--output-max", "8m"]).args(kit());
    let plain = run.args(["--", "python3", "/kit/agents/bytes.py"]).finish().await.expect(0);
    assert!(plain.bytes == expected, "{} bytes, expected {}", plain.bytes.len(), expected.len());
    assert_eq!(plain.stderr, String::from_utf8_lossy(b"\x00\xff\xfe\x1b[2J\xc3"));

    let report = hostile(&sluice, &["--output-max", "8m"], &["bytes.py"]).finish().await.expect(0).json();

    assert_eq!((report.output.stdout.bytes, report.output.stderr.bytes), (expected.len() as u64, 8));
    assert_eq!(report.stdout, String::from_utf8_lossy(&expected));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_flood_of_connections_ends_with_its_run() {
    let (sluice, _upstream) = without_calls().await;
    for (kind, count) in [("tcp", "300"), ("unix", "1500")] {
        let run = hostile(&sluice, &["--timeout", "60s"], &["socket_flood.py", kind, count]);

        let report = measured(&sluice, run).finish().await.expect(0).json();

        let told: Value = serde_json::from_str(&report.stdout).expect("JSON");
        assert!(told["held"].as_u64().is_some_and(|held| held > 100), "{told}");
        assert_eq!(told["after"], "HTTP/1.1 200", "{told}");
        assert!(report.audit.complete && report.receipts.is_empty(), "{report:?}");
        let (peak, _) = took(&sluice);
        assert!(peak < 200, "{peak} MiB");
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn unread_answers_block_nothing() {
    let upstream = Upstream::chat(&"x".repeat(8 << 20)).start().await;
    let sluice = Sluice::to(&upstream);
    let run = hostile(&sluice, &["--model", "m", "--timeout", "20s", "--stop-grace", "0s"], &["never_reads.py"]);

    let report = measured(&sluice, run).finish().await.expect(124).json();

    assert_eq!((report.verdict(), report.stdout.as_str()), ((false, Some("timeout"), 124), "asked\n"));
    assert_eq!((report.receipts.len(), report.audit.complete), (5, true));
    let (peak, _) = took(&sluice);
    assert!(peak < 100, "{peak} MiB");
    let files = sluice.assert_nothing_left().await;
    assert_eq!(files[0].open_calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_program_that_wants_input_finds_its_end() {
    let (sluice, _upstream) = without_calls().await;

    let run = sluice.run(["-q", "--", "sh", "-c", "cat; readlink /proc/self/fd/0"]);

    assert_eq!(run.finish().await.expect(0).stdout, "/dev/null\n");
}

#[tokio::test]
async fn programs_that_ignore_signals_are_killed() {
    let (sluice, _upstream) = without_calls().await;

    let timed_out = hostile(&sluice, &["--timeout", "20s", "--stop-grace", "500ms"], &["ignores_signals.py"])
        .finish()
        .await
        .expect(124)
        .json();
    assert_eq!((timed_out.verdict(), timed_out.stdout.as_str()), ((false, Some("timeout"), 124), "started\n"));
    // The limit and the grace; without a kill the program would not end.
    assert_ran_for(&timed_out, 20_500..60_000);

    let run = hostile(&sluice, &["--timeout", "60s", "--stop-grace", "0s"], &["ignores_signals.py"]).spawn();
    sluice.container_event("start", 2).await;
    run.signal_group(Signal::SIGINT);
    let cancelled = run.finish().await.expect(130).json();
    assert_eq!(cancelled.verdict(), (false, Some("cancelled"), 130));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn closed_outputs_neither_end_nor_spin_a_run() {
    let (sluice, _upstream) = without_calls().await;
    let repository = sluice.dir().join("code");
    std::fs::create_dir(&repository).expect("a fresh directory takes another");
    std::os::unix::fs::chown(&repository, Some(1001), Some(1001)).expect("we are root");
    let run = hostile(&sluice, &["--repo", &format!("{}:rw", repository.display())], &["ends.py", "12"]);

    measured(&sluice, run).finish().await.expect(0);

    assert_eq!(std::fs::read_to_string(repository.join("late")).expect("it has gone on"), "still there");
    let (_, seconds) = took(&sluice);
    assert!(seconds < 5.0, "{seconds} s of processor for a run that does nothing");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn background_children_end_with_their_program() {
    let (sluice, _upstream) = without_calls().await;

    let report = hostile(&sluice, &["--timeout", "30s"], &["daemon.py"]).finish().await.expect(0).json();

    assert_eq!(report.stdout, "left\n");
    assert_ran_for(&report, 0..25_000);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_can_kill_only_itself() {
    let (sluice, _upstream) = without_calls().await;
    for (script, flags, code) in [
        // The kill ends the bridge and its watcher too: the program is alone then, and cannot make calls.
        ("kill -KILL -1; ! curl -s localhost:8080/health || exit 9; exit 7", &[][..], 7),
        ("kill -KILL 1; kill -TERM 1; sleep 60", &[], 143),
        ("kill -STOP -1; kill -STOP $$; sleep 60", &["--timeout", "2s"], 124),
    ] {
        let run = sluice.run(["--json", "--stop-grace", "0s"]).args(flags).args(["--", "bash", "-c", script]);
        let ran = run.finish().await;
        assert_eq!(ran.code, code, "{script}: {}", ran.stdout);
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn memory_and_descriptors_of_a_sandbox_are_bounded() {
    let (sluice, _upstream) = without_calls().await;

    let filled = hostile(&sluice, &[], &["fill.py"]).finish().await.expect(0).json();
    let opened = hostile(&sluice, &[], &["open_fds.py"]).finish().await.expect(0).json();

    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let full = |mebibytes: u64| json!([mebibytes << 20, "ENOSPC"]);
    assert_eq!(
        json(&filled.stdout),
        json!({"/run": full(8), "/dev/shm": full(16), "/tmp": full(64), "/workspace": [32 << 20, null]})
    );
    assert_eq!(json(&opened.stdout), json!(vec![(4096, "EMFILE"); 8]));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_huge_directory_costs_the_controller_no_memory() {
    let (sluice, _upstream) = without_calls().await;
    // Resident pages of the program depend on what the system has read ahead: the least of three times counts.
    let mut peaks = [u64::MAX; 2];
    for _ in 0..3 {
        for (peak, count) in peaks.iter_mut().zip(["1", "30000"]) {
            let run = hostile(&sluice, &["--timeout", "10m"], &["many.py", count]);
            measured(&sluice, run).finish().await.expect(0);
            *peak = took(&sluice).0.min(*peak);
        }
    }

    // Their names alone are 7 MiB.
    assert!(peaks[1] < peaks[0] + 4, "{peaks:?} MiB");
    // A removal that takes more than ten seconds is left to the next command.
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agents_error_cannot_imitate_our_messages() {
    let (sluice, _upstream) = without_calls().await;
    let said = "no\nsluice: all is well\nrun     r1.0  ok\n\u{1b}[2Jcost    none\r\u{7}";
    let envelope = json!({"payloads": [], "meta": {"error": {"code": "x\ny", "message": said}}}).to_string();
    let argv = ["python3", "-c", &format!("import sys; sys.stdout.write({})", json!(envelope))]
        .map(|word| json!(word).to_string());
    sluice.file("sluice.toml", &format!("[[agents]]\nagentId = \"liar\"\nargv = [{}]\n", argv.join(", ")));

    let ran = sluice.run(["--agent", "liar", "--model", "m", "hello"]).finish().await.expect(1);

    let words: BTreeMap<_, _> =
        ran.stderr.lines().map(|line| (line.split(' ').next().unwrap_or_default(), line)).collect();
    assert_eq!(ran.stderr.lines().count(), 6, "one line of an error and five of a receipt: {:?}", ran.stderr);
    assert_eq!(words.keys().copied().collect::<Vec<_>>(), ["audit", "calls", "cost", "run", "sluice:", "time"]);
    assert!(!ran.stderr.contains(['\u{1b}', '\r', '\u{7}']), "{:?}", ran.stderr);
    sluice.assert_nothing_left().await;
}
