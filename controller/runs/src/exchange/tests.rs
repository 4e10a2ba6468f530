//! Copies into and out of workspaces on the disk, without a sandbox. They need root.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use sluice_state::layout::Layout;
use tempfile::TempDir;

use super::*;

const USER_ID: u32 = 1000;

/// A directory of the host and the directories of a run.
struct TestRun {
    directory: TempDir,
    paths: RunPaths,
    exchange: FileExchange,
    interrupt: CancelFlag,
}

impl TestRun {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(&directory.path().join("state")).expect("there is room");
        let paths = layout.run(&name.parse().expect("a key"));
        for path in [&paths.root, &paths.conf, &paths.work] {
            fs::create_dir(path).expect("there is room");
        }
        let host = directory.path().canonicalize().expect("it is there").join("host");
        fs::create_dir(&host).and_then(|()| chown(&host, Some(USER_ID), Some(USER_ID))).expect("we are root");
        let repository =
            RepositoryCopy { directory: HostDirectory::open(&host).expect("it is there"), writes_back: true };
        let exchange = FileExchange { repository: Some(repository), ..FileExchange::default() };
        Self { directory, paths, exchange, interrupt: CancelFlag::default() }
    }

    fn host(&self, path: &str) -> PathBuf {
        self.directory.path().join("host").join(path)
    }

    fn work(&self, path: &str) -> PathBuf {
        self.paths.work.join("repo").join(path)
    }

    fn bring_in(&self) -> RunFiles {
        self.exchange.bring_in(&self.paths, &self.interrupt).expect("there is room")
    }

    fn bring_out(&self, files: &RunFiles) -> Collected {
        self.exchange.bring_out(files, &self.paths, &self.interrupt)
    }

    fn refused(&self) -> String {
        error_chain(&self.exchange.bring_in(&self.paths, &self.interrupt).expect_err("it is refused"))
    }
}

fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("it has one")).and_then(|()| fs::write(path, text)).expect("there is room");
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("it is there")
}

#[test]
fn a_workspace_stays_until_its_results_are_kept() {
    let run = TestRun::new("r.0");
    let files = run.bring_in();
    assert_eq!(rescue(&run.paths).expect("there is no result yet"), None, "a partial copy is no result");
    run.exchange.expect_results(&run.paths).expect("there is room");
    write(run.work("made"), "made");
    write(run.host("made"), "by a person");
    let kept = run.directory.path().join("state/kept");
    fs::remove_dir(&kept).and_then(|()| fs::write(&kept, "")).expect("it is ours");

    let collected = run.bring_out(&files);

    assert_eq!(collected.errors.len(), 1);
    rescue(&run.paths).expect_err("there is no directory for it");
    assert_eq!(read(run.work("made")), "made");
    fs::remove_file(&kept).and_then(|()| fs::create_dir(&kept)).expect("it is ours");
    assert_eq!(rescue(&run.paths).expect("there is room"), Some(kept.join("r.0")));
    assert_eq!(read(kept.join("r.0/repo/made")), "made");
    assert_eq!(rescue(&run.paths).expect("it was moved"), Some(kept.join("r.0")), "after a kill it is still reported");
}

#[test]
fn a_lost_start_of_a_repository_keeps_the_workspace() {
    let run = TestRun::new("r.0");
    run.bring_in();
    run.exchange.expect_results(&run.paths).expect("there is room");

    assert_eq!(run.bring_out(&RunFiles::default()).errors.len(), 1);

    assert!(rescue(&run.paths).expect("there is room").is_some());
}

#[test]
fn results_that_are_out_are_not_kept() {
    let run = TestRun::new("r.0");
    let files = run.bring_in();
    run.exchange.expect_results(&run.paths).expect("there is room");
    write(run.work("made"), "made");

    let collected = run.bring_out(&files);

    assert_eq!(collected.errors, [""; 0]);
    assert_eq!(rescue(&run.paths).expect("nothing is to be kept"), None);
    let meta = fs::metadata(run.host("made")).expect("it came out");
    assert_eq!((meta.uid(), meta.gid()), (USER_ID, USER_ID));
}

