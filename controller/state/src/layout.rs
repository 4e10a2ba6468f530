//! Where everything of one controller lies: `STATE/{instance,sluice.db,budgets.log,audit,prices,runs/RUN.ATTEMPT/{sock,conf,work}}`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};
use sluice_contract::RunKey;

/// The longest path that fits into a `sockaddr_un`.
const SOCKET_PATH_MAX: usize = 107;

/// The directory of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    state: PathBuf,
}

/// The directories of one start of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    /// What is removed at the end.
    pub root: PathBuf,
    /// Mounted read-only: the socket.
    pub sock: PathBuf,
    /// Never mounted: the sidecar's log, and the key that signs its audit file.
    pub conf: PathBuf,
    /// Mounted as the workspace.
    pub work: PathBuf,
    /// The socket itself.
    pub socket: PathBuf,
    /// The key file of the sidecar.
    pub audit_key: PathBuf,
    /// The audit file, which stays.
    pub audit: PathBuf,
}

/// Why a state directory is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// It cannot be made, or written.
    #[error("cannot use the state directory {0}")]
    State(PathBuf, #[source] io::Error),
    /// A socket in it would have a name that the kernel does not take.
    #[error(
        "{path} is {len} bytes long, and a socket's path has room for {SOCKET_PATH_MAX}; name a shorter --state-dir"
    )]
    SocketPath {
        /// The longest one that would come.
        path: PathBuf,
        /// Its length.
        len: usize,
    },
}

impl Layout {
    /// Makes the directories that are missing, private to this user.
    ///
    /// # Errors
    /// [`LayoutError::State`].
    pub fn open(state: &Path) -> Result<Self, LayoutError> {
        let failed = |error| LayoutError::State(state.to_owned(), error);
        DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(failed)?;
        // Mounts are named by absolute paths, and the engine does not know our working directory.
        let state = fs::canonicalize(state).map_err(failed)?;
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        for name in ["runs", "audit", "prices"] {
            DirBuilder::new().recursive(true).mode(0o700).create(state.join(name)).map_err(failed)?;
        }
        Ok(Self { state })
    }

    /// The layout of a directory that is there already, or not.
    #[must_use]
    pub fn at(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    /// The directory itself.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The database of runs.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.state.join("sluice.db")
    }

    /// The log of budgets, from which a lost database gets them back.
    #[must_use]
    pub fn budget_log(&self) -> PathBuf {
        self.state.join("budgets.log")
    }

    /// The name by which containers of this controller are known from those of others; made at first use.
    ///
    /// # Errors
    /// When it can be neither read nor made.
    pub fn instance(&self) -> io::Result<String> {
        let path = self.state.join("instance");
        if !path.exists() {
            // Of several first starts one goes first; one that was killed here is done again over its own remains.
            let _first = Flock::lock(File::open(&self.state)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
            let aside = self.state.join("instance.new");
            if !path.exists() {
                let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
                file.write_all(uuid::Uuid::new_v4().simple().to_string().as_bytes())?;
                file.sync_all()?;
                fs::rename(&aside, &path)?;
            }
        }
        let name = fs::read_to_string(&path)?;
        if name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(name)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no instance name", path.display())))
        }
    }

    /// The places of one start of a run.
    #[must_use]
    pub fn run(&self, key: &RunKey) -> RunPaths {
        let root = self.state.join("runs").join(key.to_string());
        let sock = root.join("sock");
        RunPaths {
            socket: sock.join("llm.sock"),
            sock,
            audit_key: root.join("conf").join("audit.key"),
            conf: root.join("conf"),
            work: root.join("work"),
            audit: self.state.join("audit").join(format!("{key}.jsonl")),
            root,
        }
    }

    /// The directory of all run directories.
    #[must_use]
    pub fn runs_directory(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// Where the prices of an upstream are kept.
    #[must_use]
    pub fn prices(&self, upstream: &str) -> PathBuf {
        let digest = Sha256::digest(upstream.as_bytes());
        let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        self.state.join("prices").join(format!("{name}.json"))
    }

    /// The runs whose audit files are there.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn audited(&self) -> io::Result<Vec<RunKey>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(self.state.join("audit"))? {
            let name = entry?.file_name();
            keys.extend(name.to_str().and_then(|name| name.strip_suffix(".jsonl")?.parse().ok()));
        }
        keys.sort();
        Ok(keys)
    }

    /// The run directories that are there, whoever made them.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn runs(&self) -> io::Result<Vec<RunKey>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(self.state.join("runs"))? {
            keys.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()));
        }
        keys.sort();
        Ok(keys)
    }
}

impl RunPaths {
    /// That the kernel will take the socket's path.
    ///
    /// # Errors
    /// [`LayoutError::SocketPath`].
    pub fn check(&self) -> Result<(), LayoutError> {
        let len = self.socket.as_os_str().len();
        if len > SOCKET_PATH_MAX { Err(LayoutError::SocketPath { path: self.socket.clone(), len }) } else { Ok(()) }
    }
}
