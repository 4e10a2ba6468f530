//! The paths of the contenders' programs.

use std::path::{Path, PathBuf};

use crate::Outcome;

/// Returns the path of the sidecar: named by the environment, beside this program, or in cargo's directory.
pub(crate) fn sidecar() -> Outcome<PathBuf> {
    ours("sluice-proxy", "SLUICE_PROXY_BIN")
}

/// Returns the path of the controller, which is looked for in the same places.
pub(crate) fn controller() -> Outcome<PathBuf> {
    ours("sluice", "SLUICE_BIN")
}

fn ours(name: &str, variable: &str) -> Outcome<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        let named = std::path::absolute(PathBuf::from(named))?;
        return if named.is_file() {
            Ok(named)
        } else {
            Err(format!("{variable} names no file: {}", named.display()).into())
        };
    }
    let beside = std::env::current_exe()?.with_file_name(name);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release").join(name);
    [beside, usual].into_iter().find(|path| path.is_file()).ok_or_else(|| {
        format!("no {name}: build it with `cargo build --release --bins`, or name it in {variable}").into()
    })
}

/// Returns the path of a program of the system, also in directories outside an ordinary user's `PATH`.
pub(crate) fn installed(name: &str) -> Outcome<PathBuf> {
    ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no {name}: run tests/setup/bench.sh, or leave it out with --contenders").into())
}
