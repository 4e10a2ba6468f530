//! The database of a real LiteLLM: a Postgres of its own, on a unix socket, that ends with the test process.
//!
//! `tests/setup/spenddb.sh` has made a cluster with LiteLLM's tables; each one here is a copy of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::leash::Leash;

const NAME: &str = "litellm";

/// A running Postgres with the tables of LiteLLM.
#[derive(Debug)]
pub struct SpendDb {
    server: Leash,
}

impl SpendDb {
    /// Starts a copy of the cluster.
    ///
    /// # Errors
    /// The missing part, or the log of a failed start.
    pub(crate) async fn start() -> Result<Self, String> {
        let programs = programs()?;
        let ready = |log: &str| log.contains("database system is ready to accept connections").then_some(());
        let (server, ()) = Leash::start(&["--interrupt"], |directory| postgres(&programs, directory), ready).await?;
        Ok(Self { server })
    }

    /// The environment that makes LiteLLM use it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let text = |path: PathBuf| path.display().to_string();
        let engine = text(cache().join("engine.mjs"));
        vec![
            // LiteLLM requires this variable; the engine uses the two below.
            ("DATABASE_URL", format!("postgresql://sluice@localhost/{NAME}")),
            ("SPENDDB_SOCKET", self.server.directory().display().to_string()),
            ("SPENDDB_NAME", NAME.to_owned()),
            ("PYTHONPATH", text(cache().join("python"))),
            ("PRISMA_QUERY_ENGINE_BINARY", engine.clone()),
            ("PRISMA_SCHEMA_ENGINE_BINARY", engine),
            ("DISABLE_SCHEMA_UPDATE", "true".to_owned()),
            ("CHECKPOINT_DISABLE", "1".to_owned()),
        ]
    }

    /// Returns the rows of SQL statements, one a line, with their columns separated by `|`.
    ///
    /// # Panics
    /// With the database's error.
    pub fn sql(&self, statements: &str) -> Vec<String> {
        let Output { status, stdout, stderr } = Command::new(programs().expect("it was started").join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"])
            .args(["--username", "sluice", "--dbname", NAME, "--command", statements, "--host"])
            .arg(self.server.directory())
            .output()
            .expect("psql is beside postgres");
        assert!(status.success(), "{statements}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).lines().map(str::to_owned).collect()
    }
}

/// Returns the command of Postgres, which runs as the user `nobody` if we are root: Postgres refuses to run as root.
fn postgres(programs: &Path, directory: &Path) -> Command {
    let data = directory.join("data");
    let copied = Command::new("cp").arg("-a").arg(cache().join("cluster")).arg(&data).status();
    assert!(copied.is_ok_and(|status| status.success()), "the cluster of the tests can be copied");
    let mut command = if nix::unistd::Uid::effective().is_root() {
        fs::set_permissions(directory, Permissions::from_mode(0o777)).expect("the directory is ours");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(programs.join("postgres"));
        command
    } else {
        Command::new(programs.join("postgres"))
    };
    command.arg("-D").arg(data).arg("-k").arg(directory);
    // The data need not survive a power cut.
    command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "full_page_writes=off"]);
    command
}

fn cache() -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/spenddb");
    cache.canonicalize().unwrap_or(cache)
}

/// Returns Debian's directory of the server's programs, in the version that made the cluster.
fn programs() -> Result<PathBuf, String> {
    let missing = "the spend database of the tests is missing: run `make test`, or tests/setup/spenddb.sh";
    if !cache().join(".stamp").exists() {
        return Err(missing.to_owned());
    }
    let version = fs::read_to_string(cache().join("cluster/PG_VERSION"));
    let version = version.map_err(|error| format!("{missing} ({error})"))?;
    Ok(Path::new("/usr/lib/postgresql").join(version.trim()).join("bin"))
}
