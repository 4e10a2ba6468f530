//! A program's stdin.

use std::fs;

use sluice_testkit::{Sluice, Upstream};

use super::run_agent;

#[tokio::test]
async fn a_pipe_reaches_the_program_with_its_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let large: Vec<u8> = (0..5_000_000_u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(sluice.dir().join("large"), &large).expect("a test's directory takes files");

    let hello = sluice.run(["-q", "--", "cat"]).stdin("hello\n").finish().await.expect(0);
    let empty = sluice.run(["-q", "--", "wc", "-c"]).stdin("").finish().await.expect(0);
    let piped = sluice.run(["-q", "--", "cat"]).stdin(large.clone()).finish().await.expect(0);
    let file = ["bash", "-c", r#""$@" < large; sha256sum large"#, "bash"];
    let file = sluice.run(["-q", "--", "sha256sum"]).wrapper(file).finish().await.expect(0);

    assert_eq!((hello.stdout.as_str(), empty.stdout.trim()), ("hello\n", "0"));
    assert!(piped.bytes == large, "{} bytes", piped.bytes.len());
    let digests: Vec<_> = file.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(digests.len() == 2 && digests[0] == digests[1], "{digests:?}");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_does_not_read_still_ends() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (endless, script, code) in [
        // The input stays open without data.
        ("sleep 600", "exit 3", 3),
        // The input is larger than all buffers.
        ("cat /dev/zero", "exit 4", 4),
        ("cat /dev/zero", "sleep 600", 124),
        ("cat /dev/zero", "exec <&-; sleep 1; exit 5", 5),
    ] {
        let feed = format!(r#"exec 3< <(exec {endless} 2> errors); "$@" <&3; code=$?; kill $!; wait $!; exit $code"#);
        let limit = if code == 124 { "3s" } else { "60s" };
        let words = ["-q", "--timeout", limit, "--", "sh", "-c", script];
        sluice.run(words).wrapper(["bash", "-c", &feed, "bash"]).finish().await.expect(code);
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn without_data_a_program_finds_the_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let words = ["-q", "--", "sh", "-c", "cat; readlink /proc/self/fd/0"];
    for redirect in ["</dev/null", "<&-"] {
        let none = ["bash", "-c", &format!(r#""$@" {redirect}"#), "bash"];
        assert_eq!(sluice.run(words).wrapper(none).finish().await.expect(0).stdout, "/dev/null\n", "{redirect}");
    }
    // An agent never gets stdin, and --interactive is refused for an agent.
    let upstream_of_agent = run_agent(&sluice, "readlink /proc/self/fd/0 >&2; cat >&2", &[]).await;
    assert_eq!(upstream_of_agent.stderr, "/dev/null\n");
    let refused = sluice.run(["-i", "--model", "m", "hello"]).stdin("x").finish().await.expect(125);
    assert!(refused.stderr.contains("--interactive"), "{}", refused.stderr);
    sluice.assert_nothing_left().await;
}
