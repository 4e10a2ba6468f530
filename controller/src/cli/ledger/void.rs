//! `sluice ledger void`: gives up the cost of a call.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::exit;
use sluice_contract::text::sanitize;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::{VOIDED, VoidError, void};

use super::super::database::open;
use super::super::error::CommandError;
use super::super::host_args::HostArgs;
use super::super::output::{print, print_json};

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct VoidArgs {
    /// The receipt: RUN/ATTEMPT/CALL, as sluice receipts --json has it in source_reference
    receipt: String,
    /// The reason that its cost will never be known; it is recorded, with your user name
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &VoidArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    let (layout, store) = (Layout::at(&state), open(&state)?);
    let keys = Keys::open(&state).map_err(|error| CommandError::failed(&error))?;
    let before = void(&layout, &keys, &store, &args.receipt, &args.reason).await.map_err(|error| {
        let is_usage = matches!(error, VoidError::Unknown(_) | VoidError::Decided { .. } | VoidError::Reason(_));
        CommandError::new(if is_usage { exit::USAGE } else { exit::FAILED }, &error)
    })?;
    let released_usd = before.reserved_usd.as_deref().filter(|_| before.holds_budget());
    if args.json {
        print_json(&json!({
            "receipt": before.source_reference,
            "status_before": before.status,
            "status": "voided",
            "null_reason": VOIDED,
            "released_usd": released_usd,
            "reason": args.reason,
        }));
    } else {
        let released = released_usd.map_or_else(String::new, |usd| format!("; ${usd} are released"));
        print(&format!("{} is voided{}\n", sanitize(&before.source_reference), sanitize(&released)));
    }
    Ok(ExitCode::SUCCESS)
}
