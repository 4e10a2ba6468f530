//! `sluice audit`: verifies and shows audit files.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_contract::PublicKey;
use sluice_state::control_log::ControlEntry;
use sluice_state::keys::Keys;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::operator_record;
use super::output::{OutputFormat, print, print_json};
use super::parse::reason;

mod approvals;
mod file_verdict;
mod files;
mod keys;
mod show;
mod tail;
mod verify;

use files::{find_of_run, last_line, read, unreadable};
pub(super) use keys::given_keys;
use keys::{own_keys, print_keys};
pub(super) use verify::WORST_FIRST;
use verify::{TrustSources, verify_all};

const EXAMPLES: &str = "\
Examples:
  sluice audit verify r20261120-163914-1df9af22    a run of this host, with its keys and its database
  sluice audit verify --key sluice.pub *.jsonl     files from elsewhere, signed by that key
  sluice audit verify control                      the log of what people and tokens did
  sluice audit show r20261120-163914-1df9af22      its calls, as a table
  sluice audit approvals --since 30d               what people decided about raised caps
  sluice audit keys > sluice.pub                   the keys that an auditor needs for signatures";

const EXIT_CODES: &str = "\
Exit codes of verify: 0 complete and authentic; 1 tampered, or not signed by a key of --key;
2 usage; 3 authentic, and incomplete; 4 no such file or run, unreadable, or not an audit file;
5 valid, but of a run that this database does not know; 6 valid, but signed by a key that this
host does not know, or not signed.
Without a key and without a database, authentic only means that the file is consistent with itself.
Exit codes of tail: 0 closed; 3 no sidecar writes it any more; 1 an invalid line; 4 no such file or
run, or unreadable.";

/// Verifies and shows audit files.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Checks files line by line: chain, order, sums, signature, lines that the database has seen
    Verify {
        /// Audit files, or runs of this host
        #[arg(required = true, value_name = "FILE|RUN")]
        files: Vec<String>,
        /// A public key: 64 hex digits, or a file of them; repeat for more [default: the keys of the state
        /// directory; for a file elsewhere, only if it names one of them as its signer]
        #[arg(long, value_name = "KEY")]
        key: Vec<String>,
        /// The database that has seen the files while they were written [default: for files in the state directory,
        /// its own]
        #[arg(long, value_name = "DATABASE")]
        against: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Shows the calls of a file, and their sums
    Show {
        /// An audit file, or a run of this host
        #[arg(value_name = "FILE|RUN")]
        file: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Follows a run until its audit log is closed
    Tail {
        /// An audit file, or a run of this host
        #[arg(value_name = "FILE|RUN")]
        file: String,
        /// Print the lines unchanged: one JSON object on each
        #[arg(long)]
        json: bool,
    },
    /// Prints the number and the hash of a file's last line, to be stored on another host
    Hash {
        /// An audit file, or a run of this host
        #[arg(value_name = "FILE|RUN")]
        file: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Lists what the system asked people about runs of this host, who decided, on which digest, when, from where, and what
    /// followed
    Approvals(approvals::AuditApprovalsArgs),
    /// Prints the public keys of this host, and those that it has imported; on a terminal with their ids
    Keys {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Trusts the public keys of another host: its files are then verified and billed here
    ImportKey {
        /// A public key: 64 hex digits, or a file of them
        #[arg(required = true)]
        key: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Makes a new key for signatures; the old key stays trusted, so that old files stay verifiable, and the database
    /// detects entries that a thief signs with a stolen key
    RotateKey {
        /// The reason, for the control log
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl AuditArgs {
    /// Returns whether the command prints lines of a file.
    pub(super) fn is_tail(&self) -> bool {
        matches!(self.command, AuditCommand::Tail { .. })
    }
}

pub(super) async fn run(args: &AuditArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    let state = state.as_path();
    match &args.command {
        AuditCommand::Verify { files, key, against, json } => {
            let trusted = TrustSources { state, keys: given_keys(key)?, against: against.as_deref() };
            verify_all(files, &trusted, (*json).into()).await
        }
        AuditCommand::Show { file, json } => {
            let path = find_of_run(state, file).await?;
            show::show(&path, &read(&path)?, (*json).into())
        }
        AuditCommand::Tail { file, json } => tail::tail(&find_of_run(state, file).await?, (*json).into()).await,
        AuditCommand::Hash { file, json } => {
            let path = find_of_run(state, file).await?;
            let (seq, head) = last_line(&read(&path)?)?;
            match OutputFormat::from(*json) {
                OutputFormat::Json => {
                    print_json(&json!({ "file": path, "seq": seq, "hash": head.to_string() }));
                }
                OutputFormat::Text => print(&format!("{seq}:{head}\n")),
            }
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::Approvals(flags) => approvals::approvals(state, flags).await,
        AuditCommand::Keys { json } => {
            let keys = own_keys(state)?;
            let public = keys.public().map_err(|error| unreadable(&error))?;
            // A copy of a state directory without its private key has public keys all the same.
            print_keys(&public, keys.current().ok().as_ref(), (*json).into());
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::ImportKey { key, json } => {
            own_keys(state)?;
            let keys = Keys::open(state).map_err(|error| CommandError::failed(&error))?;
            let given = given_keys(key)?;
            let ids: Vec<_> = given.iter().map(PublicKey::id).collect();
            let after = Some(json!({ "key_ids": ids }));
            let entry = ControlEntry { operation: "audit.import_key".to_owned(), after, ..ControlEntry::default() };
            let recorded = operator_record::begin(state, entry)?;
            let imported =
                given.iter().try_for_each(|key| keys.import(key)).map_err(|error| CommandError::failed(&error));
            recorded.end(imported)?;
            print_keys(&given, keys.current().ok().as_ref(), (*json).into());
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::RotateKey { reason, json } => {
            own_keys(state)?;
            let keys = Keys::open(state).map_err(|error| CommandError::failed(&error))?;
            let before = keys.current().ok().map(|key| json!({ "key_id": key.id() }));
            let reason = Some(reason.clone());
            let entry =
                ControlEntry { operation: "audit.rotate_key".to_owned(), before, reason, ..ControlEntry::default() };
            let recorded = operator_record::begin(state, entry)?;
            let key = recorded.end(keys.rotate().map_err(|error| CommandError::failed(&error)))?;
            print_keys(std::slice::from_ref(&key), Some(&key), (*json).into());
            Ok(ExitCode::SUCCESS)
        }
    }
}
