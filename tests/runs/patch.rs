//! `--patch FILE`: what a run has changed, for `git apply`; the directory itself stays as it is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_testkit::Sluice;
use sluice_testkit::controller::unique_run_id;

use crate::agents::{kit, without_calls};
use crate::repo::{git, in_repository, repository};
use crate::serve::commands::faults;

/// Every file and link of a tree, as git sees them: path, mode, content.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, (&'static str, Vec<u8>)> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).expect("it is a directory").flatten() {
            let (path, meta) = (entry.path(), entry.metadata().expect("it is there"));
            let name = path.strip_prefix(root).expect("it is below").as_os_str().as_bytes().to_vec();
            if meta.is_symlink() {
                let target = fs::read_link(&path).expect("a link").into_os_string().as_bytes().to_vec();
                found.insert(name, ("link", target));
            } else if meta.is_file() {
                let mode = if meta.permissions().mode() & 0o100 == 0 { "file" } else { "program" };
                found.insert(name, (mode, fs::read(&path).expect("it is ours")));
            } else if entry.file_name() != ".git" {
                waiting.push(path);
            }
        }
    }
    found
}

/// Part of an entry that is compared.
#[derive(Clone, Copy, PartialEq)]
enum Compare {
    All,
    /// `git apply --reverse` of git 2.47 forgets that a deleted file could be executed, also with git's own patches.
    Content,
}

