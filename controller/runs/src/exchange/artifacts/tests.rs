//! Artifacts of workspaces on the disk, without a sandbox.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sluice_state::layout::Layout;
use tempfile::TempDir;

use super::*;

struct TestRun {
    _directory: TempDir,
    paths: RunPaths,
    record: RunRecord,
}

impl TestRun {
    /// A run that keeps so many bytes.
    fn new(max: u64) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(&directory.path().join("state")).expect("there is room");
        let key = "r.0".parse().expect("a key");
        let paths = layout.run(&key);
        for path in [&paths.root, &paths.conf, &paths.work] {
            fs::create_dir(path).expect("there is room");
        }
        expect(&paths, max).expect("there is room");
        let record = layout.records().create(&key).expect("there is room");
        Self { _directory: directory, paths, record }
    }

    fn out(&self, path: impl AsRef<Path>) -> PathBuf {
        self.paths.work.join(OUT).join(path)
    }

    fn keep(&self) -> (ArtifactList, Option<String>) {
        let remark = keep(&self.paths, &self.record, &CancelFlag::default()).expect("there is room");
        (self.record.artifacts().expect("it is readable").expect("it was written"), remark)
    }

    fn content(&self, number: usize) -> Vec<u8> {
        let mut content = Vec::new();
        self.record.open_artifact(number).and_then(|mut file| file.read_to_end(&mut content)).expect("it is kept");
        content
    }
}

fn paths_of(list: &ArtifactList) -> Vec<&[u8]> {
    list.artifacts.iter().map(|artifact| &artifact.path[..]).collect()
}

#[test]
fn regular_files_are_kept_and_nothing_else() {
    let run = TestRun::new(1 << 20);
    fs::create_dir_all(run.out("a/b")).expect("there is room");
    fs::create_dir_all(run.out("repo/.git")).expect("there is room");
    fs::write(run.out("a/b/tool"), "tool").expect("there is room");
    fs::set_permissions(run.out("a/b/tool"), fs::Permissions::from_mode(0o4700)).expect("it is ours");
    fs::write(run.out(std::ffi::OsStr::from_bytes(b"x\xff\n")), "odd").expect("there is room");
    fs::write(run.paths.work.join("secret"), "not a result").expect("there is room");
    symlink("../secret", run.out("link")).expect("there is room");
    symlink("/etc", run.out("etc")).expect("there is room");
    nix::unistd::mkfifo(&run.out("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("there is room");

    let (list, remark) = run.keep();

    assert_eq!((paths_of(&list), remark, list.error.as_deref()), (vec![&b"x\xff\n"[..], b"a/b/tool"], None, None));
    assert_eq!((run.content(0), run.content(1)), (b"odd".to_vec(), b"tool".to_vec()));
    let tool = &list.artifacts[1];
    let digest = "7c9bbe5ec9b3fb774e8fa0f54247e93c34ddf8e5d16fe3073420de0ae81a262d";
    assert_eq!((tool.mode, tool.size, tool.sha256.as_str()), (0o755, 4, digest));
    let left: Vec<_> = list.first_left_out.iter().map(|one| (&one.path[..], one.reason.as_str())).collect();
    let expected: [(&[u8], &str); 4] =
        [(b"etc", "link"), (b"fifo", "special"), (b"link", "link"), (b"repo/.git", "git")];
    assert_eq!((&left[..], list.left_out), (&expected[..], 4));
}

#[test]
fn what_has_no_room_is_left_out() {
    let run = TestRun::new(10);
    for (name, size) in [("a", 6), ("b", 5), ("c", 4)] {
        fs::write(run.out(name), vec![b'x'; size]).expect("there is room");
    }
    let sparse = File::create(run.out("sparse")).expect("there is room");
    sparse.set_len(1 << 40).expect("it has no blocks");

    let (list, _) = run.keep();

    assert_eq!(paths_of(&list), [b"a", b"c"]);
    assert_eq!((list.left_out, list.first_left_out[0].reason.as_str()), (2, "too_large"));
}

#[test]
fn too_many_files_are_an_error_in_the_list() {
    let run = TestRun::new(1 << 20);
    fs::write(run.out("0"), "").expect("there is room");
    fs::create_dir(run.out("d")).expect("there is room");
    for number in 0..ENTRIES_MAX {
        fs::write(run.out(format!("d/{number}")), "").expect("there is room");
    }

    let (list, remark) = run.keep();

    assert_eq!((paths_of(&list), list.error.as_deref()), (vec![&b"0"[..]], Some("too_many")));
    assert!(remark.is_some_and(|remark| remark.contains("10000")));
}

#[test]
fn a_list_is_made_once_and_after_a_kill_anew() {
    let run = TestRun::new(1 << 20);
    fs::write(run.out("a"), "first").expect("there is room");
    // A part left by a controller that was killed before it wrote its list.
    run.record.create_artifact(0).and_then(|mut file| file.write_all(b"part")).expect("there is room");
    run.record.create_artifact(1).expect("there is room");

    let (list, _) = run.keep();
    fs::write(run.out("a"), "second").expect("there is room");
    let again = run.keep();

    assert_eq!((paths_of(&list), run.content(0)), (vec![&b"a"[..]], b"first".to_vec()));
    assert!(again.0 == list && run.record.open_artifact(1).is_err());
}

#[test]
fn a_run_without_results_has_an_empty_list() {
    let gone = TestRun::new(1 << 20);
    fs::remove_dir(gone.out("")).expect("it is empty");
    let replaced = TestRun::new(1 << 20);
    fs::remove_dir(replaced.out("")).expect("it is empty");
    symlink("/etc", replaced.paths.work.join(OUT)).expect("there is room");
    for run in [gone, replaced] {
        assert_eq!(run.keep(), (ArtifactList::default(), None));
    }
    let without = TestRun::new(1 << 20);
    fs::remove_file(marker(&without.paths)).expect("it is ours");
    keep(&without.paths, &without.record, &CancelFlag::default()).expect("there is nothing to do");
    assert_eq!(without.record.artifacts().expect("it is readable"), None);
}
