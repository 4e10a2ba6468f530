//! The files that a sandbox and its host share.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sluice_testkit::{PATIENCE, Sluice};

use crate::agents::{kit, without_calls};

const SANDBOX: u32 = 1001;

/// Makes a directory of the sandbox's user in the directory of the test.
fn repository(sluice: &Sluice) -> PathBuf {
    let path = sluice.dir().join("code");
    fs::create_dir(&path).expect("a fresh directory takes another");
    chown(&path, Some(SANDBOX), Some(SANDBOX)).expect("we are root");
    path
}

/// Waits until a file is there with something in it, and returns that: another process's writes give no signal.
async fn appears(path: &Path) -> String {
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(5));
    let looking = async {
        loop {
            ticks.tick().await;
            match fs::read_to_string(path) {
                Ok(text) if !text.is_empty() => return text,
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("{} does not come", path.display()))
}

#[tokio::test]
async fn the_workspaces_messages_belong_to_the_agent() {
    let (sluice, _upstream) = without_calls().await;
    let script =
        "cd .sluice && cat messages.json && stat -c ' %n %U %a' . messages.json && rm messages.json && echo gone";

    let ran = sluice.run(["-q", "héllo \"you\"", "--", "sh", "-c", script]).finish().await.expect(0);

    let messages = json!([{"role": "user", "content": "héllo \"you\""}]);
    let (first, rest) = ran.stdout.split_once(" . ").expect("two parts");
    assert_eq!(serde_json::from_str::<serde_json::Value>(first).expect("JSON"), messages);
    assert_eq!(rest, "sandboxer 755\n messages.json sandboxer 644\ngone\n");
}

#[tokio::test]
async fn each_run_has_its_own_empty_workspace() {
    let (sluice, _upstream) = without_calls().await;
    let script = "stat -c '%U %a' . && ls -A && echo mine >file && cat file";
    for _ in 0..2 {
        let ran = sluice.run(["-q", "--", "sh", "-c", script]).finish().await.expect(0);
        assert_eq!(ran.stdout, "sandboxer 700\nmine\n");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn host_and_agent_see_each_others_files() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    let script = "echo asked >repo/question; until [ -s repo/answer ]; do :; done; cat repo/answer; echo work >file; \
        until [ -e repo/end ]; do :; done";
    let volume = format!("{}:/workspace/repo:rw", repository.display());
    let run = sluice.run(["-q", "--volume", &volume, "--", "sh", "-c", script]).spawn();

    let question = repository.join("question");
    assert_eq!(appears(&question).await, "asked\n");
    assert_eq!(fs::metadata(&question).expect("it is there").uid(), SANDBOX);
    fs::write(repository.join("answer"), "answered\n").expect("we are root");
    run.prints("answered").await;
    // The workspace is where the layout says, and other users cannot reach it.
    let root = sluice.runs().pop().expect("one run");
    assert_eq!(appears(&root.join("work/file")).await, "work\n");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let modes = [&root, &root.join("conf"), &root.join("work"), &root.join("sock")].map(|path| mode(path));
    assert_eq!(modes, [0o700, 0o700, 0o700, 0o755]);
    fs::write(repository.join("end"), "").expect("we are root");

    run.finish().await.expect(0);
    let mut names: Vec<_> =
        fs::read_dir(&repository).expect("it stays").flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["answer", "end", "question"]);
    sluice.assert_nothing_left().await;
}

/// A tmpfs on a directory of the host; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn on(path: PathBuf) -> Self {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m,mode=1777", "none"]).arg(&path).status();
        assert!(status.expect("there is a mount").success(), "cannot mount on {}", path.display());
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_read_only_directory_cannot_be_changed() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    // The sandbox's user owns these files, and something else is mounted below the directory.
    for name in ["file", "below"] {
        let path = repository.join(name);
        if name == "file" {
            fs::write(&path, "kept").expect("it is ours")
        } else {
            fs::create_dir(&path).expect("it is ours")
        }
        chown(&path, Some(SANDBOX), Some(SANDBOX)).expect("we are root");
    }
    let below = Mounted::on(repository.join("below"));
    fs::write(below.0.join("hidden"), "").expect("it is ours");
    let given = repository.display().to_string();
    for repo in [given.clone(), format!("{given}:ro")] {
        let run = sluice.run(["-q", "--repo", &repo]).args(kit());
        let seen =
            run.args(["--", "python3", "/kit/agents/read_only.py", "/workspace/repo"]).finish().await.expect(0).value();

        let mut expected = json!({"read": "kept", "names": ["below", "file"], "names below": []});
        for way in [
            "create", "by a link", "by /proc", "by the workspace", "write", "truncate", "unlink", "rename", "mkdir",
            "symlink", "chmod", "chown", "utime", "setxattr", "below",
        ] {
            expected[way] = json!("EROFS");
        }
        for way in ["move out", "link out"] {
            expected[way] = json!("EXDEV");
        }
        expected["rmdir"] = json!("EBUSY");
        assert_eq!(seen, expected);
    }
    drop(below);
    assert_eq!(fs::read_to_string(repository.join("file")).expect("it stays"), "kept");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_link_leads_to_the_directory_it_names() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    fs::write(repository.join("file"), "read\n").expect("it is ours");
    symlink("code", sluice.dir().join("link")).expect("it is ours");

    // Relative to the directory of the test, which is where the command runs.
    let run = sluice.run(["-q", "--repo", "link", "--volume", "./link:/mnt/it's here", "--"]);
    let ran = run.args(["sh", "-c", "cat repo/file \"/mnt/it's here/file\""]).finish().await.expect(0);

    assert_eq!(ran.stdout, "read\nread\n");
}

