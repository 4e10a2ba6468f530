//! Files, variables and messages that go into a run, and the files that come out of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use sluice_testkit::{Sluice, Upstream};

use crate::agents::without_calls;

#[tokio::test]
async fn files_are_copied_into_the_workspace() {
    let (sluice, _upstream) = without_calls().await;
    let one = sluice.file("one.txt", "one\n");
    fs::set_permissions(&one, fs::Permissions::from_mode(0o600)).expect("it is ours");
    sluice.file("a:b", "colon\n");
    let script = "cat one.txt deep/er/two.txt a:b && stat -c '%U %a' one.txt deep && echo changed >one.txt";
    let flags = ["-q", "--file", "one.txt", "--file", "one.txt:deep/er/two.txt", "--file", "a:b"];

    let ran = sluice.run(flags).args(["--", "sh", "-c", script]).finish().await.expect(0);

    assert_eq!(ran.stdout, "one\none\ncolon\nsandboxer 644\nsandboxer 755\n");
    assert_eq!(fs::read_to_string(one).expect("it stays"), "one\n");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn files_that_a_sandbox_may_not_see_are_refused() {
    let (sluice, _upstream) = without_calls().await;
    sluice.file("one.txt", "");
    fs::create_dir(sluice.dir().join("directory")).expect("a fresh directory takes another");
    let key = sluice.key_file().display().to_string();
    for (files, why) in [
        (&["/etc/shadow"][..], "holds the configuration of the host"),
        (&[&key], "holds a key of yours"),
        (&["directory"], "is not a regular file"),
        (&["nothing"], "No such file"),
        (&["one.txt:../x"], "is not a path in the workspace"),
        (&["one.txt:/x"], "is not a path in the workspace"),
        (&["one.txt:.sluice/messages.json"], "is not a path in the workspace"),
        (&["one.txt", "one.txt"], "are one, or inside each other"),
        (&["one.txt:out/x"], "are one, or inside each other"),
    ] {
        let flags = files.iter().flat_map(|file| ["--file", file]);
        let ran = sluice.run(flags).args(["--out", "new", "--", "true"]).finish().await.expect(125);
        assert!(ran.stderr.contains(why), "{files:?}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn regular_files_come_out_and_nothing_else() {
    let (sluice, _upstream) = without_calls().await;
    chown(sluice.dir(), Some(1000), Some(1000)).expect("we are root");
    let script = "cd $SLUICE_OUT && echo text >file && mkdir -p a/b && echo deep >a/b/f && chmod 6777 file && \
        chmod 0 a/b/f && ln -s /etc/passwd link && ln -s / root && mkfifo fifo && git init -q repo && \
        python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"; chmod 0 a";

    let ran = sluice.run(["--json", "--out", "result", "--", "sh", "-c", script]).finish().await.expect(0);

    let out = ran.json().out.expect("files came out");
    let left_out: Vec<_> =
        out["left_out"].as_array().expect("a list").iter().filter_map(|one| one["path"].as_str()).collect();
    assert_eq!(left_out, ["fifo", "link", "root", "socket", "repo/.git"], "{out}");
    assert_eq!((out["files"].as_u64(), out["bytes"].as_u64()), (Some(2), Some(10)));
    let result = sluice.dir().join("result");
    for (name, mode) in [("", 0o755), ("file", 0o755), ("a", 0o755), ("a/b", 0o755), ("a/b/f", 0o644)] {
        let meta = fs::symlink_metadata(result.join(name)).expect("it came out");
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (mode, 1000, 1000), "{name}");
    }
    assert_eq!(fs::read_to_string(result.join("a/b/f")).expect("it came out"), "deep\n");
    // A directory with something in it is not written to.
    let ran = sluice.run(["--out", "result", "--", "true"]).finish().await.expect(125);
    assert!(ran.stderr.contains("it is not empty"), "{}", ran.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_missing_out_directory_fails_the_run() {
    let (sluice, _upstream) = without_calls().await;
    for script in ["rm -r out", "rm -r out; ln -s /etc out"] {
        let ran = sluice.run(["--json", "--out", "result", "--", "sh", "-c", script]).finish().await.expect(74);
        let report = ran.json();
        assert_eq!(report.error_code.as_deref(), Some("output_failed"));
        assert!(PathBuf::from(report.workspace.expect("it is kept")).exists());
        assert_eq!(fs::read_dir(sluice.dir().join("result")).expect("it was made").count(), 0);
    }
}

#[tokio::test]
async fn a_workspace_can_be_kept() {
    let (sluice, _upstream) = without_calls().await;
    let ran = sluice.run(["--keep-workspace", "--", "sh", "-c", "echo x >made"]).finish().await.expect(0);
    let path = ran.stderr.lines().find_map(|line| line.strip_prefix("sluice: workspace: kept in "));
    let path = PathBuf::from(path.unwrap_or_else(|| panic!("{}", ran.stderr)));
    assert_eq!(fs::read_to_string(path.join("made")).expect("it is kept"), "x\n");
    assert_eq!(fs::metadata(path.parent().expect("a parent")).expect("it is there").mode() & 0o777, 0o700);
    sluice.command(["sweep"]).finish().await.expect(0);
    assert!(path.exists(), "a sweep leaves it");
}

#[tokio::test]
async fn variables_come_from_the_environment_and_files() {
    let (sluice, _upstream) = without_calls().await;
    let file = sluice.file("vars", "# comment\nFROM_FILE=two words\nPASSED\nUNSET_HERE\nBOTH=file\n");
    let flags = ["-q", "--env-file", &file, "-e", "NAMED", "-e", "BOTH=flag"];
    let script = "echo $FROM_FILE/$PASSED/${UNSET_HERE-none}/$NAMED/$BOTH";

    let run = sluice.run(flags).env("NAMED", "hunter2").env("PASSED", "passed");
    let ran = run.args(["--", "sh", "-c", script]).finish().await.expect(0);

    assert_eq!(ran.stdout, "two words/passed/none/hunter2/flag\n");
    let bad = sluice.file("bad", "A=1\nOPENAI_API_KEY=hunter2\n");
    for (flags, why) in [
        (&["-e", "NOT_SET"][..], "there is no such variable"),
        (&["--env-file", "nothing"], "--env-file nothing"),
        (&["--env-file", &bad], "line 2: the name of the variable is set by sluice"),
        (&["-e", "RUN_ID"], "is set by sluice"),
    ] {
        let ran = sluice.run(flags).args(["--", "true"]).finish().await.expect(125);
        assert!(ran.stderr.contains(why) && !ran.stderr.contains("hunter2"), "{flags:?}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn a_message_can_come_from_stdin_or_a_file() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let file = sluice.file("task.txt", "fix it, s3cret\n");
    for (args, stdin) in [
        (&["--model", "m", "-q", "-"][..], "fix it, s3cret\n"),
        (&["--model", "m", "-q"], "fix it, s3cret\r\n"),
        (&["--model", "m", "-q", "--message-file", &file], ""),
    ] {
        let ran = sluice.run(args).stdin(stdin).finish().await.expect(0);
        assert_eq!(ran.stdout, "hello\n", "{args:?}");
    }
    let bodies = upstream.requests();
    assert_eq!(bodies.len(), 3);
    for body in bodies {
        let body: serde_json::Value = serde_json::from_slice(&body.body).expect("JSON");
        assert_eq!(body["messages"][0]["content"], "fix it, s3cret");
    }
    for (args, why) in [
        (&["--model", "m", "--message-file", &file, "both"][..], "cannot be used with"),
        (&["--model", "m", "--message-file", "nothing"], "--message-file nothing"),
        (&["--model", "m"], "there is nothing to do"),
    ] {
        let ran = sluice.run(args).finish().await;
        assert!(ran.code != 0 && ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
    }
}