/// The names of all entries that differ between two trees.
fn differing(one: &Path, other: &Path, compare: Compare) -> Vec<String> {
    let is_same = |one: Option<&(&'static str, Vec<u8>)>, other: Option<&(&'static str, Vec<u8>)>| match (one, other) {
        (Some(one), Some(other)) if compare == Compare::Content => one.1 == other.1,
        (one, other) => one == other,
    };
    let [one, other] = [one, other].map(tree);
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let differing = names.filter(|name| !is_same(one.get(*name), other.get(*name)));
    differing.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn mutate(directory: &Path, seed: u64, count: u64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/agents/mutate.py");
    let ran =
        Command::new("python3").arg(script).args([seed.to_string(), count.to_string()]).current_dir(directory).status();
    assert!(ran.expect("there is a Python").success());
}

/// Clones a repository into a new directory.
fn clone(sluice: &Sluice, of: &Path, name: &str) -> PathBuf {
    let path = sluice.dir().join(name);
    git(
        sluice.dir(),
        &["-c", "safe.directory=*", "clone", "--quiet", &of.display().to_string(), &path.display().to_string()],
    );
    path
}

#[tokio::test]
async fn a_patch_gives_exactly_the_trees_of_runs() {
    let (sluice, _upstream) = without_calls().await;
    for seed in 1..=8 {
        let path = sluice.dir().join(format!("code-{seed}"));
        fs::create_dir(&path).expect("a fresh directory takes another");
        git(&path, &["init", "--quiet"]);
        mutate(&path, 1000 + seed, 40);
        git(&path, &["add", "--all"]);
        git(&path, &["commit", "--quiet", "--message", "start"]);
        let file = format!("{seed}.diff");
        let start = clone(&sluice, &path, &format!("start-{seed}"));
        let run = sluice.run(["--json", "--keep-workspace", "--repo", &path.display().to_string(), "--patch", &file]);
        let words = in_repository(&format!("python3 /kit/agents/mutate.py {seed} 40"));

        let report = run.args(kit()).args(words).finish().await.expect(0).json();

        assert_eq!(differing(&path, &start, Compare::All), [""; 0], "the directory is as it was");
        let clone = clone(&sluice, &path, &format!("clone-{seed}"));
        let patch = sluice.dir().join(&file).display().to_string();
        git(&clone, &["apply", "--check", &patch]);
        git(&clone, &["apply", "--whitespace=nowarn", &patch]);
        let kept = PathBuf::from(report.workspace.expect("it is kept"));
        assert_eq!(differing(&clone, &kept.join("repo"), Compare::All), [""; 0], "seed {seed}");
        git(&clone, &["apply", "--reverse", "--whitespace=nowarn", &patch]);
        assert_eq!(differing(&clone, &start, Compare::Content), [""; 0], "seed {seed}, in reverse");
        let summary = report.patch.expect("a patch was made");
        let made = fs::metadata(&patch).expect("it is there").len();
        assert_eq!(summary["bytes"].as_u64(), Some(made));
    }
}

#[tokio::test]
async fn a_patch_names_what_needs_a_look() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    chown(sluice.dir(), Some(1000), Some(1000)).expect("we are root");
    let script = "mkdir -p .github/workflows && echo on: push >.github/workflows/ci.yml && echo '* filter=x' >.gitattributes && \
        echo plain >plain && printf '#!/bin/sh\\n' >tool && chmod +x tool && git init -q sub && \
        echo x >\"$(printf 'esc\\033[31m')\"";

    let run = sluice.run(["--repo", &path.display().to_string(), "--patch", "out.diff"]);
    let ran = run.args(in_repository(script)).finish().await.expect(0);

    let look = ran.stderr.lines().find(|line| line.contains("look at these")).expect("it names them");
    for name in [".github/workflows/ci.yml", ".gitattributes", "tool"] {
        assert!(look.contains(name), "{name}: {look}");
    }
    assert!(!look.contains("plain") && !ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
    assert!(ran.stderr.contains("patch: 5 files changed, 5 insertions, 0 deletions in "), "{}", ran.stderr);
    assert!(ran.stderr.contains("left out: sub/.git"), "{}", ran.stderr);
    assert_eq!(git(&path, &["status", "--short"]), "");
    // The person can use it at once.
    git(&path, &["apply", "--index", &sluice.dir().join("out.diff").display().to_string()]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_patch_is_shown_and_applied_by_its_run() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let given = path.display().to_string();
    let run_id = unique_run_id("applied");
    let run = sluice.run(["--run-id", &run_id, "--repo", &given, "--patch", "out.diff"]);
    let ran = run.args(in_repository("echo x >>text && echo '* filter=x' >.gitattributes")).finish().await.expect(0);
    assert!(ran.stderr.contains(&format!("sluice apply {run_id} --yes")), "{}", ran.stderr);
    let command = async |words: &[&str], code| sluice.command(words).finish().await.expect(code);

    let shown = command(&["diff", &run_id], 0).await.stdout;
    assert!(shown.contains("patch: look at these before you apply it: .gitattributes\n"), "{shown}");
    assert!(shown.ends_with(" three\n+x\n"), "{shown}");
    let object = command(&["diff", &run_id, "--json"], 0).await.value();
    assert_eq!((&object["run_id"], &object["patch"]["files"]), (&run_id.as_str().into(), &2.into()), "{object}");
    let inspected = command(&["inspect", &run_id, "--json"], 0).await.value();
    let checked = command(&["apply", &run_id, "--to", &given], 0).await;
    assert!(checked.stdout.ends_with("+x\n") && checked.stderr.contains("--yes applies it"), "{checked:?}");
    assert_eq!(git(&path, &["status", "--short"]), "");
    let applied = command(&["apply", &run_id, "--to", &given, "--yes", "--json"], 0).await.value();
    assert_eq!(git(&path, &["status", "--short"]), "A  .gitattributes\nM  text\n");
    let found = faults(&[("diff", object), ("inspect", inspected), ("apply", applied)]).await;
    assert!(found.is_empty(), "{found:?}");

    let head = "0".repeat(40);
    for words in [vec!["push", &run_id, "--head", &head], vec!["pr", &run_id], vec!["merge", &run_id, "--head", &head]]
    {
        let refused = command(&words, 2).await.stderr;
        assert!(refused.contains("has no branch; a run with --repo URL"), "{refused}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_changed_patch_is_not_applied() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let given = path.display().to_string();
    let run_id = unique_run_id("changed");
    let run = sluice.run(["-q", "--run-id", &run_id, "--repo", &given, "--patch", "out.diff"]);
    run.args(in_repository("echo x >>text")).finish().await.expect(0);
    let patch = sluice.dir().join("out.diff");
    let other = fs::read_to_string(&patch).expect("it is there").replace("+x", "+y");
    let secret = sluice.file("secret", "a secret\n");
    for (change, reason) in [
        (Box::new(|| fs::write(&patch, &other)) as Box<dyn Fn() -> std::io::Result<()>>, "is not what the run wrote"),
        (
            Box::new(|| fs::remove_file(&patch).and_then(|()| std::os::unix::fs::symlink(&secret, &patch))),
            "symbolic links",
        ),
        (Box::new(|| fs::remove_file(&patch)), "No such file"),
    ] {
        change().expect("it is ours");
        let refused = sluice.command(["apply", &run_id, "--to", &given, "--yes"]).finish().await.expect(1);
        assert!(refused.stderr.contains(reason), "{reason}: {}", refused.stderr);
        assert!(!refused.stdout.contains("secret"), "{}", refused.stdout);
    }
    assert_eq!(git(&path, &["status", "--short"]), "");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn failed_runs_have_a_patch_too() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let given = path.display().to_string();
    for (name, flags, script, code) in [
        ("failed.diff", ["--timeout", "60s"], "echo x >>text; exit 3", 3),
        ("late.diff", ["--timeout", "20s"], "echo x >>text; sleep 600", 124),
    ] {
        let run = sluice.run(["-q", "--stop-grace", "0s", "--repo", &given, "--patch", name]).args(flags);
        run.args(in_repository(script)).finish().await.expect(code);
        let made = fs::read_to_string(sluice.dir().join(name)).expect("it is there");
        assert!(made.contains("+++ b/text\n") && made.ends_with("+x\n"), "{made}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_patch_without_bounds_is_refused() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let run_id = unique_run_id("many");
    let script = "import os\nos.chdir('repo')\nfor n in range(100_100):\n    os.close(os.open(f'f{n}', os.O_CREAT | os.O_WRONLY))";
    let flags = ["--run-id", &run_id, "--repo", &path.display().to_string(), "--patch", "out.diff", "--timeout", "10m"];

    let ran = sluice.run(flags).args(["--", "python3", "-c", script]).finish().await.expect(74);

    assert!(ran.stderr.contains("the patch has more than 100000 files and directories"), "{}", ran.stderr);
    assert!(!sluice.dir().join("out.diff").exists());
    assert!(sluice.state().join(format!("kept/{run_id}.0/repo/f0")).exists(), "the workspace is kept");
}

#[tokio::test]
async fn edits_on_the_host_do_not_change_patches() {
    let (sluice, _upstream) = without_calls().await;
    let path = repository(&sluice, "code", 1000);
    let script = "until [ -e ../go ]; do sleep 0.01; done; echo agent >>text";
    let flags = ["-q", "--repo", &path.display().to_string(), "--patch", "out.diff"];
    let run = sluice.run(flags).args(in_repository(script)).spawn();
    sluice.started().await;
    fs::write(path.join("text"), "something else\n").expect("it is ours");
    fs::write(sluice.runs().pop().expect("one run").join("work/go"), "").expect("we are root");

    run.finish().await.expect(0);

    let patch = fs::read_to_string(sluice.dir().join("out.diff")).expect("it is there");
    assert!(patch.ends_with("@@ -1,3 +1,4 @@\n one\n two\n three\n+agent\n"), "{patch}");
    assert_eq!(fs::read_to_string(path.join("text")).expect("it stays"), "something else\n");
}
