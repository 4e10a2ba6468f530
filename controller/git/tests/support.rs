//! A host with repositories, a forge, and sandboxes that push.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_contract::RunId;
use sluice_git::{
    Branch, ChildUser, CommitterIdentity, Credentials, GitHome, GitProgram, Mirror, MirrorOptions, RepositoryUrl,
    RunRepository,
};
use tempfile::TempDir;

pub(crate) mod delta_bomb;
pub(crate) mod forge;
pub(crate) mod http;
pub(crate) mod raw_push;
pub(crate) mod relay;
pub(crate) mod sshd;

pub(crate) const BRANCH: &str = "feature/AB-1-add-x";

/// Environment of the tests' own git.
pub(crate) const ENVIRONMENT: [(&str, &str); 10] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_AUTHOR_NAME", "Author"),
    ("GIT_AUTHOR_EMAIL", "author@example.org"),
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C.UTF-8"),
    ("HOME", "/nonexistent"),
];

/// Repositories of one host, in a directory that is removed after the test.
pub(crate) struct Host {
    pub(crate) scratch: TempDir,
    pub(crate) home: GitHome,
}

/// A run with its repository and a clone, as a sandbox gets it.
pub(crate) struct Workspace {
    pub(crate) repository: RunRepository,
    pub(crate) directory: PathBuf,
}

impl Host {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let home = GitHome::new(scratch.path().join("state/git"), program());
        Self { scratch, home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A bare repository with a commit on main.
    pub(crate) fn origin(&self, name: &str) -> PathBuf {
        let (work, bare) = (self.path(&format!("{name}.work")), self.path(&format!("{name}.git")));
        fs::create_dir(&work).expect("it is ours");
        git(&work, ["init", "-q", "-b", "main"]);
        write(&work, "README.md", "hello\n");
        write(&work, "src/main.rs", "fn main() {}\n");
        commit(&work, "first");
        git(self.scratch.path(), ["clone", "-q", "--bare", &text(&work), &text(&bare)]);
        bare
    }

    pub(crate) async fn mirror_of(&self, origin: &Path) -> Mirror {
        let url = RepositoryUrl::parse(&text(origin)).expect("an address");
        self.home.mirror(&url, &Credentials::None, &MirrorOptions::default()).await.expect("a mirror")
    }

    /// Returns the same repositories with a script of sh in place of git, which is not confined.
    pub(crate) fn with_git(&self, name: &str, script: &str) -> GitHome {
        let (source, git) = (self.path(&format!("{name}.sh")), self.path(name));
        fs::write(&source, format!("#!/bin/sh\n{script}\n")).expect("it is ours");
        // A file that this process has written may still be open in a child of another test; then the kernel does not
        // execute it.
        let installed = Command::new("install").args(["-m", "755"]).args([&source, &git]).status();
        assert!(installed.expect("it is there").success());
        GitHome::new(self.path("state/git"), GitProgram::unconfined(git))
    }

    /// Returns a run with a clone whose origin is this address.
    pub(crate) async fn workspace(&self, origin: &Path, run: &str, relay: &str) -> Workspace {
        let mirror = self.mirror_of(origin).await;
        let repository = mirror.run_repository(&run_id(run)).await.expect("a repository");
        let directory = self.path(&format!("{run}.work"));
        let url = format!("{relay}/git/{run}.git");
        repository.clone_into(&directory, &branch(), &url, &identity()).await.expect("a clone");
        Workspace { repository, directory }
    }
}

pub(crate) fn program() -> GitProgram {
    let user = nix::unistd::geteuid().is_root().then_some(ChildUser { uid: 65522, gid: 65522 });
    GitProgram::new("/usr/bin/git".into(), vec![env!("CARGO_BIN_EXE_sluice-git-child").into()], user)
}

pub(crate) fn branch() -> Branch {
    BRANCH.parse().expect("a branch")
}

pub(crate) fn identity() -> CommitterIdentity {
    CommitterIdentity::new("Sluice r1", "r1@sluice.invalid").expect("an identity")
}

pub(crate) fn run_id(name: &str) -> RunId {
    name.parse().expect("a run")
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

pub(crate) fn write(directory: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("it is ours");
    fs::write(path, content).expect("it is ours");
}

/// The tests' git, with the committer of the configuration.
pub(crate) fn git_command<S: AsRef<OsStr>>(directory: &Path, words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    command.current_dir(directory).args(words).env_clear().env("PATH", "/usr/bin:/bin").envs(ENVIRONMENT);
    command.stdin(Stdio::null());
    command
}

/// Runs git and returns its output without the last newline.
pub(crate) fn git<S: AsRef<OsStr>>(directory: &Path, words: impl IntoIterator<Item = S>) -> String {
    let output = git_command(directory, words).output().expect("git starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Runs git without blocking the runtime, since the server of the test answers it. Returns success and both outputs.
pub(crate) async fn git_async<const N: usize>(directory: &Path, words: [&str; N]) -> (bool, String) {
    let mut command = tokio::process::Command::from(git_command(directory, words));
    let output = command.kill_on_drop(true).output().await.expect("git starts");
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8_lossy(&words).into_owned())
}

/// Commits all files; a repository without a configured identity gets one.
pub(crate) fn commit(directory: &Path, message: &str) -> String {
    git(directory, ["add", "-A"]);
    let mut command = git_command(directory, ["commit", "-q", "--allow-empty", "-m", message]);
    if !git_command(directory, ["config", "user.email"]).output().expect("git starts").status.success() {
        command.env("GIT_COMMITTER_NAME", "Someone").env("GIT_COMMITTER_EMAIL", "someone@example.org");
    }
    assert!(command.status().expect("git starts").success());
    git(directory, ["rev-parse", "HEAD"])
}

/// Returns names and sizes of everything in a directory of repositories, to see that nothing was left.
pub(crate) fn listing(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).expect("it is ours").filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path.clone());
            }
            let content = if path.is_file() { fs::read(&path).unwrap_or_default().len() } else { 0 };
            names.push(format!("{} {content}", path.display()));
        }
    }
    names.sort();
    names
}