#[test]
fn no_run_touches_what_another_one_writes() {
    let run = TestRun::new("r.0");
    write(run.host("old"), "old");
    let files = run.bring_in();
    // Another run, of this or of the previous version, writes these files.
    let others = [".sluice-unfinished.other.0", ".sluice-unfinished"];
    others.iter().for_each(|name| write(run.host(name), "other"));
    write(run.work("old"), "new");
    write(run.work("made"), "made");

    let collected = run.bring_out(&files);

    assert_eq!(collected.errors, [""; 0]);
    assert_eq!([read(run.host("old")), read(run.host("made"))], ["new", "made"]);
    others.iter().for_each(|name| assert_eq!(read(run.host(name)), "other"));
    // One with our own name stays, too, and is named.
    write(run.host(".sluice-unfinished.r.0"), "other");
    write(run.work("more"), "more");
    assert!(run.bring_out(&files).errors[0].contains("more (a file .sluice-unfinished.r.0 is beside it"));
    assert_eq!(read(run.host(".sluice-unfinished.r.0")), "other");
    let next = TestRun::new("r.1");
    write(next.host(".sluice-unfinished.r.0"), "other");
    let baseline = next.bring_in().baseline.expect("there is a repository");
    assert_eq!(baseline.skipped, [(b".sluice-unfinished.r.0".to_vec(), "a controller has not finished it; remove it")]);
}

#[test]
fn runs_apply_their_changes_one_after_another() {
    let run = TestRun::new("r.0");
    let other = HostDirectory::open(&run.host(".").canonicalize().expect("it is there")).expect("it is there");
    let directory = &run.exchange.repository.as_ref().expect("there is one").directory;
    let locked = other.lock(Duration::ZERO, &run.interrupt).expect("nobody holds it");
    let waited = directory.lock(Duration::ZERO, &run.interrupt).expect_err("the other one holds it");
    assert!(waited.to_string().starts_with("another program has held the lock of "), "{waited}");
    drop(locked);
    directory.lock(Duration::ZERO, &run.interrupt).expect("nobody holds it");
}

#[test]
fn links_do_not_lead_out_together() {
    let run = TestRun::new("r.0");
    let files = run.bring_in();
    fs::create_dir_all(run.work("x/y")).expect("there is room");
    symlink("../..", run.work("x/y/z")).expect("there is room");
    symlink("x/y/z/../sibling/file", run.work("b")).expect("there is room");
    write(run.directory.path().join("sibling/file"), "outside");

    let collected = run.bring_out(&files);

    assert!(collected.errors[0].contains("b (it is a link that leads out"), "{:?}", collected.errors);
    fs::read(run.host("b")).expect_err("it stays inside");
}

#[test]
fn a_sparse_file_is_refused_before_it_is_copied() {
    let run = TestRun::new("r.0");
    let files = run.bring_in();
    fs::create_dir_all(run.work("")).expect("it is there");
    for n in 0..100 {
        let file = File::create(run.work(&format!("sparse{n}"))).expect("there is room");
        file.set_len(9 << 30).expect("it takes no room");
    }
    write(run.work("zzz"), "a later one is not written either");

    let collected = run.bring_out(&files);

    assert!(collected.errors[0].starts_with("101 changes of the run were not made"), "{:?}", collected.errors);
    assert!(collected.errors[0].contains("a run may write 8589934592 bytes at most"), "{:?}", collected.errors);
    assert_eq!(collected.report.repo.expect("it was tried").bytes, 0);
    assert_eq!(fs::read_dir(run.host("")).expect("it is there").count(), 0);
}

#[test]
fn two_runs_do_not_make_a_repository_together() {
    for (ours, theirs) in [(["objects", "refs"], ["HEAD", "x"]), (["head", "x"], ["Objects", "refs"])] {
        let run = TestRun::new("r.0");
        let files = run.bring_in();
        theirs.iter().for_each(|name| write(run.host(&format!("d/{name}")), "other"));
        ours.iter().for_each(|name| write(run.work(&format!("d/{name}")), "ours"));

        let collected = run.bring_out(&files);

        let names = fs::read_dir(run.host("d")).expect("it is there").flatten();
        let names: Vec<_> = names.map(|name| name.file_name().into_encoded_bytes()).collect();
        assert!(!git_names::is_git_directory(names.iter().map(Vec::as_slice)), "{names:?}");
        assert!(collected.errors[0].contains("would take its directory for a repository"), "{:?}", collected.errors);
    }
}

