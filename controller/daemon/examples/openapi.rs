//! Prints the OpenAPI document of the daemon. `make reference` reads it.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let document = serde_json::to_string(&sluice_daemon::api::openapi())?;
    writeln!(io::stdout(), "{document}")
}
