//! Paths of one controller: `STATE/{instance,sluice.db,budgets.log,decisions.log,keys,audit,prices,records,git}`,
//! `STATE/{logs,files,daemon}.lock`, `STATE/runs/RUN.ATTEMPT/{sock,conf,work}` and `STATE/kept/RUN.ATTEMPT`.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sluice_contract::ready::SOCKET_PATH_MAX;
use sluice_contract::{RunKey, hex};

use crate::records::Records;
use crate::state_directory::{self, PRIVATE, StateDirectory, StateDirectoryError};
use crate::{file, lock};

/// Private directories that are made when they are needed.
const MADE_LATER: [&str; 2] = ["keys", "git"];

/// Paths in the state directory of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    state: PathBuf,
}

/// Paths of one attempt of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    /// Directory of the attempt, removed at its end.
    pub root: PathBuf,
    /// Directory of the socket, mounted read-only.
    pub sock: PathBuf,
    /// Directory that is never mounted: the sidecar's log, its control socket, its files for the daemon, and the key that
    /// signs its audit file.
    pub conf: PathBuf,
    /// Directory that is mounted as the workspace.
    pub work: PathBuf,
    /// Socket of the sidecar.
    pub socket: PathBuf,
    /// Control socket of the sidecar.
    pub control: PathBuf,
    /// Socket on which the daemon receives the sandbox's reports from the sidecar, in a directory of its own. The sidecar has
    /// this directory as its working directory, since it cannot enter the directories above it.
    pub relay: PathBuf,
    /// File with the token by which the daemon knows the sidecar.
    pub relay_token: PathBuf,
    /// Key file of the sidecar.
    pub audit_key: PathBuf,
    /// Audit file, which stays after the run.
    pub audit: PathBuf,
}

/// Error of a state directory.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The directory cannot be created or written.
    #[error("cannot use the state directory {0}")]
    State(PathBuf, #[source] io::Error),
    /// The directory exists, and cannot be used as a state directory.
    #[error(transparent)]
    Unfit(StateDirectoryError),
    /// The database is missing, but its sources exist.
    #[error(
        "the database {database} is missing, and the audit files of {runs} runs are there; sluice ledger rebuild makes it \
         from them, with the budgets of budgets.log; or restore a backup"
    )]
    DatabaseLost {
        /// Path of the database.
        database: PathBuf,
        /// Number of audit files.
        runs: usize,
    },
    /// The path of a socket in it would be too long for the kernel.
    #[error(
        "{path} is {len} bytes long, and a socket's path has room for {SOCKET_PATH_MAX}; name a shorter --state-dir"
    )]
    SocketPath {
        /// The longest socket path.
        path: PathBuf,
        /// Length of the path in bytes.
        len: usize,
    },
}

impl From<StateDirectoryError> for LayoutError {
    fn from(error: StateDirectoryError) -> Self {
        match error {
            StateDirectoryError::Io(path, source) => Self::State(path, source),
            unfit => Self::Unfit(unfit),
        }
    }
}

impl Layout {
    /// Creates the missing parts of a state directory, private to this user. An existing directory keeps its mode.
    ///
    /// # Errors
    /// [`LayoutError::State`], [`LayoutError::Unfit`].
    pub fn open(state: &Path) -> Result<Self, LayoutError> {
        let failed = |error| LayoutError::State(state.to_owned(), error);
        if state_directory::inspect(state)? == StateDirectory::Missing {
            state_directory::create(state)?;
        }
        // Mounts are named by absolute paths, and the engine does not know our working directory.
        let layout = Self { state: fs::canonicalize(state).map_err(failed)? };
        // The name is created first, because it identifies a state directory.
        layout.instance().map_err(failed)?;
        for name in PRIVATE.iter().filter(|name| !MADE_LATER.contains(name)) {
            DirBuilder::new().recursive(true).mode(0o700).create(layout.state.join(name)).map_err(failed)?;
        }
        Ok(layout)
    }

    /// Returns the paths in a directory, which may not exist.
    #[must_use]
    pub fn at(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    /// Returns the state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the path of the database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.state.join("sluice.db")
    }

