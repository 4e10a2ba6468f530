//! The kept workspace of an earlier run as the beginning of another one.
//!
//! A sandbox has made its contents, so it is walked through no link and no mount, and links are copied as links. All
//! processes of the run that has left it have ended, so it does not change.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use sluice_contract::RunKey;
use sluice_state::layout::RunPaths;

use super::copy::{Age, Allowance, NewEntry, mode_of};
use super::error::ExchangeError;
use super::host_directory::HostDirectory;
use super::interrupt::CancelFlag;
use super::kept::kept;
use super::owner::Owner;
use super::tree::{Kind, Tree, find, join, read_found};

/// Maximum number of files and directories.
const ENTRIES_MAX: u64 = 100_000;
/// Maximum size of all files together.
const BYTES_MAX: u64 = 2 << 30;
/// Directory of the workspace that the host writes for each run: it is not restored.
const OWN: &[u8] = b".sluice";

/// An open kept workspace.
#[derive(Debug, Clone)]
pub struct KeptWorkspace(HostDirectory);

impl KeptWorkspace {
    /// Opens the kept workspace of an attempt. `None`: it does not exist.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn open(key: &RunKey, paths: &RunPaths) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(kept(paths), flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(opened) => {
                // Messages with it are for its owner, so they have no path of the host.
                let path = PathBuf::from(format!("the kept workspace of {key}"));
                Ok(Some(Self(HostDirectory { path, descriptor: Arc::new(opened) })))
            }
        }
    }

    /// Checks that the workspace is not too large for another run, and returns the bytes of its files.
    ///
    /// # Errors
    /// [`ExchangeError`], which names no path of the host.
    pub fn check(&self) -> Result<u64, ExchangeError> {
        let tree = self.tree(&CancelFlag::default())?;
        let mut bytes = 0_u64;
        tree.walk(ENTRIES_MAX, |listing| {
            let own = |name: &[u8]| listing.path.is_empty() && name == OWN;
            let entries = listing.entries.iter().enumerate().filter(|(_, (name, _))| !own(name));
            let mut enter = Vec::new();
            for (index, (_, entry)) in entries {
                bytes = bytes.saturating_add(entry.size);
                if entry.kind == Kind::Directory {
                    enter.push(index);
                }
            }
            if bytes > BYTES_MAX { Err(tree.too_large(b"", BYTES_MAX)) } else { Ok(enter) }
        })?;
        Ok(bytes)
    }

    /// Copies the workspace into a new one, without devices, FIFOs and sockets.
    pub(super) fn copy_to(&self, work: &Tree, user: Owner, interrupt: &CancelFlag) -> Result<(), ExchangeError> {
        let from = self.tree(interrupt)?;
        let mut allowance = Allowance::new(BYTES_MAX, interrupt);
        from.walk(ENTRIES_MAX, |listing| {
            let to = work.directory(listing.path).map_err(work.error(listing.path))?;
            let mut enter = Vec::new();
            for (index, (name, _)) in listing.entries.iter().enumerate() {
                let path = join(listing.path, name);
                let is_copied = path != OWN;
                let place = NewEntry { directory: &to, name, owner: user, mode: 0 };
                let copied = match is_copied {
                    true => copy_entry(listing.directory, name, place, &mut allowance),
                    false => Ok(Kind::Special),
                };
                match copied {
                    Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                        return Err(from.too_large(b"", BYTES_MAX));
                    }
                    Err(error) => return Err(from.error(&path)(error)),
                    Ok(Kind::Directory) => enter.push(index),
                    Ok(_) => {}
                }
            }
            Ok(enter)
        })
    }

    fn tree(&self, interrupt: &CancelFlag) -> Result<Tree, ExchangeError> {
        self.0.tree(interrupt).map_err(|error| self.0.error(error))
    }
}

