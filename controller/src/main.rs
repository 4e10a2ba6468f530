//! `sluice`: hardens the process, and runs the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_controller::harden::process();
    sluice_controller::cli::main()
}
