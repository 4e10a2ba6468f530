use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;

/// Maximum waiting time of a test.
const PATIENCE: Duration = Duration::from_secs(30);

struct Watched {
    directory: TempDir,
    watch: WorkspaceWatch,
    changes: Vec<FileChange>,
    notices: Vec<WatchNotice>,
}

fn work(directory: &TempDir) -> PathBuf {
    directory.path().join("run").join("work")
}

fn scratch() -> TempDir {
    let directory = tempfile::tempdir().expect("there is room");
    fs::create_dir_all(work(&directory)).expect("there is room");
    directory
}

impl Watched {
    fn with(directory: TempDir, since: Option<SystemTime>, limits: WatchLimits) -> Self {
        let share = WatchShare::new(256 << 20, 4096).of_owner("alice");
        let spec = WatchSpec { directory: work(&directory), since, limits, share };
        let watch = WorkspaceWatch::start(spec).expect("the workspace is there");
        Self { directory, watch, changes: Vec::new(), notices: Vec::new() }
    }

    /// Watches an empty workspace: all that comes is reported.
    fn start() -> Self {
        Self::with(scratch(), Some(SystemTime::UNIX_EPOCH), WatchLimits::default())
    }

    fn path(&self, name: &str) -> PathBuf {
        work(&self.directory).join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("there is room");
    }

    /// Puts a complete file in its place, so that it is never visible in part.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let outside = self.directory.path().join("new");
        fs::write(&outside, content).expect("there is room");
        fs::rename(&outside, self.path(name)).expect("it is the same file system");
    }

    async fn read(&mut self) -> bool {
        let report = tokio::time::timeout(PATIENCE, self.watch.next()).await.expect("a report comes in time");
        let Some(report) = report else { return false };
        self.changes.extend(report.changes);
        self.notices.extend(report.notices);
        true
    }

    /// Waits for a change of this file, and returns it.
    async fn seen(&mut self, name: &str, kind: ChangeKind) -> FileChange {
        loop {
            let found = self.changes.iter().position(|change| change.path == name.as_bytes() && change.change == kind);
            if let Some(found) = found {
                return self.changes.remove(found);
            }
            assert!(self.read().await, "no change of {name}: {:?}", self.changes);
        }
    }

    /// Ends the watch, and returns all changes that were not read yet, by path.
    async fn finish(mut self) -> (BTreeMap<String, Vec<FileChange>>, Vec<WatchNotice>) {
        self.watch.finish();
        while self.read().await {}
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for change in self.changes {
            all.entry(String::from_utf8_lossy(&change.path).into_owned()).or_default().push(change);
        }
        (all, self.notices)
    }
}

fn lines(change: &FileChange) -> (u64, u64) {
    let diff = change.diff.as_ref().expect("it has a diff");
    (diff.added, diff.removed)
}

fn hunk(change: &FileChange) -> &str {
    let text = &change.diff.as_ref().expect("it has a diff").text;
    text.split_once("\n@@").map_or("", |(_, hunk)| hunk)
}

#[tokio::test]
async fn each_kind_of_edit_has_its_diff() {
    let mut watched = Watched::start();
    // A whole file: one that is written in place may be seen twice, empty and full.
    watched.put("a", "one\ntwo\n");
    let created = watched.seen("a", ChangeKind::Created).await;
    assert_eq!((lines(&created), hunk(&created)), ((2, 0), " -0,0 +1,2 @@\n+one\n+two\n"));
    assert!(created.diff.expect("a text").text.starts_with("diff --git a/a b/a\nnew file mode 100644\n"));

    watched.put("a", "one\n2\n");
    let modified = watched.seen("a", ChangeKind::Modified).await;
    assert_eq!((lines(&modified), hunk(&modified)), ((1, 1), " -1,2 +1,2 @@\n one\n-two\n+2\n"));

    // Editors save a file in this way.
    watched.write(".a.new", "one\n2\nthree\n");
    fs::rename(watched.path(".a.new"), watched.path("a")).expect("it is ours");
    let replaced = watched.seen("a", ChangeKind::Modified).await;
    assert_eq!((lines(&replaced), replaced.size), ((1, 0), Some(12)));

    fs::remove_file(watched.path("a")).expect("it is ours");
    let deleted = watched.seen("a", ChangeKind::Deleted).await;
    assert_eq!((lines(&deleted), deleted.size), ((0, 3), None));
    let (mut rest, notices) = watched.finish().await;
    // On a busy machine it may be seen before it is renamed.
    rest.remove(".a.new");
    assert_eq!((rest, notices), (BTreeMap::new(), vec![]));
}

