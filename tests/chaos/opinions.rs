//! Second opinions on a file: the command line's verifier, and `verify_audit.py`.

use std::path::Path;

use sluice_contract::{PublicKey, Verdict};

use crate::fault::ChaosFault;
use crate::options::Programs;
use crate::process::{clean, output};

/// Fails unless both say the same of a file as the contract does.
pub(crate) async fn agree(
    programs: &Programs,
    file: &Path,
    key: &PublicKey,
    verdict: &Verdict,
) -> Result<(), ChaosFault> {
    let mut sluice = clean(&programs.controller);
    sluice.args(["audit", "verify", "--key", &key.to_string()]);
    let mut page = clean("python3");
    page.arg(&programs.page).args(["--key", &key.to_string()]);
    for command in [&mut sluice, &mut page] {
        same(command.arg(file), verdict).await?;
    }
    Ok(())
}

/// Fails unless this verifier ends with the code of that verdict.
pub(crate) async fn same(verifier: &mut tokio::process::Command, verdict: &Verdict) -> Result<(), ChaosFault> {
    let said = output(verifier).await?;
    if said.status.code() == Some(i32::from(verdict.exit_code())) {
        return Ok(());
    }
    let program = verifier.as_std().get_program().to_string_lossy().into_owned();
    let text = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).join(" ");
    Err(ChaosFault::new(format!("{program} ends with {}: {text}; the contract says {verdict}", said.status)))
}