/// Copies one entry, and returns its kind.
fn copy_entry(from: &OwnedFd, name: &[u8], mut place: NewEntry<'_>, allowance: &mut Allowance) -> io::Result<Kind> {
    let (found, entry) = find(from, name)?;
    place.mode = mode_of(&entry, 0o600);
    let copied = match entry.kind {
        Kind::Directory => {
            place.mode |= 0o700;
            place.make_directory().map(drop)
        }
        Kind::File => place.copy(&read_found(&found, &entry)?, Age::Original, allowance),
        Kind::Link => place.link(&entry.target),
        Kind::Special => Ok(()),
    };
    match copied {
        // The host makes some directories in every workspace. A run's file in place of such a directory is not restored.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_made = find(place.directory, name)?.1.kind == Kind::Directory;
            Ok(if is_made { entry.kind } else { Kind::Special })
        }
        copied => copied.map(|()| entry.kind),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use sluice_state::layout::Layout;

    use super::*;

    struct Scratch {
        directory: tempfile::TempDir,
        key: RunKey,
        kept: PathBuf,
        work: PathBuf,
    }

    impl Scratch {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("there is room");
            let layout = Layout::open(&directory.path().join("state")).expect("there is room");
            let key: RunKey = "r1.0".parse().expect("a key");
            let (kept, work) = (kept(&layout.run(&key)), directory.path().join("work"));
            fs::create_dir(&work).expect("there is room");
            Self { directory, key, kept, work }
        }

        fn opened(&self) -> Option<KeptWorkspace> {
            let layout = Layout::at(&self.directory.path().join("state"));
            KeptWorkspace::open(&self.key, &layout.run(&self.key)).expect("it is readable")
        }

        fn copy(&self) -> Result<(), ExchangeError> {
            let work = Tree::open(&self.work, &CancelFlag::default()).expect("it is there");
            let kept = self.opened().expect("it is kept");
            kept.copy_to(&work, Owner { uid: 1000, gid: 1000 }, &CancelFlag::default())
        }
    }

    #[test]
    fn a_kept_workspace_comes_back_without_its_dangers() {
        let scratch = Scratch::new();
        assert!(scratch.opened().is_none());
        let (kept, outside) = (&scratch.kept, scratch.directory.path().join("outside"));
        fs::create_dir_all(kept.join("a/b")).expect("there is room");
        fs::create_dir_all(kept.join(".sluice")).expect("there is room");
        fs::create_dir(&outside).expect("there is room");
        fs::write(outside.join("secret"), "secret").expect("there is room");
        fs::write(kept.join(".sluice/messages.json"), "[]").expect("there is room");
        fs::write(kept.join("a/b/run"), "#!/bin/sh\n").expect("there is room");
        fs::set_permissions(kept.join("a/b/run"), fs::Permissions::from_mode(0o6755)).expect("it is ours");
        fs::write(kept.join("a/private"), "mine").expect("there is room");
        fs::set_permissions(kept.join("a/private"), fs::Permissions::from_mode(0o000)).expect("it is ours");
        symlink(&outside, kept.join("link")).expect("there is room");
        fs::create_dir_all(kept.join("out")).expect("there is room");
        fs::write(kept.join("out/result"), "mine").expect("there is room");
        fs::write(kept.join("mounted"), "a file").expect("there is room");
        for made in ["out", "mounted"] {
            fs::create_dir(scratch.work.join(made)).expect("there is room");
        }
        nix::unistd::mkfifo(&kept.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("there is room");

        scratch.opened().expect("it is kept").check().expect("it is small");
        scratch.copy().expect("there is room");

        let work = &scratch.work;
        let mut names: Vec<_> =
            fs::read_dir(work).expect("it is there").map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "link", "mounted", "out"]);
        assert_eq!(fs::read_to_string(work.join("out/result")).expect("it is there"), "mine");
        assert!(work.join("mounted").is_dir(), "what the host has made stays");
        assert_eq!(fs::read_link(work.join("link")).expect("it is a link"), outside);
        let run = work.join("a/b/run").symlink_metadata().expect("it is there");
        assert_eq!((run.mode() & 0o7777, run.uid(), run.gid()), (0o755, 1000, 1000), "no set-id bits");
        assert_eq!(fs::read_to_string(work.join("a/private")).expect("it is there"), "mine");
        assert_eq!(fs::read_to_string(outside.join("secret")).expect("it is there"), "secret");
    }

    #[test]
    fn a_workspace_that_is_too_large_is_refused() {
        let scratch = Scratch::new();
        fs::create_dir_all(&scratch.kept).expect("there is room");
        let file = fs::File::create(scratch.kept.join("sparse")).expect("there is room");
        file.set_len(BYTES_MAX + 1).expect("it needs no room");
        let said = scratch.opened().expect("it is kept").check().expect_err("it is too large").to_string();
        assert_eq!(said, "the kept workspace of r1.0 has more than 2147483648 bytes");
        assert_eq!(scratch.copy().expect_err("it is too large").to_string(), said);
        fs::remove_file(scratch.kept.join("sparse")).expect("it is ours");
        let deep = ["d"; 2100].join("/");
        fs::create_dir_all(scratch.kept.join(&deep[..3999])).expect("there is room");
        let said = scratch.opened().expect("it is kept").check().map_err(|error| error.to_string());
        assert!(said.is_ok(), "a path of this length is entered");
    }

    #[test]
    fn a_link_in_place_of_the_workspace_is_refused() {
        let scratch = Scratch::new();
        symlink("/etc", &scratch.kept).expect("there is room");
        let layout = Layout::at(&scratch.directory.path().join("state"));
        KeptWorkspace::open(&scratch.key, &layout.run(&scratch.key)).expect_err("it leads out");
    }
}
