//! A program's output: complete, bounded, as it comes.

use std::fs;
use std::time::Duration;

use sluice_testkit::controller::ReportStream;
use sluice_testkit::{Sluice, Upstream};

use super::{run_agent, run_program};

/// SHA-256 of the output of `seq 1 20000`: 108,894 bytes.
const NUMBERS: &str = "f6351f5ead9a700e34275480b3856ea738122a7c57bdeb744a631251c069587a";
/// SHA-256 of an empty output.
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn numbers() -> String {
    (1..=20_000).map(|number| format!("{number}\n")).collect()
}

fn stream(bytes: u64, sha256: &str, truncated: bool) -> ReportStream {
    ReportStream { bytes, sha256: sha256.to_owned(), truncated }
}

#[tokio::test]
async fn stdout_and_stderr_stay_apart() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let script = "printf 'o1\\n'; printf 'e1\\n' >&2; printf 'o2'; printf 'e2' >&2";

    let report = run_program(&sluice, &[], script).await;
    let ran = sluice.run(["-q", "--", "sh", "-c", script]).finish().await.expect(0);

    assert_eq!(
        (report.stdout.as_str(), report.stderr.as_str(), report.content.as_str()),
        ("o1\no2", "e1\ne2", "o1\no2")
    );
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("o1\no2", "e1\ne2"));
}

#[tokio::test]
async fn bytes_pass_as_they_are() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let ran = sluice.run(["-q", "--", "printf", "\\377\\000\\r\\n\\303"]).finish().await.expect(0);

    assert_eq!(ran.bytes, b"\xff\0\r\n\xc3");
}

