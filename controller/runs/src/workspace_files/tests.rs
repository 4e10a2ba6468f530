//! Files of a workspace, also while another thread swaps them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;

const UID: u32 = 2_000_123;

fn files() -> (TempDir, WorkspaceFiles) {
    let directory = tempfile::tempdir().expect("there is room");
    fs::create_dir(directory.path().join("work")).expect("there is room");
    fs::write(directory.path().join("secret"), "secret").expect("there is room");
    let files = WorkspaceFiles::at(&directory.path().join("work"), UID).expect("it is ours");
    (directory, files)
}

/// Writes a whole file.
fn write(files: &WorkspaceFiles, path: &[u8], content: &[u8], max: u64) -> Result<WrittenContent, FileError> {
    let mut file = files.create(path, max)?;
    content.chunks(4).try_for_each(|bytes| file.append(bytes))?;
    let written = file.complete()?;
    file.put_in_place().map(|()| written)
}

fn content(file: &OpenFile) -> Vec<u8> {
    let mut buffer = vec![0; 1000];
    let len = file.read_at(&mut buffer, 0).expect("it is ours");
    buffer.truncate(len);
    buffer
}

#[test]
fn a_file_is_written_and_read_in_ranges() {
    let (directory, files) = files();
    let work = directory.path().join("work");
    fs::create_dir(work.join("d")).expect("there is room");
    let written = write(&files, b"d/a", b"0123456789", 10).expect("there is room");
    let digest = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    assert_eq!((written.size, written.sha256.as_str()), (10, digest));
    let file = files.read(b"d/a").expect("it is there");
    let mut range = [0; 4];
    assert_eq!((file.size, file.read_at(&mut range, 8).expect("it is ours"), &range[..2]), (10, 2, &b"89"[..]));
    let meta = fs::metadata(work.join("d/a")).expect("it is there");
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (UID, UID, 0o644));

    let refused = write(&files, b"d/a", b"01234567890", 10).expect_err("it is too long");
    assert!(matches!(refused, FileError::TooLarge(10)), "{refused:?}");
    assert_eq!(content(&files.read(b"d/a").expect("the old one stays")), b"0123456789");
    assert_eq!(fs::read_dir(work.join("d")).expect("it is ours").count(), 1, "nothing is left of it");
}

#[test]
fn a_directory_is_made_new_for_the_agent() {
    let (directory, files) = files();
    let work = directory.path().join("work");
    files.make_directory(b"d").expect("there is room");
    files.make_directory(b"d/e/").expect("there is room");
    let meta = fs::metadata(work.join("d/e")).expect("it is there");
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (UID, UID, 0o755));
    symlink("..", work.join("out")).expect("there is room");
    assert!(matches!(files.make_directory(b"d"), Err(FileError::Exists)));
    for outside in [&b"out/x"[..], b"../x", b"out"] {
        let refused = files.make_directory(outside).expect_err("it is outside");
        assert!(matches!(refused, FileError::Outside | FileError::Exists), "{refused:?}");
    }
    for bad in [&b""[..], b".", b"d/..", b"x/y"] {
        assert!(matches!(files.make_directory(bad), Err(FileError::BadPath | FileError::NotFound)), "{bad:?}");
    }
    assert!(!directory.path().join("x").exists());
}

#[test]
fn only_regular_files_beneath_the_workspace_are_opened() {
    let (directory, files) = files();
    let work = directory.path().join("work");
    symlink("../secret", work.join("link")).expect("there is room");
    symlink("/", work.join("root")).expect("there is room");
    mkfifo(&work.join("fifo"), Mode::S_IRWXU).expect("there is room");
    fs::create_dir(work.join("d")).expect("there is room");
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket")).expect("there is room");
    for path in ["link", "root/etc/passwd", "../secret", "/etc/passwd", "d/../../secret"] {
        let refused = files.read(path.as_bytes()).expect_err(path);
        assert!(matches!(refused, FileError::Outside), "{path}: {refused:?}");
    }
    for path in ["fifo", "d", "socket", "."] {
        assert!(matches!(files.read(path.as_bytes()), Err(FileError::NotAFile)), "{path}");
    }
    assert!(matches!(files.read(b"none"), Err(FileError::NotFound)));
    for path in [&b""[..], b"a\0b", &[b'a'; 5000]] {
        assert!(matches!(files.read(path), Err(FileError::BadPath)));
        assert!(matches!(write(&files, path, b"x", 1), Err(FileError::BadPath)));
    }
    for path in ["../x", "root/x", "d/../../x"] {
        assert!(matches!(write(&files, path.as_bytes(), b"x", 1), Err(FileError::Outside)), "{path}");
    }
    assert!(matches!(write(&files, b"d", b"x", 1), Err(FileError::NotAFile)));
    // The link itself is replaced.
    write(&files, b"link", b"mine", 10).expect("it is a name like others");
    assert_eq!(fs::read(directory.path().join("secret")).expect("it is ours"), b"secret");
    assert!(fs::symlink_metadata(work.join("link")).expect("it is there").is_file());
}

