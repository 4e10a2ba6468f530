//! The only module that starts git.
//!
//! Each process has a fixed environment, only our configuration, bounds, and a process group of its own, which is
//! killed if the process does not end in time.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::confine_request::{ConfineRequest, DirectoryAccess, NOT_CONFINED};
use crate::error::GitError;
use crate::ingest_refusal::IngestRefusal;
use crate::limits::Limits;
use crate::output::{Output, read_bounded, read_tail};
use crate::secret::SecretText;

/// Configuration of every process: nothing of a repository starts a program, and memory is bounded.
const CONFIG: [&str; 28] = [
    "protocol.allow=never", "http.followRedirects=false", "core.hooksPath=/dev/null", "core.fsmonitor=false",
    "core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.askPass=/bin/false", "core.pager=cat",
    "core.editor=/bin/false", "core.symlinks=true", "core.protectNTFS=true", "core.protectHFS=true",
    "core.bigFileThreshold=64m", "core.packedGitWindowSize=32m", "core.packedGitLimit=256m", "core.maxTreeDepth=512",
    "core.commitGraph=false", "core.multiPackIndex=false", "credential.helper=", "gc.auto=0", "maintenance.auto=false",
    "fetch.recurseSubmodules=false", "submodule.recurse=false", "push.recurseSubmodules=no", "pack.threads=1",
    "pack.windowMemory=128m", "checkout.workers=1", "advice.detachedHead=false",
];

/// User and group of the unprivileged child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The git of this host, and how it is started.
#[derive(Debug, Clone)]
pub struct GitProgram {
    git: PathBuf,
    wrapper: Vec<OsString>,
    user: Option<ChildUser>,
}

/// Path of the git directory in the working directory of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepositoryForm {
    /// The working directory is the git directory.
    Bare,
    /// The git directory is `.git`.
    WorkTree,
}

