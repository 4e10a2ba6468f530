//! The mirror of a repository: the base of runs, fetched with the operator's credentials.

use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sluice_contract::{RunId, hex};

use crate::branch::Branch;
use crate::branch_name::{DEFAULTS, default_branch};
use crate::credentials::Credentials;
use crate::directory::{Lock, make_private, remove};
use crate::error::GitError;
use crate::home::{GitHome, RepositoryPaths};
use crate::leftovers;
use crate::limits::{LISTING, OPERATOR, REMOTE_REFS};
use crate::local_repository::LocalRepository;
use crate::object_id::ObjectId;
use crate::program::{GitCommand, Input};
use crate::repository_url::{RepositoryUrl, UrlKind};
use crate::run_repository::RunRepository;
use crate::transfer::{TransferEnd, init, resolve, transfer, update_refs};

/// Maximum time to wait for another fetch of the same mirror.
const WAIT: Duration = Duration::from_secs(3600);

/// Checks for the objects of a fetch. Old, harmless mistakes of other programs are ignored.
const FETCH_CHECKS: [&str; 10] = [
    "fetch.fsckObjects=true",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.badTimezone=ignore",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.fsck.zeroPaddedDate=ignore",
    "fetch.fsck.badEmail=ignore",
    "fetch.fsck.missingEmail=ignore",
    "fetch.fsck.missingNameBeforeEmail=ignore",
    "fetch.fsck.missingSpaceBeforeEmail=ignore",
    "fetch.fsck.badDateOverflow=ignore",
];

/// Ends a connection that carries less than 1,000 bytes per second for a minute: otherwise, a silent forge would hold
/// the lock of a repository.
const SILENCE: [&str; 2] = ["http.lowSpeedLimit=1000", "http.lowSpeedTime=60"];
/// The same time for a fetch: a forge may count the objects of a large repository for minutes, and send almost nothing
/// meanwhile.
const FETCH_SILENCE: &str = "http.lowSpeedTime=300";

/// Options of a fetch.
#[derive(Debug, Clone, Default)]
pub struct MirrorOptions {
    /// Name of the project and of its permitted users: two projects never share a mirror.
    pub scope: String,
    /// Branch to start from; otherwise the default branch.
    pub base: Option<Branch>,
    /// Number of commits of the history; otherwise all. A directory is always fetched whole.
    pub depth: Option<u32>,
    /// If true, runs start without the submodules that the repository has.
    pub without_submodules: bool,
    /// If true, runs start with pointers instead of the files that LFS has.
    pub without_lfs: bool,
}

/// A mirror that has the base of a run.
#[derive(Debug, Clone)]
pub struct Mirror {
    home: GitHome,
    paths: RepositoryPaths,
    base: Branch,
    tip: ObjectId,
}

impl GitHome {
    /// Fetches the base of a run into the mirror of the repository.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn mirror(
        &self,
        url: &RepositoryUrl,
        credentials: &Credentials,
        options: &MirrorOptions,
    ) -> Result<Mirror, GitError> {
        Mirror::fetch(self, url, credentials, options).await
    }
}

impl Mirror {
    pub(crate) async fn fetch(
        home: &GitHome,
        url: &RepositoryUrl,
        credentials: &Credentials,
        options: &MirrorOptions,
    ) -> Result<Self, GitError> {
        home.prepare()?;
        let paths = home.mirror_paths(url, &mirror_scope(options));
        let lock = Lock::wait(&paths.lock, WAIT).await?;
        // The time of the lock file shows when the mirror was last used.
        lock.touch()?;
        make_mirror(home, &paths).await?;
        leftovers::sweep(&paths.repository)?;
        let fetch = Fetch { home, url, paths: &paths };
        let (base, tip) = match url.directory() {
            Some(directory) => fetch.read_directory(&directory, options).await?,
            None => fetch.read_network(credentials, options).await?,
        };
        let mirror = Self { home: home.clone(), paths, base, tip };
        mirror.check_content(url, options).await?;
        Ok(mirror)
    }

    /// Returns the branch that runs start from.
    #[must_use]
    pub fn base(&self) -> &Branch {
        &self.base
    }

    /// Returns the commit of that branch.
    #[must_use]
    pub fn tip(&self) -> &ObjectId {
        &self.tip
    }

