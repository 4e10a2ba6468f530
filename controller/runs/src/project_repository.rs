//! The repository of a project, as the settings have it.
//!
//! Pure. Credentials are in files of the operator, which are read when they are needed.

use std::path::{Path, PathBuf};

use sluice_git::{Branch, CommitterIdentity, MirrorOptions, RepositoryUrl};
use sluice_state::git_runs::PublishRule;

/// The repository of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRepository {
    /// Address, without credentials.
    pub url: RepositoryUrl,
    /// Access to it.
    pub access: RepositoryAccess,
    /// Forge where its pull requests are.
    pub forge: ForgeSettings,
    /// Rule for publications of branches.
    pub publish: PublishRule,
    /// True if people may merge pull requests of runs.
    pub may_merge: bool,
    /// Author and committer of the runs' commits; by default, an identity that names the run.
    pub author: Option<CommitterIdentity>,
    /// Number of commits of the history that runs get; all otherwise.
    pub depth: Option<u32>,
    /// True if runs may start without the submodules of the repository.
    pub without_submodules: bool,
    /// True if runs may start with pointers in place of the files that LFS has.
    pub without_lfs: bool,
}

impl ProjectRepository {
    /// Returns a repository without credentials and forge. A person publishes its branches.
    #[must_use]
    pub fn of(url: RepositoryUrl) -> Self {
        Self {
            url,
            access: RepositoryAccess::default(),
            forge: ForgeSettings::default(),
            publish: PublishRule::Approve,
            may_merge: false,
            author: None,
            depth: None,
            without_submodules: false,
            without_lfs: false,
        }
    }

    /// Returns the options for the mirror of the repository. `scope` is the name of the project.
    #[must_use]
    pub fn mirror_options(&self, scope: String, base: Option<Branch>) -> MirrorOptions {
        let Self { depth, without_submodules, without_lfs, .. } = *self;
        MirrorOptions { scope, base, depth, without_submodules, without_lfs }
    }
}

/// Files with the credentials for a repository. Empty for a public one, or a directory of the host. A repository has
/// credentials or an app, and not both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryAccess {
    /// A token for https, or a private key for ssh.
    pub credentials: Option<PathBuf>,
    /// Keys of hosts, for ssh.
    pub known_hosts: Option<PathBuf>,
    /// GitHub App, instead of a token.
    pub app: Option<AppAccess>,
}

impl RepositoryAccess {
    /// Returns the files that hold secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let app = self.app.as_ref().map(|app| app.key.as_path());
        self.credentials.as_deref().into_iter().chain(app)
    }
}

/// A GitHub App, and its installation for the owner of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppAccess {
    /// Number of the app.
    pub app: u64,
    /// Number of the installation.
    pub installation: u64,
    /// File with the private key of the app.
    pub key: PathBuf,
}

/// Forge of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForgeSettings {
    /// Kind of the forge.
    pub kind: ForgeKind,
    /// Address of its API, if it is not the usual one.
    pub api: Option<String>,
}

/// Kind of a forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForgeKind {
    /// No forge: branches are published, and there are no pull requests.
    #[default]
    None,
    /// GitHub, or GitHub Enterprise Server.
    GitHub,
    /// Gitea or Forgejo.
    Gitea,
    /// A bare repository of the host. Sluice itself keeps its pull requests.
    Local,
}

impl ForgeKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::None, Self::GitHub, Self::Gitea, Self::Local];

    /// Returns the name, as in the settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::GitHub => "github",
            Self::Gitea => "gitea",
            Self::Local => "local",
        }
    }

    /// Returns the kind of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}
