//! `sluice schema`: prints the JSON Schema of a command's object.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::error::CommandError;
use super::output::{print, print_object};

/// Prints the JSON Schema of the object that a command prints with --json; without a name, the names.
///
/// docs/reference/json.md says which members stay.
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// The name of the schema, such as run or audit-verify
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

macro_rules! schemas {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../docs/reference/json/", $name, ".json")))),*]
    };
}

/// Definitions that the schemas share.
const COMMON: &str = include_str!("../../../docs/reference/json/common.json");
const SCHEMAS: [(&str, &str); 52] = schemas![
    "agent" "agents" "answer" "apply" "approvals" "approve" "audit-approvals" "audit-hash" "audit-keys" "audit-show" "audit-verify"
    "backup" "budget" "budget-history" "cancel" "compare" "config-show" "cp" "deny" "diff" "events" "exec" "fail" "inspect"
    "interrupt" "ledger-backup" "ledger-import" "ledger-rebuild" "ledger-void" "merge" "messages" "open" "pause" "pr" "preflight" "prune"
    "ps" "push" "receipts" "reconcile" "restore" "resume" "retry" "run" "run-detached" "send" "sweep" "token" "top" "usage"
    "wait" "webhook"
];

pub(super) fn run(args: &SchemaArgs) -> Result<ExitCode, CommandError> {
    match &args.name {
        None => SCHEMAS.iter().for_each(|(name, _)| print(&format!("{name}\n"))),
        Some(name) => {
            let unknown = || CommandError::wrong_usage(format!("there is no schema {name}; sluice schema lists them"));
            let (_, schema) = SCHEMAS.iter().find(|(known, _)| known == name).ok_or_else(unknown)?;
            print_object(&bundled(schema));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a schema together with the definitions that it shares with others.
fn bundled(schema: &str) -> Value {
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("a test reads the schemas");
    let mut whole = parse(&schema.replace("common.json#/$defs/", "#/$defs/"));
    whole["$defs"] = parse(COMMON)["$defs"].take();
    whole
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_published_schema_is_known_and_whole() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json");
        for file in std::fs::read_dir(directory).expect("it is in the repository").flatten() {
            let name = file.file_name().to_string_lossy().replace(".json", "");
            assert!(name == "common" || SCHEMAS.iter().any(|(known, _)| *known == name), "{name}");
        }
        for (name, schema) in SCHEMAS {
            let whole = bundled(schema).to_string();
            assert!(whole.contains("\"account_budget\"") && !whole.contains("common.json"), "{name}: {whole}");
        }
    }
}