    /// Makes the repository of a run, with only the base; or returns the existing one.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn run_repository(&self, run: &RunId) -> Result<RunRepository, GitError> {
        let _lock = Lock::wait(&self.paths.lock, WAIT).await?;
        RunRepository::make(&self.home, run, self.end(), self.base.clone(), self.tip.clone()).await
    }

    pub(crate) fn end(&self) -> TransferEnd<'_> {
        TransferEnd::bare(&self.paths.repository, self.home.program())
    }

    fn command(&self) -> GitCommand<'_> {
        self.end().command(self.home.program(), OPERATOR).read_only()
    }

    /// Refuses submodules and LFS, unless runs may start without them.
    async fn check_content(&self, url: &RepositoryUrl, options: &MirrorOptions) -> Result<(), GitError> {
        if !options.without_submodules {
            let file = format!("{}:.gitmodules", self.tip);
            if self.command().args(["cat-file", "-e", &file]).run(Input::Nothing).await?.is_success() {
                return Err(GitError::Submodules { url: url.to_string() });
            }
        }
        if !options.without_lfs {
            let words = ["grep", "--quiet", "--no-textconv", "-e", "filter=lfs", self.tip.as_str(), "--"];
            let grep = self.command().args(words).args([":(glob)**/.gitattributes"]);
            match grep.run(Input::Nothing).await?.code {
                Some(1) => {}
                Some(0) => return Err(GitError::Lfs { url: url.to_string() }),
                _ => return Err(GitError::Output { command: "grep".into(), what: "no answer about LFS".into() }),
            }
        }
        Ok(())
    }
}

/// Returns the scope that distinguishes the mirrors of one address: the project, and the depth of the history.
pub(crate) fn mirror_scope(options: &MirrorOptions) -> String {
    let depth = options.depth.map(|depth| format!(" depth {depth}")).unwrap_or_default();
    format!("{}{depth}", options.scope)
}

/// Makes the repository of the mirror, if it is not there.
async fn make_mirror(home: &GitHome, paths: &RepositoryPaths) -> Result<(), GitError> {
    if paths.repository.is_dir() {
        return Ok(());
    }
    remove(&paths.unfinished)?;
    make_private(&paths.unfinished, home.program().user())?;
    init(home.program(), TransferEnd::bare(&paths.unfinished, home.program()), "main", OPERATOR).await?;
    std::fs::rename(&paths.unfinished, &paths.repository).map_err(GitError::file("rename a repository"))
}

struct Fetch<'a> {
    home: &'a GitHome,
    url: &'a RepositoryUrl,
    paths: &'a RepositoryPaths,
}

impl Fetch<'_> {
    fn directory(&self) -> &Path {
        &self.paths.repository
    }

    async fn read_directory(&self, source: &Path, options: &MirrorOptions) -> Result<(Branch, ObjectId), GitError> {
        let program = self.home.program();
        let local = LocalRepository::open(source, program)?;
        let head = local.head(program).await?;
        let candidates = match &options.base {
            Some(base) => vec![base.to_string()],
            None => head.into_iter().chain(DEFAULTS.map(str::to_owned)).collect(),
        };
        let mut found = None;
        for name in candidates {
            if let Some(tip) = local.branch(program, &name).await? {
                found = Some((name.parse::<Branch>()?, tip));
                break;
            }
        }
        let (branch, tip) = found.ok_or_else(|| self.missing(options))?;
        let to = TransferEnd::bare(self.directory(), program);
        let boundary = local.end().boundary()?;
        if to.boundary()? != boundary {
            // The branches in the mirror may lack commits that this history has, so the mirror is made again.
            remove(self.directory())?;
            make_mirror(self.home, self.paths).await?;
        }
        let mut had = resolve(program, to, &own_reference(&branch), OPERATOR).await?;
        if let Some(id) = &had
            && !local.has(program, id).await?
        {
            had = None;
        }
        if had.as_ref() != Some(&tip) {
            transfer(program, local.end(), to, std::slice::from_ref(&tip), had.as_slice(), OPERATOR).await?;
            to.set_boundary(boundary.as_deref())?;
            update_refs(program, to, &format!("update {} {tip}\n", own_reference(&branch)), OPERATOR).await?;
        }
        Ok((branch, tip))
    }

    async fn read_network(
        &self,
        credentials: &Credentials,
        options: &MirrorOptions,
    ) -> Result<(Branch, ObjectId), GitError> {
        let program = self.home.program();
        let placed = credentials.place(self.url, self.directory(), program.user())?;
        let command = || placed.apply(network_command(self.home, self.url, self.directory()));
        let url = self.url.as_str();
        let list = command().limits(LISTING).args(["ls-remote", "--symref", "--", url, "HEAD", "refs/heads/*"]);
        let refs = RemoteRefs::parse(&list.check(Input::Nothing).await?.stdout)?;
        let branch = match &options.base {
            Some(base) if refs.has(base.as_str()) => base.clone(),
            Some(_) => return Err(self.missing(options)),
            None => refs.default_branch().ok_or_else(|| self.missing(options))?.parse()?,
        };
        let own = own_reference(&branch);
        let mut words = vec![
            "fetch".to_owned(),
            "--quiet".to_owned(),
            "--no-tags".to_owned(),
            "--no-recurse-submodules".to_owned(),
            "--no-auto-gc".to_owned(),
            "--no-write-fetch-head".to_owned(),
            "--no-auto-maintenance".to_owned(),
        ];
        words.extend(options.depth.map(|depth| format!("--depth={}", depth.max(1))));
        words.extend(["--".to_owned(), url.to_owned(), format!("+{}:{own}", branch.reference())]);
        let fetch = FETCH_CHECKS.iter().fold(command(), |command, check| command.config(*check)).config(FETCH_SILENCE);
        fetch.args(words).check(Input::Nothing).await?;
        let to = TransferEnd::bare(self.directory(), program);
        let tip = resolve(program, to, &format!("{own}^{{commit}}"), OPERATOR).await?;
        Ok((branch, tip.ok_or_else(|| self.missing(options))?))
    }

    fn missing(&self, options: &MirrorOptions) -> GitError {
        let url = self.url.to_string();
        match &options.base {
            Some(base) => GitError::UnknownBranch { url, branch: base.to_string() },
            None => GitError::NoDefaultBranch { url },
        }
    }
}