/// Bug: the host had neither version, because the old one was deleted before the new one was refused.
#[test]
fn a_refused_change_of_kind_keeps_the_old_file() {
    let run = TestRun::new("r.0");
    write(run.host("d/objects"), "old");
    symlink("x", run.host("link")).expect("there is room");
    let files = run.bring_in();
    fs::remove_file(run.work("d/objects")).and_then(|()| fs::create_dir(run.work("d/objects"))).expect("it is there");
    fs::remove_file(run.work("link")).expect("it is there");
    write(run.work("link"), "new");
    let others = ["d/HEAD", "d/refs", ".sluice-unfinished.r.0"];
    others.iter().for_each(|name| write(run.host(name), "other"));

    let refused = run.bring_out(&files);

    assert!(refused.errors[0].starts_with("2 changes of the run were not made"), "{:?}", refused.errors);
    assert_eq!(fs::read_link(run.host("link")).expect("it is there"), Path::new("x"));
    assert_eq!(read(run.host("d/objects")), "old");
    others.iter().for_each(|name| fs::remove_file(run.host(name)).expect("it is there"));
    assert_eq!(run.bring_out(&files).errors, [""; 0]);
    assert!(run.host("d/objects").is_dir());
    assert_eq!(read(run.host("link")), "new");
}

/// Bug: the file of the host was deleted before the directory was made.
#[test]
fn a_directory_that_cannot_be_made_keeps_the_file() {
    let run = TestRun::new("r.0");
    write(run.host("data"), "old");
    let files = run.bring_in();
    fs::remove_file(run.work("data")).expect("it is there");
    write(run.work("data/inner"), "new");
    let unfinished = run.host(".sluice-unfinished.r.0");
    write(&unfinished, "other");

    let refused = run.bring_out(&files);

    assert!(refused.errors[0].starts_with("2 changes of the run were not made"), "{:?}", refused.errors);
    assert_eq!((read(run.host("data")), read(&unfinished)), ("old".to_owned(), "other".to_owned()));
    fs::remove_file(&unfinished).expect("it is there");
    assert_eq!(run.bring_out(&files).errors, [""; 0]);
    assert_eq!(read(run.host("data/inner")), "new");
    assert!(!unfinished.exists());
}

#[test]
fn credentials_of_no_configuration_enter() {
    let run = TestRun::new("r.0");
    let secret = "[http] extraheader = AUTHORIZATION: basic c2Vj\n[core]\n\tbare = false\n";
    for git in [".git", ".git/modules/inner", "bare"] {
        for (name, text) in [("HEAD", ""), ("objects/x", ""), ("refs/heads/config", "1234"), ("config", secret)] {
            write(run.host(&format!("{git}/{name}")), text);
        }
        write(run.host(&format!("{git}/config.worktree")), secret);
        write(run.host(&format!("{git}/config.save")), "c2Vj is not a configuration");
    }

    let files = run.bring_in();

    for git in [".git", ".git/modules/inner", "bare"] {
        for name in ["config", "config.worktree"] {
            assert_eq!(read(run.work(&format!("{git}/{name}"))), "[core]\n\tbare = false\n", "{git}");
        }
        assert_eq!(read(run.work(&format!("{git}/refs/heads/config"))), "1234");
    }
    let skipped = files.baseline.expect("there is a repository").skipped;
    assert_eq!(skipped.iter().filter(|(path, _)| path.ends_with(b"/config.save")).count(), 3, "{skipped:?}");
}

#[test]
fn a_configuration_without_bounds_is_refused() {
    let run = TestRun::new("r.0");
    write(run.host(".git/config"), &"# padding\n".repeat(200_000));
    assert!(run.refused().ends_with("host/.git/config has more than 1048576 bytes"));
    let run = TestRun::new("r.0");
    write(run.host(".git/config"), "[http\nextraheader = x\n");
    assert!(run.refused().contains("host/.git/config, line 2: this is not a configuration of git"));
}

