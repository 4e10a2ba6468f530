//! `sluice exec` and `sluice cp` with a live sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use super::commands::{detached, faults, ran};
use super::*;

#[tokio::test]
async fn a_program_in_a_sandbox_has_its_exit_code() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = detached(&daemon, &["--name", "box", "--", "sleep", "600"]).await;
    daemon.reaches(&id, "RUNNING").await;

    let script = "echo $A; pwd; echo err >&2; exit 7";
    let words = ["exec", "box", "--env", "A=one", "--cwd", "/workspace", "--", "sh", "-c", script];
    let plain = ran(&daemon, &words, 7).await;
    let object = ran(&daemon, &["exec", "box", "--json", "--", "printf", "a\\377"], 0).await.value();
    ran(&daemon, &["exec", "box", "--timeout", "1s", "--", "sleep", "600"], 124).await;
    let interrupted = daemon.command(["exec", "box", "--", "sh", "-c", "echo begun; sleep 600"]).spawn();
    interrupted.prints("begun").await;
    interrupted.signal(Signal::SIGINT);
    interrupted.finish().await.expect(130);
    let left = ran(&daemon, &["exec", "box", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], 0).await;

    assert_eq!(plain.stdout, "one\n/workspace\n");
    assert!(plain.stderr.ends_with("err\n"), "{}", plain.stderr);
    assert_eq!((&object["stdout"], &object["bytes"]["stdout"]), (&json!("a\u{fffd}"), &json!(2)), "{object}");
    assert!(!left.stdout.contains("echo begun"), "Ctrl-C ends the program: {}", left.stdout);
    let found = faults(&[("exec", object)]).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["cancel", "box", "--wait"], 0).await;
    let late = ran(&daemon, &["exec", "box", "--", "true"], 125).await;
    assert!(late.stderr.contains("invalid_state"), "{}", late.stderr);
}

#[tokio::test]
async fn files_come_out_of_a_sandbox_without_links() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "mkdir -p out/sub; echo 42 > out/answer; : > out/empty; head -c 9000000 /dev/zero > out/sub/big
        ln -s /etc/passwd out/link; ln -s sub out/also; mkfifo out/pipe; touch ready; sleep 600";
    let id = detached(&daemon, &["--name", "box", "--", "sh", "-c", script]).await;
    daemon.reaches(&id, "RUNNING").await;
    let is_ready = "until [ -e ready ]; do sleep 0.05; done";
    ran(&daemon, &["exec", "box", "--", "sh", "-c", is_ready], 0).await;

    let copied = ran(&daemon, &["cp", "box:/workspace/out", "results", "--json"], 0).await.value();
    let file = ran(&daemon, &["cp", "box:/workspace/out/answer", "one", "--json"], 0).await.value();
    ran(&daemon, &["cp", "box:/workspace/out", "results"], 1).await;
    ran(&daemon, &["cp", "box:/etc", "etc"], 2).await;
    sluice.file("fix.diff", "fixed\n");
    let put = ran(&daemon, &["cp", "fix.diff", "box:/workspace/", "--json"], 0).await.value();
    let read = ran(&daemon, &["exec", "box", "--", "cat", "fix.diff"], 0).await.stdout;

    let results = sluice.dir().join("results");
    assert_eq!(fs::read_to_string(results.join("answer")).expect("it was copied"), "42\n");
    assert_eq!(fs::metadata(results.join("sub/big")).expect("it was copied").len(), 9_000_000);
    assert_eq!(fs::metadata(results.join("empty")).expect("it was copied").permissions().mode() & 0o7777, 0o644);
    for name in ["link", "also", "pipe"] {
        assert!(fs::symlink_metadata(results.join(name)).is_err(), "{name}");
    }
    assert_eq!(copied["left_out"].as_array().map(Vec::len), Some(3), "{copied}");
    assert_eq!((&copied["files"], &copied["bytes"]), (&json!(3), &json!(9_000_003)), "{copied}");
    assert_eq!(fs::read_to_string(sluice.dir().join("one/answer")).expect("it was copied"), "42\n");
    assert!(!sluice.dir().join("etc").exists(), "nothing is left of a copy that failed");
    assert_eq!(read, "fixed\n");
    let found = faults(&[("cp", copied), ("cp", file), ("cp", put)]).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["cancel", "box"], 0).await;
}