#[tokio::test]
async fn files_in_new_directories_are_seen() {
    let mut watched = Watched::start();
    fs::create_dir_all(watched.path("a/b/c")).expect("there is room");
    watched.write("a/b/c/at-once", "x\n");
    watched.seen("a/b/c/at-once", ChangeKind::Created).await;
    watched.write("a/b/c/later", "x\n");
    watched.seen("a/b/c/later", ChangeKind::Created).await;
    fs::rename(watched.path("a/b"), watched.path("moved")).expect("it is ours");
    watched.seen("moved/c/later", ChangeKind::Created).await;
    watched.seen("a/b/c/later", ChangeKind::Deleted).await;
    watched.put("moved/c/later", "y\n");
    assert_eq!(lines(&watched.seen("moved/c/later", ChangeKind::Modified).await), (1, 1));
    fs::remove_dir_all(watched.path("moved")).expect("it is ours");
    watched.seen("moved/c/later", ChangeKind::Deleted).await;
}

#[tokio::test]
async fn what_did_not_change_is_not_reported() {
    let watched = Watched::start();
    fs::create_dir_all(watched.path(".sluice")).expect("there is room");
    fs::create_dir_all(watched.path("repo/.git/objects")).expect("there is room");
    watched.write(".sluice/transcript.jsonl", "{}\n");
    watched.write("repo/.git/config", "x\n");
    watched.put("repo/file", "x\n");
    watched.write("gone", "x\n");
    fs::remove_file(watched.path("gone")).expect("it is ours");
    let mut watched = watched;
    watched.seen("repo/file", ChangeKind::Created).await;
    watched.put("repo/file", "x\n");
    fs::set_permissions(watched.path("repo/file"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    watched.write("repo/.git/index", "x\n");
    let (rest, _) = watched.finish().await;
    assert_eq!(rest.keys().filter(|path| *path != "gone").count(), 0, "{rest:?}");
}

#[tokio::test]
async fn only_regular_files_are_read() {
    let watched = Watched::start();
    fs::write(watched.directory.path().join("outside"), "secret").expect("there is room");
    symlink(watched.directory.path().join("outside"), watched.path("link")).expect("there is room");
    symlink(watched.directory.path(), watched.path("directory-link")).expect("there is room");
    nix::unistd::mkfifo(&watched.path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("there is room");
    let _socket = std::os::unix::net::UnixListener::bind(watched.path("socket")).expect("there is room");
    watched.write("binary", b"a\0b");
    watched.write("large", vec![b'x'; (1 << 20) + 1]);
    watched.write("latin", b"caf\xe9\n");
    fs::hard_link(watched.path("latin"), watched.path("twin")).expect("there is room");
    fs::write(work(&watched.directory).join(OsStr::from_bytes(b"n\xff")), "x\n").expect("there is room");
    let (seen, _) = watched.finish().await;

    let kinds: Vec<_> = seen
        .iter()
        .map(|(path, changes)| {
            // A file can be seen before it is completely written.
            let last = changes.last().expect("it has one");
            (path.as_str(), last.kind.as_str(), last.diff.as_ref().err().copied())
        })
        .collect();
    let not_a_file = Some(DiffOmitted::NotAFile);
    let expected = [
        ("binary", "file", Some(DiffOmitted::Binary)),
        ("directory-link", "link", not_a_file),
        ("fifo", "special", not_a_file),
        ("large", "file", Some(DiffOmitted::TooLarge)),
        ("latin", "file", None),
        ("link", "link", not_a_file),
        ("n\u{fffd}", "file", None),
        ("socket", "special", not_a_file),
        ("twin", "file", None),
    ];
    assert_eq!(kinds, expected);
    assert!(!format!("{seen:?}").contains("secret"));
}

#[tokio::test]
async fn a_file_that_is_rewritten_without_end_has_few_changes() {
    let watched = Watched::start();
    let (path, begun) = (watched.path("busy"), Instant::now());
    let mut writes = 0_u64;
    while begun.elapsed() < Duration::from_secs(3) {
        fs::write(&path, format!("{writes}\n")).expect("there is room");
        writes += 1;
    }
    let (seen, _) = watched.finish().await;
    let changes = seen["busy"].len();
    // Each write may wait for the disk.
    assert!(writes > 20 && (1..=4).contains(&changes), "{writes} writes, {changes} changes");
    let last = seen["busy"].last().expect("there are some");
    assert!(hunk(last).contains(&format!("+{}\n", writes - 1)), "the last look sees the last content");
}

#[tokio::test]
async fn without_watches_the_workspace_is_walked() {
    for watches in [0, 1] {
        let limits = WatchLimits { watches, walk_every: Duration::from_millis(100), ..WatchLimits::default() };
        let mut watched = Watched::with(scratch(), Some(SystemTime::UNIX_EPOCH), limits);
        fs::create_dir_all(watched.path("a/b")).expect("there is room");
        watched.put("a/b/c", "x\n");
        watched.seen("a/b/c", ChangeKind::Created).await;
        watched.put("a/b/c", "y\n");
        watched.seen("a/b/c", ChangeKind::Modified).await;
        let (_, notices) = watched.finish().await;
        assert_eq!(notices, [WatchNotice::WatchLimit], "{watches}");
    }
}

#[tokio::test]
async fn a_new_directory_without_a_watch_is_walked() {
    let limits = WatchLimits { watches: 1, walk_every: Duration::from_millis(100), ..WatchLimits::default() };
    let mut watched = Watched::with(scratch(), Some(SystemTime::UNIX_EPOCH), limits);
    watched.put("first", "x\n");
    watched.seen("first", ChangeKind::Created).await;
    fs::create_dir(watched.path("a")).expect("there is room");
    while watched.notices.is_empty() {
        assert!(watched.read().await);
    }
    watched.put("a/b", "x\n");
    watched.seen("a/b", ChangeKind::Created).await;
}

#[tokio::test]
async fn all_watches_are_given_back() {
    let (directory, share) = (scratch(), WatchShare::new(1000, 12).of_owner("alice"));
    for n in 0..5 {
        fs::create_dir(work(&directory).join(n.to_string())).expect("there is room");
    }
    let spec = WatchSpec { directory: work(&directory), since: None, limits: WatchLimits::default(), share };
    for _ in 0..3 {
        let mut watch = WorkspaceWatch::start(spec.clone()).expect("it is there");
        watch.finish();
        while let Some(report) = watch.next().await {
            assert_eq!(report.notices, [], "there is a watch for each directory");
        }
    }
}

#[tokio::test]
async fn a_later_watch_reports_what_changed_since() {
    let directory = scratch();
    for name in ["old", "changed"] {
        fs::write(work(&directory).join(name), "x\n").expect("there is room");
    }
    let meta = fs::metadata(work(&directory).join("changed")).expect("it is there");
    let since = meta.modified().expect("it has a time");
    while SystemTime::now() < since + Duration::from_millis(30) {
        std::hint::spin_loop();
    }
    fs::write(work(&directory).join("changed"), "y\n").expect("there is room");
    fs::write(work(&directory).join("new"), "z\n").expect("there is room");

    let mut watched = Watched::with(directory, Some(since), WatchLimits::default());
    let changed = watched.seen("changed", ChangeKind::Modified).await;
    let new = watched.seen("new", ChangeKind::Created).await;
    watched.put("old", "x\ny\n");
    let old = watched.seen("old", ChangeKind::Modified).await;
    assert_eq!((changed.diff, lines(&new), lines(&old)), (Err(DiffOmitted::NoBaseline), (1, 0), (1, 0)));
    let (rest, _) = watched.finish().await;
    assert_eq!(rest, BTreeMap::new());
}

#[tokio::test]
async fn a_workspace_with_too_many_files_is_limited() {
    let limits = WatchLimits { entries: 100, ..WatchLimits::default() };
    let watched = Watched::with(scratch(), Some(SystemTime::UNIX_EPOCH), limits);
    for n in 0..20_000 {
        watched.write(&n.to_string(), "x");
    }
    let (seen, notices) = watched.finish().await;
    assert!(seen.len() < 100 && notices.contains(&WatchNotice::TooManyFiles), "{} {notices:?}", seen.len());
}

#[tokio::test]
async fn known_files_beyond_a_walk_are_compared() {
    let limits =
        WatchLimits { entries: 10, watches: 0, walk_every: Duration::from_millis(100), ..WatchLimits::default() };
    let directory = scratch();
    fs::create_dir(work(&directory).join("inner")).expect("there is room");
    fs::write(work(&directory).join("inner/known"), "x\n").expect("there is room");
    let mut watched = Watched::with(directory, Some(SystemTime::UNIX_EPOCH), limits);
    watched.seen("inner/known", ChangeKind::Created).await;
    // A walk checks twenty names, and these come first.
    for n in 0..100 {
        watched.write(&n.to_string(), "x");
    }
    watched.put("inner/known", "x\ny\n");
    let known = watched.seen("inner/known", ChangeKind::Modified).await;
    assert_eq!(lines(&known), (1, 0));
    fs::remove_file(watched.path("inner/known")).expect("it is there");
    watched.seen("inner/known", ChangeKind::Deleted).await;
}

#[tokio::test]
async fn deep_directories_and_long_names_are_survived() {
    let watched = Watched::start();
    let name = "d".repeat(200);
    let mut inner = nix::fcntl::open(&watched.path("."), nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty())
        .expect("it is there");
    for _ in 0..300 {
        nix::sys::stat::mkdirat(&inner, name.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("there is room");
        inner =
            nix::fcntl::openat(&inner, name.as_str(), nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty())
                .expect("it was made");
    }
    watched.write("file", "x\n");
    let (seen, _) = watched.finish().await;
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["file"]);
}

#[tokio::test]
async fn a_sweep_waits_for_the_last_look() {
    let watched = Watched::start();
    let root = watched.directory.path().join("run");
    let file = File::open(&root).expect("it is there");
    let Err((file, _)) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { panic!("it is held") };
    let (_, _) = watched.finish().await;
    // The thread releases it just after its last report.
    drop(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error));
}
