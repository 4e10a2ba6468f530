//! `sluice git-child`: the process that confines itself and becomes git. Sluice starts it; people do not.

use std::ffi::OsString;
use std::process::ExitCode;

use sluice_contract::text::error_chain;

use crate::git_home::CHILD;

/// Becomes git, if the arguments ask for it. This comes before any thread exists.
pub(super) fn run_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != CHILD {
        return None;
    }
    let (code, error) = sluice_git::confine(&words.collect::<Vec<OsString>>());
    super::output::say(&error_chain(&error));
    Some(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
