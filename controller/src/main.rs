//! `sluice`: the controller's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_controller::cli::main()
}