#[tokio::test]
async fn input_goes_to_a_program_in_a_sandbox() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = detached(&daemon, &["--name", "box", "--", "sleep", "600"]).await;
    daemon.reaches(&id, "RUNNING").await;

    let large: Vec<u8> = (0..300_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let words = ["exec", "-i", "box", "--", "sh", "-c", "cat > in; sha256sum in; wc -c < in"];
    let passed = daemon.command(words).stdin(large.clone()).finish().await.expect(0);
    let without = ran(&daemon, &["exec", "box", "--", "sh", "-c", "cat; echo end"], 0).await;
    let gone = daemon.command(["exec", "-i", "box", "--", "true"]).stdin(large).finish().await.expect(0);
    let refused = ran(&daemon, &["exec", "-t", "box", "--", "true"], 125).await;
    let missing = ran(&daemon, &["exec", "box", "--", "/no/such/program"], 125).await;

    assert!(passed.stdout.ends_with("300000\n"), "{}", passed.stdout);
    assert_eq!((without.stdout.as_str(), gone.stdout.as_str()), ("end\n", ""), "nothing is waited for");
    assert!(refused.stderr.contains("--tty needs a terminal"), "{}", refused.stderr);
    assert!(missing.stderr.contains("the program was not started"), "{}", missing.stderr);
    ran(&daemon, &["cancel", "box"], 0).await;
}

#[tokio::test]
async fn a_program_in_a_sandbox_has_our_terminal() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = detached(&daemon, &["--name", "box", "--", "sleep", "600"]).await;
    daemon.reaches(&id, "RUNNING").await;

    // The program waits for the size of our terminal, and takes Ctrl-C as a key. Ctrl-P Ctrl-Q would detach the engine's
    // own client.
    let program = "trap 'echo key' INT
until [ \"$(stty size)\" = '30 100' ]; do sleep 0.05; done
printf '\\033[31mred\\n'; touch ready
until read line; do :; done
echo \"got ${line##*[!a-z]}\"; touch done; exit 7\n";
    sluice.file("program", program);
    ran(&daemon, &["cp", "program", "box:/workspace/program"], 0).await;
    let work = work(&sluice, &id).display().to_string();
    let terminal = format!(
        "{{ until [ -e {work}/ready ]; do sleep 0.05; done; printf '\\003\\020\\021word\\r'
until [ -e {work}/done ]; do sleep 0.05; done; }} |
script -qefc \"stty rows 30 cols 100; exec $*\" /dev/null"
    );
    let terminal = sluice.script("terminal", &terminal);
    let words = ["exec", "-it", "box", "--", "sh", "program"];

    let ended = daemon.command(words).wrapper([terminal]).finish().await.expect(7);

    for text in ["\u{1b}[31mred", "key", "got word"] {
        assert!(ended.stdout.contains(text), "{text}: {:?}", ended.stdout);
    }
    assert_eq!(ended.stdout.matches("the sandbox controls this terminal").count(), 1, "{:?}", ended.stdout);
    ran(&daemon, &["cancel", "box"], 0).await;
}

#[tokio::test]
async fn a_directory_goes_into_a_sandbox_without_links() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = detached(&daemon, &["--name", "box", "--", "sleep", "600"]).await;
    daemon.reaches(&id, "RUNNING").await;
    let fixtures = sluice.dir().join("fixtures");
    fs::create_dir_all(fixtures.join("sub/empty")).expect("there is room");
    fs::write(fixtures.join("sub/answer"), "42\n").expect("there is room");
    std::os::unix::fs::symlink("/etc/passwd", fixtures.join("link")).expect("there is room");
    nix::unistd::mkfifo(&fixtures.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("there is room");

    let copied = ran(&daemon, &["cp", "fixtures", "box:/workspace/", "--json"], 0).await.value();
    let again = ran(&daemon, &["cp", "fixtures", "box:/workspace/fixtures"], 1).await;
    let listed =
        ran(&daemon, &["exec", "box", "--", "sh", "-c", "cd fixtures && find . | sort && cat sub/answer"], 0).await;
    let modes =
        ran(&daemon, &["exec", "box", "--", "stat", "-c", "%a %U", "fixtures/sub", "fixtures/sub/answer"], 0).await;
    ran(&daemon, &["cp", "fixtures", "box:/etc/"], 2).await;

    assert_eq!((&copied["files"], &copied["bytes"]), (&json!(1), &json!(3)), "{copied}");
    assert_eq!(copied["left_out"].as_array().map(Vec::len), Some(2), "{copied}");
    assert!(again.stderr.contains("exists"), "{}", again.stderr);
    assert_eq!(listed.stdout, ".\n./sub\n./sub/answer\n./sub/empty\n42\n");
    assert!(modes.stdout.starts_with("755 ") && modes.stdout.contains("\n644 "), "{}", modes.stdout);
    // More than the API takes at once.
    let many = sluice.dir().join("many");
    fs::create_dir(&many).expect("the name is free");
    (0..150).for_each(|number| fs::write(many.join(number.to_string()), "x").expect("there is room"));
    let copied_many = ran(&daemon, &["cp", "many", "box:/workspace/", "--json"], 0).await.value();
    assert_eq!(copied_many["files"], 150, "{copied_many}");
    let found = faults(&[("cp", copied)]).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["cancel", "box"], 0).await;
}
