//! `sluice budget`: limits the spending of accounts.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use sluice_contract::text::{error_chain, sanitize};
use sluice_contract::{Account, exit, units};
use sluice_state::budget::{Balance, BudgetError, BudgetHold, BudgetLog, LogError};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::usd;
use sluice_state::store::Store;

use super::database::{open, open_or_create};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{OutputFormat, print, print_json, say};

const EXAMPLES: &str = "\
Examples:
  sluice budget set acct-1 25       from now on acct-1 may spend 25 dollars
  sluice budget add acct-1 10       and 10 more
  sluice budget show --json         the state of all accounts with a budget
  sluice budget remove acct-1       acct-1 has no limit any more
  sluice budget confirm             after the loss of database and log: only these budgets apply";

/// Limits the spending of accounts. An account without a budget has no limit.
///
/// A run is admitted if the budget has its maximum cost left: its --max-cost-usd, or else hold_usd. That amount is held
/// until the receipts of the run are in the ledger; then their sum is spent.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct BudgetArgs {
    #[command(subcommand)]
    command: BudgetCommand,
}

#[derive(Debug, Subcommand)]
enum BudgetCommand {
    /// Sets the budget of an account; earlier spending does not count, and runs under way keep their holds
    Set {
        /// The billing account
        account: Account,
        /// Dollars, such as 0.25
        #[arg(value_parser = units::nano_usd)]
        usd: i64,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Adds to the budget of an account
    Add {
        /// The billing account
        account: Account,
        /// Dollars, such as 0.25
        #[arg(value_parser = units::nano_usd)]
        usd: i64,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Shows the amounts that are granted, spent, held and left since the budget was set
    Show {
        /// The billing account [default: all accounts with a budget]
        account: Option<Account>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Removes the budget of an account, which then has no limit
    Remove {
        /// The billing account
        account: Account,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Confirms that only the budgets that show lists apply, and starts a new log: after the loss of both database and log,
    /// or if the log is damaged
    Confirm {
        #[command(flatten)]
        host: HostArgs,
    },
}

/// The budget of an account.
#[derive(Serialize)]
struct AccountBudget {
    account: String,
    #[serde(flatten)]
    balance: Balance,
    holds: Vec<BudgetHold>,
}

pub(super) async fn run(args: &BudgetArgs) -> Result<ExitCode, CommandError> {
    let (BudgetCommand::Set { host, .. }
    | BudgetCommand::Add { host, .. }
    | BudgetCommand::Show { host, .. }
    | BudgetCommand::Remove { host, .. }
    | BudgetCommand::Confirm { host }) = &args.command;
    let settings = host.settings()?;
    let failed = |error: BudgetError| {
        let code =
            if matches!(error, BudgetError::None(_) | BudgetError::TooMuch) { exit::USAGE } else { exit::FAILED };
        CommandError::new(code, &error)
    };
    let store = match &args.command {
        // Setting a budget may be the first command on a host.
        BudgetCommand::Set { .. } => open_or_create(&settings.host.state_dir)?,
        // A new database has no budgets.
        _ => open(&settings.host.state_dir)?,
    };
    let layout = Layout::at(&settings.host.state_dir);
    let keys = Keys::open(&settings.host.state_dir).map_err(|error| CommandError::failed(&error))?;
    let log = BudgetLog { layout: &layout, keys: &keys, store: &store };
    let is_lost = match (&args.command, log.look().await) {
        (BudgetCommand::Confirm { .. }, _) | (_, Ok(None)) => false,
        // The list is complete as far as the database is.
        (BudgetCommand::Show { .. }, Ok(Some(error)) | Err(error)) => {
            say(&error_chain(&error));
            false
        }
        (_, Err(error @ LogError::Lost(_))) => {
            say(&error_chain(&error));
            true
        }
        (_, Ok(Some(error)) | Err(error)) => return Err(failed(error.into())),
    };
    match &args.command {
        BudgetCommand::Set { account, usd, .. } => store.set_budget(account, *usd).await.map_err(failed)?,
        BudgetCommand::Add { account, usd, .. } => store.add_budget(account, *usd).await.map_err(failed)?,
        BudgetCommand::Remove { account, .. } => {
            store.remove_budget(account).await.map_err(failed)?;
            print(&format!("{account} has no budget any more\n"));
        }
        BudgetCommand::Show { account, json, .. } => {
            show(&store, account.as_ref(), (*json).into()).await.map_err(failed)?;
        }
        BudgetCommand::Confirm { .. } => {
            if let Some(aside) = log.confirm().await.map_err(|error| failed(error.into()))? {
                print(&format!("the previous log is {}\n", aside.display()));
            }
            show(&store, None, OutputFormat::Text).await.map_err(failed)?;
        }
    }
    let changes =
        matches!(args.command, BudgetCommand::Set { .. } | BudgetCommand::Add { .. } | BudgetCommand::Remove { .. });
    if changes
        && !is_lost
        && let Some(error) = log.follow().await.map_err(|error| failed(error.into()))?
    {
        return Err(failed(error.into()));
    }
    if let BudgetCommand::Set { account, .. } | BudgetCommand::Add { account, .. } = &args.command {
        show(&store, Some(account), OutputFormat::Text).await.map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(store: &Store, account: Option<&Account>, format: OutputFormat) -> Result<(), BudgetError> {
    let budgets = store.budgets(account).await?;
    if let (true, Some(account)) = (budgets.is_empty(), account) {
        return Err(BudgetError::None(account.clone()));
    }
    let shown: Vec<_> =
        budgets.into_iter().map(|(account, balance, holds)| AccountBudget { account, balance, holds }).collect();
    if format == OutputFormat::Json {
        print_json(&serde_json::json!({ "budgets": shown }));
    } else {
        print(&table(&shown));
    }
    Ok(())
}

fn table(budgets: &[AccountBudget]) -> String {
    let mut text =
        format!("{:<32} {:>16} {:>16} {:>16} {:>16}\n", "account", "granted, $", "spent, $", "held, $", "left, $");
    for AccountBudget { account, balance, holds } in budgets {
        let Balance { granted, spent, held } = *balance;
        text += &format!(
            "{account:<32} {:>16} {:>16} {:>16} {:>16}\n",
            usd(granted),
            usd(spent),
            usd(held),
            usd(balance.left())
        );
        for hold in holds {
            text +=
                &format!("  {} holds ${} of ${}: {}\n", hold.run, hold.held_usd, hold.hold_usd, sanitize(&hold.reason));
        }
    }
    text
}