#[tokio::test]
async fn output_over_the_cap_keeps_both_ends() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let numbers = numbers();
    // 4 KiB are 1 KiB for each end of each stream.
    let (head, tail) = (&numbers[..1024], &numbers[numbers.len() - 1024..]);
    let missing = numbers.len() - 2048;
    let cap = ["--output-max", "4k"];

    let report = run_program(&sluice, &cap, "seq 1 20000").await;
    let printed = sluice.run(cap).args(["-q", "--", "seq", "1", "20000"]).finish().await.expect(0);
    let other = run_program(&sluice, &cap, "echo fine; seq 1 20000 >&2").await;
    let all = run_program(&sluice, &[], "seq 1 20000").await;

    assert_eq!((report.verdict(), report.output_truncated), ((true, None, 0), true));
    assert_eq!(report.stdout, format!("{head}\n[{missing} bytes left out]\n{tail}"));
    assert_eq!(report.output.stdout, stream(numbers.len() as u64, NUMBERS, true));
    assert_eq!(report.output.stderr, stream(0, NOTHING, false));
    assert_eq!((printed.stdout.as_str(), printed.stderr.as_str()), (numbers.as_str(), ""));
    assert_eq!((other.stdout.as_str(), other.output.stderr), ("fine\n", stream(numbers.len() as u64, NUMBERS, true)));
    assert_eq!((all.stdout, all.output.stdout), (numbers, stream(108_894, NUMBERS, false)));
    assert!(!all.output_truncated);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_flood_of_output_is_read_to_its_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let report = run_program(&sluice, &[], "head -c 20000000 /dev/zero | tr '\\0' y; echo; echo last").await;

    assert_eq!(report.verdict(), (true, None, 0));
    assert_eq!((report.output.stdout.bytes, report.output.stdout.truncated), (20_000_006, true));
    assert!(report.stdout.ends_with("yy\nlast\n") && report.stdout.len() < 1 << 21, "{} bytes", report.stdout.len());
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn output_appears_before_the_programs_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let script = "echo one; echo two >&2; until [ -e /workspace/go ]; do sleep 0.01; done; echo three";
    let live = sluice.run(["-q", "--", "sh", "-c", script]).spawn();

    live.prints("one\n").await;
    live.says("two\n").await;
    assert!(live.is_running());
    let run = sluice.runs().pop().expect("the run has a directory");
    fs::write(run.join("work/go"), "").expect("the workspace is ours too");

    let ran = live.finish().await.expect(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("one\nthree\n", "two\n"));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_ends_the_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let pipe = ["bash", "-c", r#""$@" | head -n 1; echo "codes ${PIPESTATUS[*]}""#, "bash"];
    for (words, code) in [
        (&["-q", "--", "yes"][..], 141),
        (&["-q", "--", "seq", "1", "400000"], 141),
        (&["-q", "--json", "--", "seq", "1", "20000"], 0),
    ] {
        let ran = sluice.run(words).wrapper(pipe).finish().await.expect(0);

        assert_eq!(ran.stdout.lines().last(), Some(format!("codes {code} 0").as_str()), "{words:?}: {}", ran.stderr);
        let said = "sluice: output_failed: the reader of stdout is gone, so the run was stopped";
        assert_eq!(ran.stderr.trim(), if code == 0 { "" } else { said }, "{words:?}");
        sluice.assert_nothing_left().await;
    }
    let neither = ["bash", "-c", r#""$@" >&- 2>&-"#, "bash"];
    sluice.run(["--", "sh", "-c", "echo x; exit 9"]).wrapper(neither).finish().await.expect(9);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_full_disk_for_output_ends_the_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (redirect, script, said) in [
        ("> /dev/full", "echo x; exit 3", "sluice: output_failed: cannot write to stdout"),
        ("> /dev/full", "yes", "sluice: output_failed: cannot write to stdout"),
        ("2> /dev/full", "yes >&2", ""),
    ] {
        let full = ["bash", "-c", &format!(r#""$@" {redirect}"#), "bash"];
        let ran = sluice.run(["-q", "--", "sh", "-c", script]).wrapper(full).finish().await.expect(74);

        assert!(ran.stderr.starts_with(said), "{script}: {}", ran.stderr);
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn every_byte_reaches_a_slow_reader() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // One output fits into all buffers on the way and one does not: the program ends before it is read, or waits.
    for bytes in [100_000, 1_000_000, 1_300_000, 1_900_000, 2_300_000, 2_600_000, 6_000_000] {
        let slow = ["bash", "-c", r#"set -o pipefail; "$@" | { sleep 4; sha256sum; }"#, "bash"];
        let script = format!("seq 1 1000000 | head -c {bytes} | tee /workspace/all; sha256sum /workspace/all >&2");
        let ran = sluice.run(["-q", "--", "sh", "-c", &script]).wrapper(slow).finish().await.expect(0);

        let digest = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
        assert_eq!(digest(&ran.stdout), digest(&ran.stderr), "{bytes} bytes");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_flood_of_output_takes_no_memory() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // The reader begins after the program has waited for it, and the memory was measured.
    let slow = ["bash", "-c", r#""$@" | { until [ -e go ]; do sleep 0.01; done; wc -c; }"#, "bash"];
    let script = "head -c 200000000 /dev/zero";
    let live = sluice.run(["-q", "--timeout", "10m", "--", "sh", "-c", script]).wrapper(slow).spawn();
    sluice.started().await;
    // Time for the output to pile up somewhere: no event tells that a program waits for its reader.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let is_sluice = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sluice\n");
    let controller = sluice.controllers().into_iter().find(is_sluice).expect("the run goes on");
    let memory = || peak_of(controller);

    let waiting = memory();
    sluice.file("go", "");
    let mut peak = waiting;
    while let Some(now) = memory() {
        peak = Some(now);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert_eq!(live.finish().await.expect(0).stdout.trim(), "200000000");
    let peak = peak.expect("it was looked at");
    assert!(peak < 60 << 10, "{waiting:?} and then {peak} KiB");
    sluice.assert_nothing_left().await;
}

/// The largest resident memory of a process so far, in KiB.
fn peak_of(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[tokio::test]
async fn unread_output_does_not_block_a_stop() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // The reader holds the pipe and takes nothing out of it until the container is gone.
    let pipe = ["bash", "-c", r#""$@" | { until [ -e gone ]; do sleep 0.01; done; wc -c; }"#, "bash"];
    let live = sluice.run(["-q", "--timeout", "20s", "--", "yes"]).wrapper(pipe).spawn();

    sluice.container_event("destroy", 1).await;
    sluice.file("gone", "");

    let ran = live.finish().await.expect(0);
    assert!(ran.stdout.trim().parse::<u64>().is_ok_and(|bytes| bytes >= 1 << 19), "{}", ran.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_background_process_does_not_hold_the_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let report = run_program(&sluice, &[], "sleep 600 & echo done").await;

    assert_eq!((report.verdict(), report.stdout.as_str()), ((true, None, 0), "done\n"));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_closes_its_output_is_waited_for() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let report = run_program(&sluice, &[], "echo out; exec >&- 2>&-; sleep 0.5; exit 7").await;

    assert_eq!((report.verdict(), report.stdout.as_str()), ((false, Some("container_failed"), 7), "out\n"));
}

#[tokio::test]
async fn output_that_is_not_an_envelope_is_reported() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for script in ["echo hello", "true", r#"echo "log line"; echo "{\"payloads\":[]}""#] {
        let report = run_agent(&sluice, script, &[]).await;
        assert_eq!((report.verdict(), report.content.as_str()), ((false, Some("bad_envelope"), 1), ""), "{script}");
    }
}

#[tokio::test]
async fn a_truncated_envelope_is_not_an_invalid_one() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let envelope = |bytes: usize| format!(r#"printf "{{\"payloads\":[{{\"text\":\"%0{bytes}d\"}}]}}" 0"#);

    let broken = run_agent(&sluice, &envelope(8192), &["--output-max", "8k"]).await;
    let whole = run_agent(&sluice, &envelope(1024), &["--output-max", "8k"]).await;
    let stderr = run_agent(&sluice, &format!("seq 1 20000 >&2; {}", envelope(1024)), &["--output-max", "8k"]).await;

    assert_eq!((broken.verdict(), broken.output_truncated), ((false, Some("output_truncated"), 1), true));
    assert_eq!((whole.verdict(), whole.content.len()), ((true, None, 0), 1024));
    assert_eq!((stderr.verdict(), stderr.content.len(), stderr.output_truncated), ((true, None, 0), 1024, true));
}

#[tokio::test]
async fn a_terminal_shows_progress_with_times() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    // Gives the program a terminal.
    let terminal = ["bash", "-c", r#"exec script --quiet --return --command "$*" /dev/null"#, "bash"];

    let shown = sluice.run(["--model", "m", "hello"]).wrapper(terminal).finish().await.expect(0).stdout;
    let quiet = sluice.run(["--quiet", "--model", "m", "hello"]).wrapper(terminal).finish().await.expect(0).stdout;

    for word in ["sidecar ready", "sandbox created", "program started", "audit file sealed", "sandbox removed"] {
        let line = shown.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word:?} in {shown}"));
        let time = line.trim_start().split_once(" s  ").and_then(|(time, _)| time.parse::<f64>().ok());
        assert!(time.is_some_and(|time| time < 60.0) && line.contains(" ms)"), "{line}");
    }
    assert_eq!(quiet, "hello\r\n");
}
