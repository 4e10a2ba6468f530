//! `--repo DIR:rw`: a run works on a copy, and its changes come back, except for what git on the host would execute.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{PATIENCE, Sluice, poll};

use crate::agents::without_calls;

mod faults;

/// Runs git on the host as the owner of the directory, with only the configuration of the repository.
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let owner = fs::metadata(directory).expect("it is there");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &owner.uid().to_string(), "--regid", &owner.gid().to_string(), "--clear-groups", "git"]);
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main", "-C"]).arg(directory);
    command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let ran =
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git is there");
    assert!(ran.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Makes a repository with one commit, which this user owns. Its parent directory is open to everybody.
pub(crate) fn repository(sluice: &Sluice, name: &str, uid: u32) -> PathBuf {
    let path = sluice.dir().join(name);
    fs::set_permissions(sluice.dir(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::create_dir_all(path.join("src")).expect("a fresh directory takes another");
    fs::write(path.join("text"), "one\ntwo\nthree\n").expect("it is ours");
    fs::write(path.join("gone"), "gone\n").expect("it is ours");
    fs::write(path.join("src/old"), "moved\n").expect("it is ours");
    fs::write(path.join("run.sh"), "true\n").expect("it is ours");
    let all = ["", "src", "text", "gone", "src/old", "run.sh"];
    all.iter().for_each(|name| chown(path.join(name), Some(uid), Some(uid)).expect("we are root"));
    git(&path, &["init", "--quiet"]);
    git(&path, &["add", "--all"]);
    git(&path, &["commit", "--quiet", "--message", "start"]);
    path
}

/// A program that runs a script in the repository.
pub(crate) fn in_repository(script: &str) -> [String; 4] {
    ["--", "sh", "-c", &format!("cd repo; {script}")].map(str::to_owned)
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

fn writable(path: &Path) -> String {
    format!("{}:rw", path.display())
}

#[tokio::test]
async fn changes_come_back_whoever_owns_the_directory() {
    let (sluice, _upstream) = without_calls().await;
    let script = "git status --short && echo TWO >>text && rm gone && mv src/old src/new && mkdir -p n/m && \
        echo x >n/m/f && chmod +x run.sh && ln -s ../text src/link && \
        git -c user.name=a -c user.email=a@a commit --quiet --all --message work";
    for uid in [0, 1000, 1001, 54321] {
        let path = repository(&sluice, &format!("code-{uid}"), uid);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let head = git(&path, &["rev-parse", "HEAD"]);

        let run = sluice.run(["--json", "--repo", &writable(&path)]).args(in_repository(script));
        let report = run.finish().await.expect(0).json();

        assert_eq!(report.stdout, "", "the copy is as clean as the original");
        let repo = report.repo.expect("changes were made");
        let counts = ["added", "changed", "deleted"].map(|name| repo[name].as_u64().expect("a number"));
        assert_eq!(counts, [3, 2, 2], "{repo}");
        assert_eq!(read(path.join("text")), "one\ntwo\nthree\nTWO\n");
        assert_eq!(fs::read_link(path.join("src/link")).expect("a link"), Path::new("../text"));
        for name in ["text", "src/new", "src/link", "n", "n/m", "n/m/f", "run.sh"] {
            let meta = fs::symlink_metadata(path.join(name)).expect("it came back");
            assert_eq!((meta.uid(), meta.gid()), (uid, uid), "{name}");
        }
        // Git on the host works, and its own commits are as they were.
        let status = git(&path, &["status", "--short"]);
        assert_eq!(status, " D gone\n M run.sh\n D src/old\n M text\n?? n/\n?? src/link\n?? src/new\n");
        assert_eq!(git(&path, &["rev-parse", "HEAD"]), head);
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn git_on_the_host_executes_nothing_of_a_run() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    fs::create_dir(path.join("hooks")).expect("it is ours");
    fs::write(path.join("hooks/pre-commit"), "#!/bin/sh\nexit 0\n").expect("it is ours");
    fs::set_permissions(path.join("hooks/pre-commit"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    git(&path, &["config", "core.hooksPath", "hooks"]);
    git(&path, &["config", "include.path", "../.gitconfig"]);
    let config = read(path.join(".git/config"));
    let canary = sluice.dir().join("canary");
    let trap = format!("touch {}", canary.display());
    // Its own metadata, nested ones in every spelling, a bare repository, and files that the host's git executes.
    let script = format!(
        "trap='{trap}'; \
         git config core.fsmonitor \"$trap #\"; printf '#!/bin/sh\\n%s\\n' \"$trap\" >.git/hooks/pre-commit; chmod +x .git/hooks/*; \
         echo '* filter=z' >.git/info/attributes; \
         for at in sub deep/er; do git init --quiet $at; git -C $at config core.fsmonitor \"$trap #\"; \
           git -C $at config filter.z.clean \"$trap; cat\"; echo '* filter=z' >$at/.gitattributes; echo f >$at/f; done; \
         mkdir upper link file; cp -r sub/.git upper/.GIT; ln -s ../sub/.git link/.git; echo 'gitdir: ../bare' >file/.git; \
         git init --quiet --bare bare; git --git-dir bare config core.fsmonitor \"$trap #\"; git --git-dir bare config core.bare false; \
         mkdir pointer; echo 'ref: refs/heads/main' >pointer/HEAD; echo ../bare >pointer/commondir; \
         printf '#!/bin/sh\\n%s\\n' \"$trap\" >hooks/pre-commit; \
         printf '[core]\\n\\tfsmonitor = %s\\n' \"$trap\" >.gitconfig; \
         ln -s .git/hooks into; ln -s /etc out; echo good >good"
    );

    let run = sluice.run(["--json", "--repo", &writable(&path)]).args(in_repository(&script));
    let ran = run.finish().await.expect(74);

    let report = ran.json();
    assert_eq!(report.error_code.as_deref(), Some("output_failed"), "{}", ran.stderr);
    let repo = report.repo.expect("changes were made");
    let left_out: Vec<_> =
        repo["left_out"].as_array().expect("a list").iter().filter_map(|one| one["path"].as_str()).collect();
    for name in [
        "hooks/pre-commit", ".gitconfig", "into", "out", "sub/.git", "deep/er/.git", "upper/.GIT", "link/.git",
        "file/.git", "bare", "pointer",
    ] {
        assert!(left_out.contains(&name), "{name}: {left_out:?}");
        assert!(fs::symlink_metadata(path.join(name)).is_err() || name == "hooks/pre-commit", "{name} came out");
    }
    assert_eq!(read(path.join("good")), "good\n");
    assert_eq!(read(path.join(".git/config")), config);
    assert_eq!(read(path.join("hooks/pre-commit")), "#!/bin/sh\nexit 0\n");
    assert!(!path.join(".git/hooks/pre-commit").exists());
    for args in [&["status"][..], &["add", "--all"], &["diff", "--cached", "--stat"], &["commit", "--quiet", "-m", "x"]]
    {
        git(&path, args);
    }
    for inner in ["sub", "deep/er", "upper", "link", "file"] {
        git(&path.join(inner), &["status"]);
    }
    assert!(!canary.exists(), "git on the host has executed something of the run");
    // Nothing is lost: the rest is in the workspace, which was kept.
    let kept = PathBuf::from(report.workspace.expect("it is kept"));
    assert!(read(kept.join("repo/hooks/pre-commit")).contains("canary"));
}

#[tokio::test]
async fn special_files_and_links_do_not_escape() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let outside = sluice.file("outside", "outside\n");
    // A directory that becomes a link, links in place of files, a FIFO, and two names of one file.
    let script = format!(
        "rm -r src; ln -s / src; rm text; ln -s {outside} text; mkfifo fifo; echo both >one; ln one two; \
         rm gone; mkdir gone; echo inside >gone/f; chmod 0 one; chmod 7777 run.sh"
    );

    let ran = sluice.run(["--json", "--repo", &writable(&path)]).args(in_repository(&script)).finish().await.expect(74);

    let repo = ran.json().repo.expect("changes were made");
    let names = repo["left_out"].to_string();
    for name in ["\"fifo\"", "\"src\"", "\"text\""] {
        assert!(names.contains(name), "{name}: {names}");
    }
    assert_eq!(
        [read(path.join("one")), read(path.join("two")), read(path.join("gone/f"))],
        ["both\n", "both\n", "inside\n"]
    );
    assert_ne!(
        fs::metadata(path.join("one")).expect("it is there").ino(),
        fs::metadata(path.join("two")).expect("it is there").ino()
    );
    let mode = fs::metadata(path.join("run.sh")).expect("it is there").mode() & 0o7777;
    assert_eq!(mode, 0o755, "no set-id bits, and no right to write for others");
    assert_eq!(read(path.join("text")), "one\ntwo\nthree\n", "a file that became a link outward stays");
    assert_eq!(read(outside), "outside\n");
    assert!(fs::symlink_metadata(path.join("fifo")).is_err());
}

#[tokio::test]
async fn edits_on_the_host_during_a_run_stay() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let script = "echo agent >text; rm gone; echo agent >fresh; echo agent >quiet; touch ../ready; \
        until [ -e ../go ]; do sleep 0.01; done";
    let run = sluice.run(["--json", "--repo", &writable(&path)]).args(in_repository(script)).spawn();
    sluice.started().await;
    let workspace = sluice.runs().pop().expect("one run").join("work");
    assert!(poll(PATIENCE, async || workspace.join("ready").exists()).await);
    assert_eq!(read(path.join("text")), "one\ntwo\nthree\n", "changes come at the end");
    for (name, content) in [("text", "person\n"), ("gone", "person\n"), ("fresh", "person\n"), ("other", "person\n")] {
        fs::write(path.join(name), content).expect("it is ours");
    }
    fs::write(workspace.join("go"), "").expect("we are root");

    let ran = run.finish().await.expect(74);

    for name in ["text", "gone", "fresh", "other"] {
        assert_eq!(read(path.join(name)), "person\n", "{name}");
    }
    assert_eq!(read(path.join("quiet")), "agent\n");
    let report = ran.json();
    assert!(
        report.error_message.is_some_and(|text| text.contains("3 changes of the run were not made")),
        "{}",
        ran.stderr
    );
    let kept = PathBuf::from(report.workspace.expect("it is kept"));
    assert_eq!([read(kept.join("repo/text")), read(kept.join("repo/fresh"))], ["agent\n", "agent\n"]);
}

#[tokio::test]
async fn a_kill_of_the_controller_loses_nothing() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let run_id = unique_run_id("kept");
    let script = "echo agent >text; rm gone; echo ready; sleep 600";
    let run = sluice.run(["--run-id", &run_id, "--repo", &writable(&path)]).args(in_repository(script)).spawn();
    run.prints("ready").await;
    run.kill().await.expect(-9);

    let swept = sluice.command(["sweep", "--json"]).finish().await.expect(0).value();

    let leftover = &swept["leftovers"][0];
    assert_eq!((leftover["kind"].as_str(), leftover["removed"].as_bool()), (Some("run"), Some(true)), "{swept}");
    let kept = PathBuf::from(leftover["workspace"].as_str().expect("it is kept"));
    assert_eq!(read(kept.join("repo/text")), "agent\n");
    assert_eq!([read(path.join("text")), read(path.join("gone"))], ["one\ntwo\nthree\n", "gone\n"]);
    assert_eq!(git(&path, &["status", "--short"]), "");
    assert_eq!(sluice.leftovers().await, []);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("there is a /proc");
    assert!(!mounts.contains(&sluice.dir().display().to_string()), "{mounts}");
}

#[tokio::test]
async fn a_removed_copy_changes_nothing() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    for script in ["cd ..; mv repo away", "cd ..; rm -rf repo; ln -s / repo", "cd ..; rm -rf repo; echo x >repo"] {
        let ran = sluice.run(["--repo", &writable(&path)]).args(in_repository(script)).finish().await.expect(74);
        assert!(ran.stderr.contains("the run has removed /workspace/repo"), "{}", ran.stderr);
        assert_eq!(git(&path, &["status", "--short"]), "");
    }
}

#[tokio::test]
async fn private_files_and_credentials_do_not_enter() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    fs::write(path.join("roots"), "private\n").expect("it is ours");
    fs::set_permissions(path.join("roots"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::write(path.join("own"), "own\n").expect("it is ours");
    fs::set_permissions(path.join("own"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    chown(path.join("own"), Some(1000), Some(1000)).expect("we are root");
    git(&path, &["remote", "add", "origin", "https://me:hunter2@example.com/x.git"]);
    git(&path, &["config", "http.extraheader", "AUTHORIZATION: basic aHVudGVyMg=="]);
    let script = "ls roots; cat own .git/config; git remote get-url origin";

    let ran = sluice.run(["-q", "--repo", &writable(&path)]).args(in_repository(script)).finish().await.expect(0);

    assert!(ran.stdout.starts_with("own\n") && ran.stdout.ends_with("https://example.com/x.git\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("hunter2") && !ran.stdout.contains("aHVu"), "{}", ran.stdout);
    assert_eq!(read(path.join("roots")), "private\n", "what the run did not get is not deleted");
}

#[tokio::test]
async fn a_tree_without_bounds_changes_nothing() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let script = "echo x >text; python3 -c \"import os\nfor n in range(2100): os.mkdir('d'); os.chdir('d')\"";

    let ran = sluice.run(["--repo", &writable(&path)]).args(in_repository(script)).finish().await.expect(74);

    assert!(ran.stderr.contains("has a file whose path in it is longer than 4000 bytes"), "{}", ran.stderr);
    assert_eq!(git(&path, &["status", "--short"]), "");
}

#[tokio::test]
async fn directories_of_git_are_no_work_trees() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 0);
    git(sluice.dir(), &["init", "--quiet", "--bare", "bare"]);
    symlink("code/.git", sluice.dir().join("link")).expect("it is ours");
    for (given, why) in [
        (path.join(".git"), "is in the metadata of git"),
        (path.join(".git/hooks"), "is in the metadata of git"),
        (sluice.dir().join("link"), "is in the metadata of git"),
        (sluice.dir().join("bare"), "is the directory of a git repository itself"),
    ] {
        let ran = sluice.run(["--repo", &writable(&given), "--", "true"]).finish().await.expect(125);
        assert!(ran.stderr.contains(why), "{}: {}", given.display(), ran.stderr);
    }
}

#[tokio::test]
async fn a_removal_does_not_enter_a_mount() {
    let (sluice, _upstream) = without_calls().await;
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    let inside = sluice.state().join("runs/.removed-r.0").join("work").join("repo");
    let outside = sluice.dir().join("outside");
    fs::create_dir_all(&inside).and_then(|()| fs::create_dir(&outside)).expect("they are ours");
    fs::write(outside.join("kept"), "kept\n").expect("it is ours");
    let mount = |program: &str, args: &[&Path]| {
        let done = Command::new(program).args(args).status().expect("there is a mount");
        assert!(done.success(), "{program} {args:?}");
    };
    mount("mount", &[Path::new("--bind"), &outside, &inside]);

    let swept = sluice.command(["sweep", "--json"]).finish().await;

    let kept = fs::read_to_string(outside.join("kept"));
    mount("umount", &[&inside]);
    assert_eq!(kept.ok().as_deref(), Some("kept\n"));
    assert_eq!(swept.value()["leftovers"][0]["removed"], false, "{}", swept.stdout);
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_writable_volume_with_git_is_warned_about() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1001);
    for (access, expected) in [("rw", true), ("ro", false)] {
        let volume = format!("{}:/workspace/x:{access}", path.display());
        let ran = sluice.run(["-q", "--volume", &volume, "--", "true"]).finish().await.expect(0);
        assert_eq!(ran.stderr.contains("the sandbox can change what git executes in"), expected, "{}", ran.stderr);
    }
}
