//! Prints the reasons of refusals as one JSON array: name in the code, word, status. `make reference` reads it.

use std::io::{self, Write};

use serde_json::{Value, json};
use sluice_proxy::refusal::Reason;

fn row(reason: &Reason) -> Value {
    json!({ "name": format!("{reason:?}"), "word": reason.as_str(), "status": reason.status().as_u16() })
}

fn main() -> io::Result<()> {
    let rows: Vec<Value> = Reason::ALL.iter().map(row).collect();
    writeln!(io::stdout(), "{}", Value::from(rows))
}