/// Returns the ref of a branch in a mirror. The repository may have `a` today and `a/b` tomorrow, and git cannot have
/// refs with both names, so the ref has a name of a fixed form.
pub(crate) fn own_reference(branch: &Branch) -> String {
    let digest = Sha256::digest(branch.as_str());
    format!("refs/sluice/branch-{}", hex::encode(&digest[..16]))
}

/// Begins a command that connects to the forge, only by the protocol of the address.
pub(crate) fn network_command<'a>(home: &'a GitHome, url: &RepositoryUrl, directory: &'a Path) -> GitCommand<'a> {
    let protocol = match url.kind() {
        UrlKind::Https => "https",
        UrlKind::Http => "http",
        UrlKind::Ssh => "ssh",
        UrlKind::Local => "none",
    };
    let command = home.program().command(directory, OPERATOR).config(format!("protocol.{protocol}.allow=always"));
    let command = SILENCE.iter().fold(command, |command, setting| command.config(*setting));
    url.port().into_iter().fold(command, GitCommand::network)
}

/// Branches of a remote, as `git ls-remote --symref` lists them.
#[derive(Debug, Default)]
struct RemoteRefs {
    head: Option<String>,
    branches: Vec<String>,
}

impl RemoteRefs {
    fn parse(listed: &[u8]) -> Result<Self, GitError> {
        let mut refs = Self::default();
        for line in String::from_utf8_lossy(listed).lines() {
            let Some((left, right)) = line.split_once('\t') else { continue };
            if let (Some(target), "HEAD") = (left.strip_prefix("ref: refs/heads/"), right) {
                refs.head = Some(target.to_owned());
            } else if let Some(branch) = right.strip_prefix("refs/heads/") {
                refs.branches.push(branch.to_owned());
            }
        }
        if refs.branches.len() > REMOTE_REFS {
            let what = format!("more than {REMOTE_REFS} branches");
            return Err(GitError::Output { command: "ls-remote".to_owned(), what });
        }
        Ok(refs)
    }

    fn has(&self, branch: &str) -> bool {
        self.branches.iter().any(|known| known == branch)
    }

    fn default_branch(&self) -> Option<&str> {
        default_branch(self.head.as_deref(), |branch| self.has(branch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_branch_is_heads_or_a_common_one() {
        let default =
            |listed: &str| RemoteRefs::parse(listed.as_bytes()).expect("few").default_branch().map(str::to_owned);
        let list = |names: &[&str]| names.iter().map(|name| format!("x\trefs/heads/{name}\n")).collect::<String>();
        assert_eq!(
            default(&format!("ref: refs/heads/dev\tHEAD\nx\tHEAD\n{}", list(&["main", "dev"]))),
            Some("dev".into())
        );
        assert_eq!(
            default(&format!("ref: refs/heads/gone\tHEAD\n{}", list(&["trunk", "master"]))),
            Some("master".into())
        );
        assert_eq!(default(&list(&["trunk", "x"])), Some("trunk".into()));
        assert_eq!(default(&list(&["x"])), None);
        let many = list(&["a"]).repeat(REMOTE_REFS + 1);
        assert!(RemoteRefs::parse(many.as_bytes()).is_err());
    }
}
