//! Prints the settings of `sluice` as one JSON array: name, variables, default, meaning. `make reference` reads it.

use std::io::{self, Write};

use serde_json::{Value, json};
use sluice_controller::settings::{ITEMS, SettingItem, separator};

fn row(item: &SettingItem) -> Value {
    json!({
        "name": item.name,
        "variables": item.variables,
        "default": item.default,
        "meaning": item.help,
        "separator": separator(item.name),
    })
}

fn main() -> io::Result<()> {
    let rows: Vec<Value> = ITEMS.iter().map(row).collect();
    writeln!(io::stdout(), "{}", Value::from(rows))
}
