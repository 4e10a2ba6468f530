//! The repositories of this host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sluice_git::{ChildUser, GitHome, GitProgram};

/// First argument of this program as the process that confines itself and becomes git.
pub(crate) const CHILD: &str = "git-child";
/// User of git: the id after the default range of the sidecars' users. No tool assigns it.
const USER: ChildUser = ChildUser { uid: 2_000_065_536, gid: 2_000_065_536 };
/// Directories with git.
const PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Returns the repositories in a state directory.
pub(crate) fn git_home(state_dir: &Path) -> GitHome {
    let git = PROGRAMS.iter().map(|directory| Path::new(directory).join("git")).find(|path| path.is_file());
    let wrapper = ["/proc/self/exe", CHILD].map(OsString::from).to_vec();
    let user = nix::unistd::Uid::effective().is_root().then_some(USER);
    let program = GitProgram::new(git.unwrap_or_else(|| PathBuf::from("/usr/bin/git")), wrapper, user);
    GitHome::new(std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned()).join("git"), program)
}
