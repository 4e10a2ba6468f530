//! Becomes git as `sluice git-child` does.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (code, error) = sluice_git::confine(&arguments);
    let _ = writeln!(std::io::stderr(), "{error}");
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
