//! `sluice ledger import`: audit files of sidecars that ran alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use sluice_contract::text::{error_chain, sanitize};
use sluice_state::budget::BudgetLog;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::{AuditArchive, ImportError, ImportedFile, LateOutcome, UnsignedFiles};

use super::super::audit::{WORST_FIRST, given_keys};
use super::super::database::{lock_files, open_or_create};
use super::super::error::CommandError;
use super::super::host_args::HostArgs;
use super::super::object::CommandObject;
use super::super::output::{OutputFormat, print, print_object, say};

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Audit files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A public key that signed them: 64 hex digits, or a file of them; repeat for more. It is trusted from then on, as after
    /// sluice audit import-key
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    /// Also import files that no key has signed as a whole: you vouch for what they hold now
    #[arg(long)]
    unsigned: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &ImportArgs) -> Result<ExitCode, CommandError> {
    let given = given_keys(&args.key)?;
    let state = args.host.state_dir()?;
    // An import may be the first command on a host.
    let store = open_or_create(&state)?;
    let _lock = lock_files(&state)?;
    let layout = Layout::at(&state);
    let keys = Keys::open(&state).map_err(|error| CommandError::failed(&error))?;
    // Done before the first audit file is added: otherwise budgets would seem to be lost.
    let budgets = BudgetLog { layout: &layout, keys: &keys, store: &store };
    if let Some(damage) = budgets.synchronize().await.map_err(|error| CommandError::failed(&error))? {
        say(&error_chain(&damage));
    }
    let known = keys.public().map_err(|error| CommandError::failed(&error))?;
    let known = [known, given.clone()].concat();
    let archive = AuditArchive { layout: &layout, store: &store, keys: &known };
    let unsigned = if args.unsigned { UnsignedFiles::Vouched } else { UnsignedFiles::Refused };
    let (mut objects, mut worst) = (Vec::new(), None);
    for file in &args.files {
        let imported = archive.import(file, &keys, &given, unsigned).await;
        if let Err(error) = &imported {
            worst = worse(worst, CommandError::new(error.exit_code(), error));
        }
        objects.push(report(file, imported, args.json.into()));
    }
    if args.json {
        print_object(&CommandObject::of(worst.as_ref(), json!({ "files": objects })));
    }
    Ok(worst.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
}

/// Returns the worse error, in the order of `sluice audit verify`; of two with the same code, the first one.
fn worse(before: Option<CommandError>, error: CommandError) -> Option<CommandError> {
    let rank = |error: &CommandError| WORST_FIRST.iter().position(|code| *code == error.code);
    Some(before.filter(|before| rank(before) <= rank(&error)).unwrap_or(error))
}

/// Prints the result for one file, or returns its JSON object.
fn report(file: &Path, imported: Result<ImportedFile, ImportError>, format: OutputFormat) -> Value {
    match (imported, format) {
        (Ok(imported), OutputFormat::Json) => serde_json::to_value(imported).expect("plain data"),
        (Err(error), OutputFormat::Json) => {
            json!({ "file": file.display().to_string(), "error_message": error_chain(&error) })
        }
        (Ok(imported), OutputFormat::Text) => {
            print(&line(&imported));
            Value::Null
        }
        (Err(error), OutputFormat::Text) => {
            say(&error_chain(&error));
            Value::Null
        }
    }
}

fn line(imported: &ImportedFile) -> String {
    let ImportedFile { file, run, already_imported, complete, key_id, added, late } = imported;
    let done = if *already_imported {
        "was imported before, and adds nothing".to_owned()
    } else {
        format!("{} receipts, {} entries added", added.receipts, added.entries)
    };
    let end = if *complete { "" } else { "; the file has no end" };
    let trust = key_id.as_ref().map_or("not signed; you vouch for it".to_owned(), |id| format!("signed by {id}"));
    let mut text = sanitize(&format!("{}: run {run}: {done}; {trust}{end}", file.display())) + "\n";
    for LateOutcome { receipt, status } in late {
        text += &sanitize(&format!("{receipt} stays {status}: the end that the file has came too late"));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use sluice_contract::exit;

    use super::*;

    /// Bug: a file without a signature hid an altered one.
    #[test]
    fn an_altered_file_is_the_worst() {
        let error = |code: u8, message: &str| CommandError { code, message: message.to_owned() };
        for (codes, expected) in [
            ([exit::UNKNOWN_KEY, exit::FAILED], (exit::FAILED, "second")),
            ([exit::FAILED, exit::UNREADABLE], (exit::FAILED, "first")),
            ([exit::UNKNOWN_KEY, exit::UNREADABLE], (exit::UNREADABLE, "second")),
            ([exit::FAILED, exit::FAILED], (exit::FAILED, "first")),
        ] {
            let worst = worse(worse(None, error(codes[0], "first")), error(codes[1], "second"));
            let worst = worst.expect("there is one");
            assert_eq!((worst.code, worst.message.as_str()), expected, "{codes:?}");
        }
    }
}