#[test]
fn a_run_sees_no_more_than_the_owner() {
    let run = TestRun::new("r.0");
    for (name, mode) in [("listed", 0o744), ("passed", 0o711), ("open", 0o755)] {
        write(run.host(&format!("{name}/file")), "x");
        fs::set_permissions(run.host(name), Permissions::from_mode(mode)).expect("we are root");
    }
    write(run.host("private"), "x");
    fs::set_permissions(run.host("private"), Permissions::from_mode(0o640)).expect("we are root");

    run.bring_in();

    assert!(run.work("open/file").exists());
    for name in ["listed", "passed", "private"] {
        assert!(!run.work(name).exists(), "{name}");
    }
}

/// Bug: the controller wrote for a run where the owner of the repository may not even read.
#[test]
fn a_run_writes_into_no_private_directory() {
    let run = TestRun::new("r.0");
    write(run.host("private/file"), "x");
    fs::set_permissions(run.host("private"), Permissions::from_mode(0o700)).expect("we are root");
    let files = run.bring_in();
    write(run.work("private/new"), "new");
    write(run.work("made/new"), "new");

    let collected = run.bring_out(&files);

    let reason = "private/new (the owner of the repository may not read its directory)";
    assert!(collected.errors[0].contains(reason), "{:?}", collected.errors);
    assert!(!run.host("private/new").exists() && run.host("made/new").exists());
}

/// Bug: git on the host executed a program of the run, through a link that the run had changed.
#[test]
fn no_link_leads_git_to_another_program() {
    let run = TestRun::new("r.0");
    write(run.host(".git/config"), "[core]\n\tfsmonitor = bin/monitor\n\thooksPath = .husky/_\n");
    write(run.host("tools/monitor"), "");
    symlink("tools", run.host("bin")).expect("there is room");
    let files = run.bring_in();
    fs::remove_file(run.work("bin")).expect("it is there");
    write(run.work("evil/monitor"), "x");
    ["bin", ".husky"].iter().for_each(|name| symlink("evil", run.work(name)).expect("there is room"));

    let collected = run.bring_out(&files);

    assert!(collected.errors[0].starts_with("2 changes of the run were not made"), "{:?}", collected.errors);
    assert_eq!(fs::read_link(run.host("bin")).expect("it is there"), Path::new("tools"));
    fs::symlink_metadata(run.host(".husky")).expect_err("it is no link of the run");
    assert!(run.host("evil/monitor").exists(), "nothing executes it");
}

#[test]
fn a_link_in_the_path_of_a_directory_is_an_error() {
    let run = TestRun::new("r.0");
    fs::create_dir(run.host("inner")).expect("there is room");
    symlink("host", run.directory.path().join("link")).expect("there is room");
    let directory = run.directory.path().canonicalize().expect("it is there");
    HostDirectory::open(&directory.join("host/inner")).expect("there is no link");
    HostDirectory::open(&directory.join("link/inner")).expect_err("there is a link");
}

#[test]
fn names_of_a_tree_have_bounded_memory() {
    let run = TestRun::new("r.0");
    let files = run.bring_in();
    // 72,000 links with targets of 4,000 bytes.
    let target = "t/".repeat(2000);
    for n in 0..72_000 {
        symlink(&target, run.work(&n.to_string())).expect("there is room");
    }
    let collected = run.bring_out(&files);
    assert!(collected.errors[0].ends_with("have more than 268435456 bytes together"), "{:?}", collected.errors);
}

#[test]
fn a_cancelled_run_copies_nothing_more() {
    let run = TestRun::new("r.0");
    write(run.host("file"), "x");
    run.interrupt.set();
    assert!(run.refused().contains("the run was cancelled meanwhile, or its time was up"));
    assert!(!run.work("file").exists());
}

#[test]
fn only_a_missing_copy_is_a_removed_one() {
    let run = TestRun::new("r.0");
    let files = run.bring_in();
    for (code, expected) in [(Errno::NOENT, true), (Errno::LOOP, true), (Errno::MFILE, false), (Errno::IO, false)] {
        assert_eq!(is_gone(&code.into()), expected, "{code:?}");
    }
    fs::remove_dir(run.work("")).expect("it is ours");
    assert!(run.bring_out(&files).errors[0].starts_with("the run has removed /workspace/repo"));
}
