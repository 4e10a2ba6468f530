//! The files of a work tree that git on the host executes, according to the configurations of its repositories.
//!
//! The metadata of git on the host belong to its owner: no run has ever written them. But that owner can have fewer
//! rights than the controller, so only small regular files are read.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::baseline::{Baseline, CONFIG_MAX};
use super::error::ExchangeError;
use super::git_config::{self, ConfigPlace};
use super::git_settings::{Setting, parse};
use super::owner::Owner;
use super::tree::{is_beneath, join, look, read_found, show, split};

/// Maximum number of configurations, with the included ones.
const CONFIGS_MAX: usize = 10_000;
/// Maximum size of all configurations, each multiplied by the length of the path of its work tree.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum depth of inclusions, as in git.
const DEPTH_MAX: usize = 10;
/// Maximum number of links on the way to one file, as in the kernel.
const LINKS_MAX: usize = 40;

/// Settings in the configurations of a work tree.
#[derive(Debug, Default)]
pub(super) struct HostConfig {
    /// Paths that git executes.
    pub(super) executed: BTreeSet<Vec<u8>>,
    /// True if the repository of the work tree names its objects by SHA-256.
    pub(super) is_sha256: bool,
}

/// Reads the configurations of the repository and of those inside it.
pub(super) fn read(directory: &Path, owner: Owner, baseline: &Baseline) -> Result<HostConfig, ExchangeError> {
    let home = User::from_uid(Uid::from_raw(owner.uid)).ok().flatten().map(|user| user.dir).unwrap_or_default();
    let mut reader = ConfigReader { directory, home, baseline, files: 0, bytes: 0, found: HostConfig::default() };
    for name in &baseline.git_names {
        reader.repository(&reader.path(name), split(name).0)?;
    }
    for bare in &baseline.repositories {
        reader.repository(&reader.path(bare), bare)?;
    }
    let mut found = reader.found;
    follow_links(baseline, directory, &mut found.executed);
    Ok(found)
}

struct ConfigReader<'a> {
    directory: &'a Path,
    home: PathBuf,
    baseline: &'a Baseline,
    files: usize,
    bytes: u64,
    found: HostConfig,
}

impl ConfigReader<'_> {
    fn path(&self, inner: &[u8]) -> PathBuf {
        self.directory.join(OsStr::from_bytes(inner))
    }

    /// Reads the configuration of a repository. Its metadata may be elsewhere, as in a linked work tree or a submodule.
    fn repository(&mut self, git: &Path, work_tree: &[u8]) -> Result<(), ExchangeError> {
        let mut directory = git.to_owned();
        if let Some(link) = content(git)? {
            let Some(target) = link.strip_prefix(b"gitdir:") else { return Ok(()) };
            directory = beside(git, target.trim_ascii());
        }
        let common = content(&directory.join("commondir"))?;
        let common = common.map(|common| directory.join(OsStr::from_bytes(common.trim_ascii())));
        self.file(&common.as_ref().unwrap_or(&directory).join("config"), work_tree, 0)?;
        self.file(&directory.join("config.worktree"), work_tree, 0)
    }

    fn file(&mut self, path: &Path, work_tree: &[u8], depth: usize) -> Result<(), ExchangeError> {
        let Some(text) = content(path)? else { return Ok(()) };
        self.files += 1;
        self.bytes += text.len() as u64 * (work_tree.len() as u64 + 1);
        if self.files > CONFIGS_MAX {
            return Err(ExchangeError::TooManyConfigs { path: self.directory.display().to_string(), max: CONFIGS_MAX });
        }
        if self.bytes > BYTES_MAX {
            let path = format!("the configuration of git in {}", self.directory.display());
            return Err(ExchangeError::TooLarge { path, max: BYTES_MAX });
        }
        let settings = parse(&text).map_err(|line| ExchangeError::Config { path: shown(path), line })?;
        let place = ConfigPlace {
            directory: self.directory.as_os_str().as_bytes(),
            work_tree,
            home: self.home.as_os_str().as_bytes(),
        };
        let exists = |path: &[u8]| self.baseline.entries.contains_key(path);
        git_config::add_executed(&settings, place, exists, &mut self.found.executed);
        self.found.is_sha256 |= work_tree.is_empty() && git_config::is_sha256(&settings);
        for include in settings.iter().filter(|setting| git_config::is_include(setting)) {
            self.include(path, include, work_tree, depth)?;
        }
        Ok(())
    }

    /// Reads an included file whatever its condition: the branch and the location may change later.
    fn include(&mut self, from: &Path, setting: &Setting, work_tree: &[u8], depth: usize) -> Result<(), ExchangeError> {
        let Some(value) = setting.value.as_deref().filter(|value| !value.is_empty()) else { return Ok(()) };
        let path = match value.strip_prefix(b"~/") {
            Some(rest) => self.home.join(OsStr::from_bytes(rest)),
            None => beside(from, value),
        };
        let plain = git_config::resolve(b"", path.as_os_str().as_bytes()).map(|path| [b"/", path.as_slice()].concat());
        let real = path.canonicalize().ok().map(|path| path.into_os_string().as_bytes().to_vec());
        for named in plain.into_iter().chain(real) {
            self.found.executed.extend(inside(self.directory, &named).filter(|path| !path.is_empty()));
        }
        if depth < DEPTH_MAX { self.file(&path, work_tree, depth + 1) } else { Ok(()) }
    }
}

/// Returns an absolute path relative to the directory; `None` if it is outside.
fn inside(directory: &Path, path: &[u8]) -> Option<Vec<u8>> {
    let directory = directory.as_os_str().as_bytes();
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    git_config::resolve(b"", path.strip_prefix(directory)?.strip_prefix(b"/")?)
}