#[test]
fn a_list_has_pages_and_names_that_are_no_text() {
    let (directory, files) = files();
    let work = directory.path().join("work");
    for n in 0..PAGE_MAX + 5 {
        fs::write(work.join(format!("{n:05}")), "").expect("there is room");
    }
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\n");
    symlink("x", work.join(odd)).expect("there is room");
    let first = files.list(b".", b"").expect("it is ours");
    assert_eq!((first.entries.len(), first.has_more), (PAGE_MAX, true));
    let last = first.entries.last().expect("there are names").name.clone();
    let second = files.list(b".", &last).expect("it is ours");
    assert_eq!((second.entries.len(), second.has_more), (6, false));
    let odd = second.entries.last().expect("there are names");
    assert_eq!((&odd.name[..], odd.kind), (&b"\xff\n"[..], FileKind::Link));
    assert!(matches!(files.list(b"00001", b""), Err(FileError::NotADirectory)));
}

#[test]
fn a_name_that_changes_all_the_time_never_leads_out_and_never_blocks() {
    let (directory, files) = files();
    let work = directory.path().join("work");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (stop, work) = (Arc::clone(&stop), work.clone());
        move || {
            let (name, other) = (work.join("x"), work.join("y"));
            for kind in (0..5).cycle() {
                let made = match kind {
                    0 => fs::write(&other, "mine"),
                    1 => symlink("../secret", &other),
                    2 => mkfifo(&other, Mode::S_IRWXU).map_err(io::Error::from),
                    3 => fs::create_dir(&other).and_then(|()| symlink("../../secret", other.join("f"))),
                    _ => symlink("..", &other),
                };
                made.expect("there is room");
                let _ = fs::remove_file(&name).or_else(|_| fs::remove_dir_all(&name));
                // A write may have put a file there meanwhile.
                if fs::rename(&other, &name).is_err() {
                    let _ = fs::remove_file(&other).or_else(|_| fs::remove_dir_all(&other));
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let mut read = 0;
    for n in 0..40_000 {
        let path = [&b"x"[..], b"x/f", b"x/secret"][n % 3];
        if let Ok(file) = files.read(path) {
            let content = content(&file);
            assert!(matches!(&content[..], b"mine" | b""), "{content:?}");
            read += 1;
        }
        if n % 100 == 0 {
            let _ = write(&files, path, b"mine", 4);
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().expect("it does not panic");
    assert!(read > 0);
    assert_eq!(fs::read(directory.path().join("secret")).expect("it is ours"), b"secret");
    let outside: Vec<_> =
        fs::read_dir(directory.path()).expect("it is ours").flatten().map(|e| e.file_name()).collect();
    assert_eq!(outside.len(), 2, "{outside:?}");
}

#[test]
fn a_grant_shows_what_every_user_may_read() {
    let directory = tempfile::tempdir().expect("there is room");
    let root = directory.path().join("data");
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for name in ["open", "closed", "unlisted"] {
        fs::create_dir_all(root.join(name)).expect("there is room");
        fs::write(root.join(name).join("a"), "a").expect("there is room");
        fs::write(root.join(name).join("private"), "b").expect("there is room");
        mode(&format!("{name}/private"), 0o640);
    }
    mode("", 0o755);
    mode("closed", 0o750);
    mode("unlisted", 0o711);
    symlink("open/a", root.join("link")).expect("there is room");
    let files = WorkspaceFiles::granted(&root).expect("it is ours");
    assert_eq!(content(&files.read(b"open/a").expect("all may read it")), b"a");
    assert_eq!(content(&files.read(b"unlisted//a").expect("all may read it")), b"a");
    for hidden in [&b"open/private"[..], b"closed/a", b"closed/./a", b"open/../closed/a"] {
        assert!(matches!(files.read(hidden), Err(FileError::NotFound)), "{}", String::from_utf8_lossy(hidden));
    }
    assert!(matches!(files.read(b"link"), Err(FileError::Outside)));
    assert!(files.list(b"open", b"").is_ok());
    for hidden in [&b"closed"[..], b"unlisted"] {
        assert!(matches!(files.list(hidden, b""), Err(FileError::NotFound)));
    }
    assert!(matches!(files.create(b"open/new", 10), Err(FileError::Outside)));
    mode("", 0o750);
    assert!(matches!(files.read(b"open/a"), Err(FileError::NotFound)));
}
