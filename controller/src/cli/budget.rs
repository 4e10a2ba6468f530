//! `sluice budget`: what accounts may spend.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use sluice_contract::text::{error_chain, sanitize};
use sluice_contract::{Account, units};
use sluice_state::budget::{Balance, BudgetError, BudgetHold, BudgetLog, LogError};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::usd;
use sluice_state::store::Store;

use super::receipts::open;
use super::{Common, FAILED, Failed, USAGE, print, print_json, say};

const EXAMPLES: &str = "\
Examples:
  sluice budget set acct-1 25       from now on acct-1 may spend 25 dollars
  sluice budget add acct-1 10       and 10 more
  sluice budget show --json         how all accounts with a budget stand
  sluice budget remove acct-1       no limit any more
  sluice budget confirm             after a lost database and a lost log: these budgets hold, and no others";

/// Says what accounts may spend. An account without a budget may spend anything.
///
/// A run is admitted if what it may cost is left: its --max-cost-usd, or else hold_usd. That is held until its receipts
/// are in the ledger, and what they come to is spent.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// From now on the account may spend this much, whatever it had spent or held before; runs under way keep their holds
    Set {
        /// The billing account
        account: Account,
        /// Dollars, such as 0.25
        #[arg(value_parser = units::nano_usd)]
        usd: i64,
        #[command(flatten)]
        common: Common,
    },
    /// The account may spend so much more
    Add {
        /// The billing account
        account: Account,
        /// Dollars, such as 0.25
        #[arg(value_parser = units::nano_usd)]
        usd: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Shows what was granted, spent and held since it was set, and what is left
    Show {
        /// This account alone
        account: Option<Account>,
        /// One JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// The account may spend anything again
    Remove {
        /// The billing account
        account: Account,
        #[command(flatten)]
        common: Common,
    },
    /// Says that the budgets that show lists are all that hold, and begins their log anew: after both database and log were
    /// lost, or when the log was damaged
    Confirm {
        #[command(flatten)]
        common: Common,
    },
}

/// An account with a budget.
#[derive(Serialize)]
struct Shown {
    account: String,
    #[serde(flatten)]
    balance: Balance,
    holds: Vec<BudgetHold>,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let (Command::Set { common, .. }
    | Command::Add { common, .. }
    | Command::Show { common, .. }
    | Command::Remove { common, .. }
    | Command::Confirm { common }) = &flags.command;
    let settings = common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let failed = |error: BudgetError| {
        let code = if matches!(error, BudgetError::NoBudget(_) | BudgetError::TooMuch) { USAGE } else { FAILED };
        Failed::new(code, &error)
    };
    let store = match &flags.command {
        // The first thing that an operator does may be to set a budget.
        Command::Set { .. } => {
            let layout = Layout::open(&settings.state_dir).map_err(|error| Failed::new(FAILED, &error))?;
            Store::open(&layout.database()).map_err(|error| Failed::new(FAILED, &error))?
        }
        // Elsewhere, nobody would have one.
        _ => open(&settings.state_dir)?,
    };
    let layout = Layout::at(&settings.state_dir);
    let keys = Keys::open(&settings.state_dir).map_err(|error| Failed::new(FAILED, &error))?;
    let log = BudgetLog { layout: &layout, keys: &keys, store: &store };
    let is_lost = match (&flags.command, log.inspect().await) {
        (Command::Confirm { .. }, _) | (_, Ok(None)) => false,
        // The database has all budgets, or tells of all that it has.
        (Command::Show { .. }, Ok(Some(error)) | Err(error)) => {
            say(&error_chain(&error));
            false
        }
        (_, Err(error @ LogError::Lost(_))) => {
            say(&error_chain(&error));
            true
        }
        (_, Ok(Some(error)) | Err(error)) => return Err(failed(error.into())),
    };
    match &flags.command {
        Command::Set { account, usd, .. } => store.set_budget(account, *usd).await.map_err(failed)?,
        Command::Add { account, usd, .. } => store.add_budget(account, *usd).await.map_err(failed)?,
        Command::Remove { account, .. } => {
            store.remove_budget(account).await.map_err(failed)?;
            print(&format!("{account} has no budget any more\n"));
        }
        Command::Show { account, json, .. } => {
            show(&store, account.as_ref(), *json).await.map_err(failed)?;
        }
        Command::Confirm { .. } => {
            if let Some(aside) = log.confirm().await.map_err(|error| failed(error.into()))? {
                print(&format!("the log of before is {}\n", aside.display()));
            }
            show(&store, None, false).await.map_err(failed)?;
        }
    }
    let changes = matches!(flags.command, Command::Set { .. } | Command::Add { .. } | Command::Remove { .. });
    if changes
        && !is_lost
        && let Some(error) = log.synchronize().await.map_err(|error| failed(error.into()))?
    {
        return Err(failed(error.into()));
    }
    if let Command::Set { account, .. } | Command::Add { account, .. } = &flags.command {
        show(&store, Some(account), false).await.map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(store: &Store, account: Option<&Account>, as_json: bool) -> Result<(), BudgetError> {
    let budgets = store.budgets(account).await?;
    if let (true, Some(account)) = (budgets.is_empty(), account) {
        return Err(BudgetError::NoBudget(account.clone()));
    }
    let shown: Vec<_> =
        budgets.into_iter().map(|(account, balance, holds)| Shown { account, balance, holds }).collect();
    if as_json {
        print_json(&serde_json::json!({ "budgets": shown }));
    } else {
        print(&table(&shown));
    }
    Ok(())
}

fn table(budgets: &[Shown]) -> String {
    let mut text =
        format!("{:<32} {:>16} {:>16} {:>16} {:>16}\n", "account", "granted, $", "spent, $", "held, $", "left, $");
    for Shown { account, balance, holds } in budgets {
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