#[tokio::test]
async fn directories_that_are_a_way_out_are_refused() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    symlink("/run", sluice.dir().join("innocent")).expect("it is ours");
    symlink(sluice.state(), sluice.dir().join("state")).expect("it is ours");
    fs::create_dir(sluice.state()).expect("it is ours");
    let own = sluice.dir().display().to_string();
    let file = sluice.file("file", "");
    let good = repository.display().to_string();
    let engine = "holds the engine's socket";
    for (repo, why) in [
        ("/", engine),
        ("/run", engine),
        ("/var/run", engine),
        ("innocent", engine),
        ("/proc", "belongs to the kernel"),
        ("/sys/fs/cgroup", "belongs to the kernel"),
        ("/dev/shm", "overlaps /dev"),
        (&own, "holds the state of sluice"),
        ("state", "holds the state of sluice"),
        (&file, "is not a directory"),
        ("nothing-here", "No such file or directory"),
    ] {
        let ran = sluice.run(["--repo", repo, "--", "true"]).finish().await.expect(125);
        assert!(ran.stderr.contains(why), "{repo}: {}", ran.stderr);
    }
    for (target, why) in [
        ("relative", "is not an absolute path"),
        ("/llm-sock", "hides a part"),
        ("/proc/x", "hides a part"),
        ("/workspace", "is the workspace itself"),
        ("/workspace/.sluice/x", "is the workspace itself"),
        ("/mnt/../etc", "is not an absolute path"),
        ("/", "hides a part"),
        ("/usr/local/bin", "hides a part"),
        ("/lib64", "hides a part"),
        ("/sbin", "hides a part"),
        ("/var/run", "hides a part"),
    ] {
        let ran = sluice.run(["--volume", &format!("{good}:{target}:rw"), "--", "true"]).finish().await;
        assert_eq!(ran.code, 125, "{target} was taken: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{target}: {}", ran.stderr);
    }
    // Refused before anything was made.
    assert_eq!(fs::read_dir(sluice.state()).expect("it is ours").count(), 0);
}