/// Adds the targets of links to the executed paths: links in the metadata, in executed directories, and on the way to
/// executed files.
fn follow_links(baseline: &Baseline, directory: &Path, executed: &mut BTreeSet<Vec<u8>>) {
    let destination = |link: &[u8], target: &[u8]| {
        let path = if target.starts_with(b"/") {
            inside(directory, target)
        } else {
            git_config::resolve(split(link).0, target)
        };
        path.filter(|path| !path.is_empty())
    };
    executed.extend(baseline.metadata_links.iter().filter_map(|(link, target)| destination(link, target)));
    for _ in 0..LINKS_MAX {
        let mut found: Vec<Vec<u8>> = Vec::new();
        for (link, target) in baseline.links() {
            found.extend(destination(link, target).filter(|_| is_beneath(executed, link)));
        }
        for path in executed.iter() {
            let mut link = path.as_slice();
            while !link.is_empty() {
                let to = baseline.link(link).and_then(|target| destination(link, target));
                let rest = path[link.len()..].strip_prefix(b"/").unwrap_or_default();
                found.extend(to.map(|to| if rest.is_empty() { to } else { join(&to, rest) }));
                link = split(link).0;
            }
        }
        let before = executed.len();
        executed.extend(found);
        if executed.len() == before {
            return;
        }
    }
}

fn beside(file: &Path, target: &[u8]) -> PathBuf {
    file.parent().unwrap_or(Path::new("/")).join(OsStr::from_bytes(target))
}

fn shown(path: &Path) -> String {
    show(path.as_os_str().as_bytes())
}

/// Returns the content of a small regular file; `None` if there is no such file. Other files are not opened.
fn content(path: &Path) -> Result<Option<Vec<u8>>, ExchangeError> {
    let failed = |error: io::Error| ExchangeError::at(shown(path))(error);
    let found = match rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => return Ok(None),
        found => found.map_err(|error| failed(error.into()))?,
    };
    let entry = look(&found, b"", AtFlags::EMPTY_PATH).map_err(failed)?;
    let Ok(file) = read_found(&found, &entry) else { return Ok(None) };
    if entry.size > CONFIG_MAX {
        return Err(ExchangeError::TooLarge { path: shown(path), max: CONFIG_MAX });
    }
    let mut content = Vec::new();
    // Only this many bytes are read: files of the kernel state a size of 0, and reading them can block.
    file.take(entry.size).read_to_end(&mut content).map_err(failed)?;
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::exchange::baseline::copy_in;
    use crate::exchange::interrupt::CancelFlag;
    use crate::exchange::tree::Tree;

    fn read_in(make: impl Fn(&Path)) -> Result<Vec<String>, ExchangeError> {
        let directory = tempfile::tempdir().expect("there is room");
        let [host, work] = ["host", "work"].map(|name| directory.path().join(name));
        fs::create_dir_all(host.join(".git/hooks")).and_then(|()| fs::create_dir(&work)).expect("there is room");
        make(&host);
        let me = Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        let tree = |path: &Path| Tree::open(path, &CancelFlag::default()).expect("it is there");
        let baseline = copy_in(&tree(&host), &tree(&work), None, me, me, &CancelFlag::default())?;
        let found = read(&host.canonicalize().expect("it is there"), me, &baseline)?;
        Ok(found.executed.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect())
    }

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().expect("it has one"))
            .and_then(|()| fs::write(path, text))
            .expect("there is room");
    }

    #[test]
    fn inclusions_are_followed() {
        let executed = read_in(|host| {
            write(
                host.join(".git/config"),
                "[include]\npath = ../one # first\n[includeIf \"onbranch:x\"]\npath = two\n",
            );
            write(host.join("one"), "[core]\n\tfsmonitor = ./monitor\n[include]\npath = deep/three\n");
            write(host.join("deep/three"), "[core]\n\thooksPath = hooks\n[include]\npath = ../one\n");
            write(host.join(".git/two"), "[filter \"x\"]\n\tclean = ./clean\n");
        });
        assert_eq!(executed.expect("it is valid"), [".git/two", "clean", "deep/three", "hooks", "monitor", "one"]);
    }

    #[test]
    fn targets_of_links_are_executed() {
        let executed = read_in(|host| {
            write(host.join(".git/config"), "[core]\n\thooksPath = .husky\n\tfsmonitor = bin/monitor\n");
            for name in ["scripts/commit", "scripts/push", "tools/monitor"] {
                write(host.join(name), "");
            }
            fs::create_dir(host.join(".husky")).expect("there is room");
            symlink("../scripts/commit", host.join(".husky/pre-commit")).expect("there is room");
            symlink("../../scripts/push", host.join(".git/hooks/pre-push")).expect("there is room");
            symlink("tools", host.join("bin")).expect("there is room");
        });
        let expected = [".husky", "bin/monitor", "scripts/commit", "scripts/push", "tools/monitor"];
        assert_eq!(executed.expect("it is valid"), expected);
    }

    #[test]
    fn what_cannot_be_read_is_refused_or_left_out() {
        let refused = |text: &str| read_in(|host| write(host.join(".git/config"), text)).expect_err("it is refused");
        assert!(refused("[core\n").to_string().ends_with("is not a configuration of git; repair it, or remove it"));
        assert!(refused(&"#".repeat(2 << 20)).to_string().ends_with("has more than 1048576 bytes"));
        // Reading this would block.
        let linked = read_in(|host| symlink("/proc/kmsg", host.join(".git/config")).expect("there is room"));
        assert!(linked.expect("nothing is read").is_empty());
    }
}