    /// Checks that the database is not lost: without audit files and budgets, there was none.
    ///
    /// # Errors
    /// [`LayoutError::DatabaseLost`]
    pub fn check_database(&self) -> Result<(), LayoutError> {
        let database = self.database();
        if database.exists() {
            return Ok(());
        }
        let runs = self.audited().unwrap_or_default().len();
        let is_lost = runs > 0 || self.budget_log().exists();
        if is_lost { Err(LayoutError::DatabaseLost { database, runs }) } else { Ok(()) }
    }

    /// Returns the path of the budget log, which restores the budgets of a lost database.
    #[must_use]
    pub fn budget_log(&self) -> PathBuf {
        self.state.join("budgets.log")
    }

    /// Returns the path of the log of decisions, which keeps what only the operator knows of receipts and audit files.
    #[must_use]
    pub fn decisions(&self) -> PathBuf {
        self.state.join("decisions.log")
    }

    /// Returns the path of the log of the actions of people and tokens.
    #[must_use]
    pub fn control_log(&self) -> PathBuf {
        self.state.join("audit").join("control.jsonl")
    }

    /// Returns the name that marks the containers of this controller; `None` if it has none yet.
    ///
    /// # Errors
    /// As of [`Layout::instance`].
    pub fn known_instance(&self) -> io::Result<Option<String>> {
        if self.state.join("instance").exists() { self.instance().map(Some) } else { Ok(None) }
    }

    /// Returns the name that marks the containers of this controller. The first use creates it.
    ///
    /// # Errors
    /// Errors of the file system, and a file with other content.
    pub fn instance(&self) -> io::Result<String> {
        let path = self.state.join("instance");
        if !path.exists() {
            // If several first starts run at once, one creates the name.
            let _first = lock::lock_logs(&self.state)?;
            if !path.exists() {
                let name = uuid::Uuid::new_v4().simple().to_string();
                file::replace(&path, &self.state.join("instance.new"), name.as_bytes())?;
            }
        }
        let name = fs::read_to_string(&path)?;
        if name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(name)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no instance name", path.display())))
        }
    }

    /// Returns the paths of one attempt of a run.
    #[must_use]
    pub fn run(&self, key: &RunKey) -> RunPaths {
        let root = self.state.join("runs").join(key.to_string());
        let sock = root.join("sock");
        RunPaths {
            socket: sock.join("llm.sock"),
            sock,
            control: root.join("conf").join("control.sock"),
            relay: root.join("conf").join("relay").join("sock"),
            relay_token: root.join("conf").join("relay.token"),
            audit_key: root.join("conf").join("audit.key"),
            conf: root.join("conf"),
            work: root.join("work"),
            audit: self.state.join("audit").join(format!("{key}.jsonl")),
            root,
        }
    }

    /// Returns the directory of all run directories.
    #[must_use]
    pub fn runs_directory(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// Returns the records of runs.
    #[must_use]
    pub fn records(&self) -> Records {
        Records::at(self.state.join("records"))
    }

    /// Returns the path of the sidecar's log while a run exists.
    #[must_use]
    pub fn sidecar_log(&self, key: &RunKey) -> PathBuf {
        self.run(key).conf.join("sidecar.log")
    }

    /// Returns the path of the prices of an upstream.
    #[must_use]
    pub fn prices(&self, upstream: &str) -> PathBuf {
        let digest = Sha256::digest(upstream.as_bytes());
        self.state.join("prices").join(format!("{}.json", hex::encode(&digest[..8])))
    }

    /// Returns the runs that have an audit file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn audited(&self) -> io::Result<Vec<RunKey>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(self.state.join("audit"))? {
            let name = entry?.file_name();
            keys.extend(name.to_str().and_then(|name| name.strip_suffix(".jsonl")?.parse().ok()));
        }
        keys.sort();
        Ok(keys)
    }

    /// Returns the runs that have a run directory, also of other users of the state directory.
    ///
    /// # Errors
    /// Errors of the file system.
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
    /// Checks that the paths of all sockets are short enough for the kernel.
    ///
    /// # Errors
    /// [`LayoutError::SocketPath`].
    pub fn check(&self) -> Result<(), LayoutError> {
        for path in [&self.socket, &self.control, &self.relay] {
            let len = path.as_os_str().len();
            if len > SOCKET_PATH_MAX {
                return Err(LayoutError::SocketPath { path: path.clone(), len });
            }
        }
        Ok(())
    }
}
