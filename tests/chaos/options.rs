//! The command line, and where the programs are.

use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::random::any_seed;

/// Printed for `--help`.
pub(crate) const HELP: &str = "\
sluice-chaos: kills sidecars, clients, upstreams and controllers at random moments under load, and checks
that the audit log has lost nothing that reached the upstream

  sluice-chaos [KILLS]   how many [default: 2000]
  --controllers N        how many of them are controllers of real runs, which need Docker and the runtime
                         image [default: 3 of 100]
  --seed N               makes the same choices again; the kernel still schedules as it likes
  --lanes N              audit files that are written side by side [default: 3]

SLUICE_PROXY_BIN names the sidecar's program, SLUICE_BIN the controller's; else they are looked for beside this
one. Prints one line; exit 1 if anything was lost or is wrong: then what was found stays, and its place is told.
";

/// What the user asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) kills: u64,
    pub(crate) controllers: u64,
    pub(crate) seed: u64,
    pub(crate) lanes: u64,
}

impl Options {
    /// `None` means that help was asked for.
    pub(crate) fn parse(words: &[String]) -> Result<Option<Self>, Fault> {
        let (mut kills, mut controllers, mut seed, mut lanes) = (2000, None, None, 3);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = || -> Result<u64, Fault> {
                let text = rest.next().ok_or_else(|| Fault::new(format!("{word} needs a number")))?;
                text.parse().map_err(|_| Fault::new(format!("{word} needs a number, and not {text}")))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--controllers" => controllers = Some(value()?),
                "--seed" => seed = Some(value()?),
                "--lanes" => lanes = value()?.max(1),
                number => {
                    kills = number.parse().map_err(|_| Fault::new(format!("unknown option {number}; see --help")))?;
                }
            }
        }
        let controllers = controllers.unwrap_or(kills * 3 / 100).min(kills);
        Ok(Some(Self { kills, controllers, seed: seed.unwrap_or_else(any_seed), lanes }))
    }
}

/// The programs under test, and the page of Python that verifies what they write.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) sidecar: PathBuf,
    pub(crate) controller: PathBuf,
    pub(crate) page: PathBuf,
    /// This one.
    pub(crate) own: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Result<Self, Fault> {
        Ok(Self {
            sidecar: program("sluice-proxy", "SLUICE_PROXY_BIN")?,
            controller: program("sluice", "SLUICE_BIN")?,
            page: Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/contract/verify_audit.py"),
            own: std::env::current_exe()?,
        })
    }
}

fn program(name: &str, variable: &str) -> Result<PathBuf, Fault> {
    let path = match std::env::var_os(variable) {
        Some(path) => std::path::absolute(PathBuf::from(path))?,
        None => std::env::current_exe()?.with_file_name(name),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(Fault::new(format!("no {}: build it, or name it in {variable}", path.display())))
}