#[tokio::test]
async fn an_unusable_directory_is_reported_before_the_run() {
    let (sluice, _upstream) = without_calls().await;
    let path = sluice.dir().join("roots");
    fs::create_dir(&path).expect("a fresh directory takes another");
    let given = path.display().to_string();
    let [reads, writes] = ["ro", "rw"].map(|access| format!("{given}:/workspace/repo:{access}"));
    for (mode, volume, code, told) in [
        (0o755, &reads, 0, ""),
        (0o777, &writes, 0, ""),
        (0o755, &writes, 0, "sluice: warning: the sandbox's user 1001 cannot create files in "),
        (0o711, &reads, 0, "sluice: warning: the sandbox's user 1001 cannot list "),
        (0o700, &reads, 125, "the sandbox's user 1001 cannot enter "),
        (0o700, &writes, 125, "the sandbox's user 1001 cannot enter "),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        let ran = sluice.run(["-q", "--volume", volume, "--", "true"]).finish().await.expect(code);
        assert!(ran.stderr.contains(told), "{mode:o} {volume}: {}", ran.stderr);
        assert_eq!(ran.stderr.is_empty(), told.is_empty(), "{mode:o} {volume}: {}", ran.stderr);
        assert!(told.is_empty() || ran.stderr.contains(&format!("chown 1001:1001 {given}")), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_volume_can_be_one_file() {
    let (sluice, _upstream) = without_calls().await;
    sluice.file("one.txt", "one\n");
    sluice.file("two.txt", "");
    chown(sluice.dir().join("two.txt"), Some(SANDBOX), Some(SANDBOX)).expect("we are root");
    let script = "cat /data/one.txt deep/er/one.txt && ! echo x 2>/dev/null >/data/one.txt && echo two >/data/two.txt && stat -c %U deep";
    let volumes = ["one.txt:/data/one.txt:ro", "one.txt:/workspace/deep/er/one.txt", "two.txt:/data/two.txt:rw"];

    let run = sluice.run(["-q"]).args(volumes.iter().flat_map(|volume| ["-v", volume]));
    let ran = run.args(["--", "sh", "-c", script]).finish().await.expect(0);

    assert_eq!(ran.stdout, "one\none\nsandboxer\n");
    assert_eq!(fs::read_to_string(sluice.dir().join("two.txt")).expect("it stays"), "two\n");
    let private = sluice.dir().join("one.txt");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let ran = sluice.run(["-v", "one.txt:/data/one.txt", "--", "true"]).finish().await.expect(125);
    assert!(ran.stderr.contains("the sandbox's user 1001 cannot read "), "{}", ran.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn volumes_inside_each_other_are_refused() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    // Links of an earlier agent: the engine would mount there, and make directories as root.
    symlink("/llm-sock", repository.join("link")).expect("it is ours");
    let volume = |target: &str| format!("code:{target}");
    for pair in [["/workspace/repo", "/workspace/repo/link"], ["/mnt/a/b", "/mnt/a"]] {
        let [one, other] = pair.map(volume);
        let ran = sluice.run(["--volume", &format!("{one}:rw"), "--volume", &other, "--", "true"]).finish().await;
        assert_eq!(ran.code, 125, "{pair:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read_dir(&repository).expect("it stays").count(), 1);
}

#[tokio::test]
async fn the_agent_owns_parents_of_a_deep_directory() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    let volume = format!("{}:/workspace/a/b/c:rw", repository.display());
    let script = "stat -c %U a a/b a/b/c && touch a/x a/b/x a/b/c/x";

    let ran = sluice.run(["-q", "--volume", &volume, "--", "sh", "-c", script]).finish().await.expect(0);

    assert_eq!(ran.stdout, "sandboxer\n".repeat(3));
    assert!(repository.join("x").exists());
}

#[tokio::test]
async fn links_of_the_agent_do_not_lead_outside() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    let outside = sluice.dir().join("outside");
    fs::create_dir(&outside).expect("a fresh directory takes another");
    fs::write(outside.join("kept"), "kept").expect("it is ours");
    let path = outside.display();
    // In the workspace, under names that the controller uses, and in directories that outlive the run.
    let script = format!(
        "mkdir -p a/b; for at in link a/link a/b/link repo/link; do ln -s {path} $at; done; \
         rm -rf .sluice; ln -s {path} .sluice; ln -s {path}/kept kept; ln -s / root; ln -s ../conf conf; chmod 0 a"
    );

    let volume = format!("{}:/workspace/repo:rw", repository.display());
    let run = sluice.run(["-q", "--volume", &volume, "hello", "--", "sh", "-c", &script]);
    run.finish().await.expect(0);

    sluice.assert_nothing_left().await;
    assert_eq!(fs::read_to_string(outside.join("kept")).expect("it stays"), "kept");
    assert_eq!(fs::read_link(repository.join("link")).expect("it stays"), outside);
}

#[tokio::test]
async fn a_kept_directory_keeps_its_contents() {
    let (sluice, _upstream) = without_calls().await;
    let repository = repository(&sluice);
    for number in 0..20 {
        fs::write(repository.join(format!("{number}")), "x").expect("it is ours");
    }
    let given = format!("{}:rw", repository.display());
    let more = format!("{}:/workspace/deep/er:rw", repository.display());

    // The contents stay with any end of the run.
    for (script, code) in [("true", 0), ("kill -KILL $$", 137), ("rm -rf .sluice; mkdir x; ln -s ../repo x/repo", 0)] {
        let run = sluice.run(["-q", "--repo", &given, "--volume", &more, "hello", "--", "sh", "-c", script]);
        run.finish().await.expect(code);
    }
    sluice
        .run(["-q", "--timeout", "1s", "--stop-grace", "0s", "--repo", &given, "--", "sleep", "60"])
        .finish()
        .await
        .expect(124);

    assert_eq!(fs::read_dir(&repository).expect("it stays").count(), 20);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn any_content_of_a_workspace_is_removed() {
    let (sluice, _upstream) = without_calls().await;
    for program in [&["names.py"][..], &["deep.py", "2000"], &["closed.py"]] {
        let (name, arguments) = program.split_first().expect("a program");
        let run = sluice.run(["-q"]).args(kit()).args(["--", "python3", &format!("/kit/agents/{name}")]);
        // The limit of descriptors is lower than the number of levels.
        let ran = run.args(arguments).wrapper(["prlimit", "--nofile=500:500"]).finish().await.expect(0);
        assert_eq!(ran.stdout, "made\n", "{name}");
        sluice.assert_nothing_left().await;
    }
}