/// Bytes for the standard input of git.
pub(crate) enum Input<'a> {
    /// No input.
    Nothing,
    /// These bytes.
    Bytes(&'a [u8]),
    /// All bytes of a reader.
    Reader(&'a mut (dyn AsyncRead + Unpin + Send)),
    /// The output of another process.
    Pipe(ChildStdout),
}

/// One git process, before it starts.
pub(crate) struct GitCommand<'a> {
    program: &'a GitProgram,
    directory: &'a Path,
    form: RepositoryForm,
    access: DirectoryAccess,
    port: Option<u16>,
    user: Option<ChildUser>,
    limits: Limits,
    config: Vec<String>,
    environment: Vec<(&'static str, String)>,
    arguments: Vec<OsString>,
    hidden: Vec<SecretText>,
}

/// A git process that runs; it and its children are killed when this value is dropped before their end.
pub(crate) struct RunningGit {
    child: Child,
    group: Option<Pid>,
    name: String,
    limits: Limits,
    is_confined: bool,
    hidden: Vec<SecretText>,
}

impl GitProgram {
    /// Names git by its absolute path, the words that start `confine` (in production `/proc/self/exe git-child`), and
    /// the user of git. A process that is not root passes no `user`: git then runs as the user of this process.
    #[must_use]
    pub fn new(git: PathBuf, wrapper: Vec<OsString>, user: Option<ChildUser>) -> Self {
        Self { git, wrapper, user }
    }

    /// Names a git that is not confined, for tests that have no program with `confine` in it.
    #[must_use]
    pub fn unconfined(git: PathBuf) -> Self {
        Self { git, wrapper: Vec::new(), user: None }
    }

    /// Returns the path of git.
    pub(crate) fn path(&self) -> &Path {
        &self.git
    }

    /// Returns the user of git.
    #[must_use]
    pub fn user(&self) -> Option<ChildUser> {
        self.user
    }

    /// Begins a command in a directory, which the process can write.
    pub(crate) fn command<'a>(&'a self, directory: &'a Path, limits: Limits) -> GitCommand<'a> {
        GitCommand {
            program: self,
            directory,
            form: RepositoryForm::Bare,
            access: DirectoryAccess::Write,
            port: None,
            user: self.user,
            limits,
            config: Vec::new(),
            environment: Vec::new(),
            arguments: Vec::new(),
            hidden: Vec::new(),
        }
    }
}

impl<'a> GitCommand<'a> {
    /// Adds arguments.
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds a setting; later ones win.
    pub(crate) fn config(mut self, setting: impl Into<String>) -> Self {
        self.config.push(setting.into());
        self
    }

    /// Replaces these texts in git's output: a forge may repeat a credential in its refusal.
    pub(crate) fn hide(mut self, secrets: &[SecretText]) -> Self {
        self.hidden.extend(secrets.iter().cloned());
        self
    }

    /// Sets the path of the git directory.
    pub(crate) fn form(mut self, form: RepositoryForm) -> Self {
        self.form = form;
        self
    }

    /// Removes the right to write.
    pub(crate) fn read_only(mut self) -> Self {
        self.access = DirectoryAccess::Read;
        self
    }

    /// Lets the process connect to this TCP port.
    pub(crate) fn network(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the user of the process, such as the owner of a repository of the operator.
    pub(crate) fn user(mut self, user: Option<ChildUser>) -> Self {
        self.user = user;
        self
    }

    /// Writes new objects into a directory of the repository, in addition to its existing objects.
    pub(crate) fn quarantine(mut self, directory: &str) -> Self {
        self.environment.push(("GIT_OBJECT_DIRECTORY", directory.to_owned()));
        self.environment.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES", "objects".to_owned()));
        self
    }

    /// Gives access to the objects of one directory only.
    pub(crate) fn only_objects(mut self, directory: &str) -> Self {
        self.environment.push(("GIT_OBJECT_DIRECTORY", directory.to_owned()));
        self
    }

    /// Sets other bounds.
    pub(crate) fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the program that git starts for ssh.
    pub(crate) fn ssh_command(mut self, command: String) -> Self {
        self.environment.push(("GIT_SSH_COMMAND", command));
        self.environment.push(("GIT_SSH_VARIANT", "ssh".to_owned()));
        self
    }

    /// Runs to the end, whatever the exit code.
    pub(crate) async fn run(self, input: Input<'_>) -> Result<Output, GitError> {
        let (stdin, source) = match input {
            Input::Nothing => (Stdio::null(), None),
            Input::Pipe(stdout) => {
                (TryInto::<Stdio>::try_into(stdout).map_err(GitError::file("join two processes"))?, None)
            }
            bytes => (Stdio::piped(), Some(bytes)),
        };
        let mut running = self.spawn(stdin)?;
        let feed = running.child.stdin.take().zip(source);
        running.finish(feed).await
    }

    /// Runs to the end and fails unless git succeeds.
    pub(crate) async fn check(self, input: Input<'_>) -> Result<Output, GitError> {
        let name = self.name();
        let output = self.run(input).await?;
        if output.is_success() {
            Ok(output)
        } else {
            Err(GitError::Failed { command: name, message: output.message() })
        }
    }

    /// Starts git, with pipes for both outputs.
    pub(crate) fn spawn(self, stdin: Stdio) -> Result<RunningGit, GitError> {
        let name = self.name();
        let is_confined = !self.program.wrapper.is_empty();
        let limits = self.limits;
        let hidden = self.hidden.clone();
        let mut command = self.process();
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(|source| GitError::Start { command: name.clone(), source })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(RunningGit { child, group, name, limits, is_confined, hidden })
    }

    fn name(&self) -> String {
        self.arguments.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn process(self) -> Command {
        let (git_directory, work_tree) = match self.form {
            RepositoryForm::Bare => (".", None),
            RepositoryForm::WorkTree => (".git", Some(".")),
        };
        let mut words = vec![self.program.git.clone().into_os_string()];
        for setting in CONFIG.iter().map(|setting| (*setting).to_owned()).chain(self.config) {
            words.extend(["-c".into(), setting.into()]);
        }
        words.push("--no-pager".into());
        words.extend(self.arguments);
        let mut command = match self.program.wrapper.split_first() {
            None => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                if let Some(user) = self.user {
                    command.uid(user.uid).gid(user.gid);
                }
                command
            }
            Some((wrapper, first)) => {
                let request = ConfineRequest {
                    user: self.user.map(|user| (user.uid, user.gid)),
                    port: self.port,
                    access: self.access,
                    memory: self.limits.memory,
                    cpu: self.limits.cpu,
                    file: self.limits.file,
                    program: words,
                };
                let mut command = Command::new(wrapper);
                command.args(first).args(request.arguments());
                command
            }
        };
        command.current_dir(self.directory).env_clear();
        command.env("GIT_DIR", git_directory).envs(work_tree.map(|tree| ("GIT_WORK_TREE", tree)));
        command.envs(ENVIRONMENT).envs(self.environment);
        command
    }
}

/// Environment of every process.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C.UTF-8"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
];

impl RunningGit {
    /// Takes the standard output, for another process.
    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the standard input.
    pub(crate) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Feeds the input, reads the outputs and waits for the end, within the limits.
    pub(crate) async fn finish(mut self, feed: Option<(ChildStdin, Input<'_>)>) -> Result<Output, GitError> {
        let limit = self.limits.output;
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let name = self.name.clone();
        let read_stdout = async {
            let Some(stdout) = stdout else { return Ok(Vec::new()) };
            let read = read_bounded(stdout, limit).await.map_err(GitError::file("read the output of git"))?;
            read.ok_or(GitError::TooMuchOutput { command: name, bytes: limit })
        };
        let read_stderr = async {
            let Some(stderr) = stderr else { return Ok(Vec::new()) };
            read_tail(stderr).await.map_err(GitError::file("read the output of git"))
        };
        let all = async { tokio::try_join!(write_input(feed), read_stdout, read_stderr) };
        let work = async {
            let ((), stdout, stderr) = all.await?;
            let status = self.child.wait().await.map_err(GitError::file("wait for git"))?;
            self.group = None;
            Ok::<_, GitError>(Output { code: status.code(), stdout, stderr })
        };
        let Ok(done) = tokio::time::timeout(self.limits.wall, work).await else {
            return Err(GitError::TimedOut { command: self.name.clone(), seconds: self.limits.wall.as_secs() });
        };
        let mut output = done?;
        output.hide(&self.hidden);
        if self.is_confined && output.code == Some(NOT_CONFINED) {
            return Err(GitError::Confine { command: self.name.clone(), reason: output.message() });
        }
        Ok(output)
    }
}

/// Kills the whole group: git has children of its own, such as ssh.
impl Drop for RunningGit {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Writes the input to git. If git ended early, the pipe is closed, and the exit code of git says why.
async fn write_input(feed: Option<(ChildStdin, Input<'_>)>) -> Result<(), GitError> {
    let Some((mut stdin, input)) = feed else { return Ok(()) };
    match input {
        Input::Bytes(bytes) => {
            let _ = stdin.write_all(bytes).await;
        }
        Input::Reader(reader) => copy_input(reader, &mut stdin).await?,
        Input::Nothing | Input::Pipe(_) => {}
    }
    let _ = stdin.shutdown().await;
    Ok(())
}

async fn copy_input(reader: &mut (dyn AsyncRead + Unpin + Send), stdin: &mut ChildStdin) -> Result<(), GitError> {
    use tokio::io::AsyncReadExt;
    let mut piece = vec![0; 64 * 1024];
    loop {
        // A read error means that the client has gone, which is not a fault of the host.
        let read = reader.read(&mut piece).await.map_err(|_| GitError::Refused(IngestRefusal::CutOff))?;
        if read == 0 || stdin.write_all(&piece[..read]).await.is_err() {
            return Ok(());
        }
    }
}
