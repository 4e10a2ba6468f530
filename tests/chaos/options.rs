//! The command line, and the paths of the programs.

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::fault::ChaosFault;

/// Kills sidecars, clients, upstreams and controllers at random moments under load, and checks that the audit log has
/// lost nothing that reached the upstream.
#[derive(Debug, Clone, Copy, Parser)]
#[command(
    name = "sluice-chaos",
    after_help = "SLUICE_PROXY_BIN names the sidecar's program, SLUICE_BIN the controller's; without them, both are \
                  beside this program. Prints one line. Exits with 1 if anything was lost or is wrong: the files of \
                  that episode are kept, and their path is printed."
)]
pub(crate) struct Options {
    /// Number of kills.
    #[arg(default_value_t = 2000)]
    pub(crate) kills: u64,
    /// Number of kills that hit controllers of real runs, which need Docker and the runtime image [default: 3 of 100].
    #[arg(long, value_name = "N")]
    controllers: Option<u64>,
    /// Repeats the choices of a seed; the kernel still schedules as it does [default: random].
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..=0xFFFF_FFFF), hide_default_value = true)]
    pub(crate) seed: u64,
    /// Number of audit files that are written at the same time.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) lanes: u64,
}

impl Options {
    /// Number of kills that hit controllers, at most all.
    pub(crate) fn controllers(&self) -> u64 {
        self.controllers.unwrap_or(self.kills * 3 / 100).min(self.kills)
    }
}

/// The programs under test, and the Python program that verifies their audit files.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) sidecar: PathBuf,
    pub(crate) controller: PathBuf,
    pub(crate) page: PathBuf,
    /// This program.
    pub(crate) own: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Result<Self, ChaosFault> {
        Ok(Self {
            sidecar: program("sluice-proxy", "SLUICE_PROXY_BIN")?,
            controller: program("sluice", "SLUICE_BIN")?,
            page: Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/contract/verify_audit.py"),
            own: std::env::current_exe()?,
        })
    }
}

fn program(name: &str, variable: &str) -> Result<PathBuf, ChaosFault> {
    let path = match std::env::var_os(variable) {
        Some(path) => std::path::absolute(PathBuf::from(path))?,
        None => std::env::current_exe()?.with_file_name(name),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(ChaosFault::new(format!("no {}: build it, or name it in {variable}", path.display())))
}
