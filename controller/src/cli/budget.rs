//! `sluice budget`: limits the spending of accounts.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_contract::{Account, exit, units};
use sluice_state::budget::{Balance, BudgetError, BudgetHold, BudgetLog, LogError};
use sluice_state::control_log::ControlEntry;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::usd;
use sluice_state::store::{Store, now_us};

use super::database::{open, open_for_queries, open_or_create};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::operator_record::{self, RecordedOperation};
use super::output::{OutputFormat, print, print_json, say, terminal_width};
use super::table::{Column, Table};

mod history;

const EXAMPLES: &str = "\
Examples:
  sluice budget set acct-1 25       from now on acct-1 may spend 25 dollars
  sluice budget add acct-1 10       and 10 more
  sluice budget show --json         the state of all accounts with a budget
  sluice budget remove acct-1       acct-1 has no limit any more
  sluice budget history acct-1      who changed its budget, when and how
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
        /// Print one JSON object
        #[arg(long)]
        json: bool,
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
        /// Print one JSON object
        #[arg(long)]
        json: bool,
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
    /// Lists the changes of budgets, oldest first: when, by whom, and what was set, added or removed
    History {
        /// The billing account [default: all accounts]
        account: Option<Account>,
        /// Print one JSON object
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Print comma-separated values with a head line
        #[arg(long)]
        csv: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Removes the budget of an account, which then has no limit
    Remove {
        /// The billing account
        account: Account,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Confirms that only the budgets that show lists apply, and starts a new log: after the loss of both database and log,
    /// or if the log is damaged
    Confirm {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
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

/// State of the log of budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStatus {
    /// The command may write to it, or does not need it.
    Usable,
    /// The log is lost, so changes are not written to it.
    Lost,
}

pub(super) async fn run(args: &BudgetArgs) -> Result<ExitCode, CommandError> {
    let command = &args.command;
    let state = &command.host().state_dir()?;
    let store = match command {
        // Setting a budget may be the first command on a host.
        BudgetCommand::Set { .. } => open_or_create(state)?,
        BudgetCommand::Show { .. } | BudgetCommand::History { .. } => open_for_queries(state)?,
        // A new database has no budgets.
        _ => open(state)?,
    };
    if let BudgetCommand::History { account, json, csv, .. } = command {
        return show_history(&store, account.as_ref(), (*json, *csv)).await;
    }
    let layout = Layout::at(state);
    let keys = match command {
        BudgetCommand::Show { .. } => Keys::at(state),
        _ => Keys::open(state).map_err(|error| CommandError::failed(&error))?,
    };
    let log = BudgetLog { layout: &layout, keys: &keys, store: &store };
    let status = check_log(command, &log).await?;
    match command {
        BudgetCommand::Set { account, usd, json, .. } => {
            let replaced = store.budgets(Some(account)).await?;
            let before = replaced.first().map(|(_, balance, _)| amounts(balance));
            let recorded = begin(state, "budget.set", Some(account), before, Some(*usd))?;
            recorded.end(store.set_budget(account, *usd).await.map_err(CommandError::from))?;
            for (_, balance, _) in replaced {
                say(&format!("the budget of {account} begins anew; it replaces one with {balance}"));
            }
            after_change(&log, status, account).await?;
            show(&store, Some(account), (*json).into()).await?;
        }
        BudgetCommand::Add { account, usd, json, .. } => {
            let before = before(&store, account).await?;
            let recorded = begin(state, "budget.add", Some(account), before, Some(*usd))?;
            recorded.end(store.add_budget(account, *usd).await.map_err(CommandError::from))?;
            after_change(&log, status, account).await?;
            show(&store, Some(account), (*json).into()).await?;
        }
        BudgetCommand::Remove { account, json, .. } => {
            let before = before(&store, account).await?;
            let recorded = begin(state, "budget.remove", Some(account), before, None)?;
            recorded.end(store.remove_budget(account).await.map_err(CommandError::from))?;
            let followed = after_change(&log, status, account).await;
            match OutputFormat::from(*json) {
                OutputFormat::Json if followed.is_err() => {}
                OutputFormat::Json => print_json(&json!({ "removed": account.to_string() })),
                OutputFormat::Text => print(&format!("{account} has no budget any more, so nothing limits it\n")),
            }
            followed?;
        }
        BudgetCommand::History { .. } => {}
        BudgetCommand::Show { account, json, .. } => show(&store, account.as_ref(), (*json).into()).await?,
        BudgetCommand::Confirm { json, .. } => confirm(state, &log, *json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_history(
    store: &Store,
    account: Option<&Account>,
    (as_json, as_csv): (bool, bool),
) -> Result<ExitCode, CommandError> {
    let events = store.budget_history(account).await?;
    match (as_json, as_csv) {
        (true, _) => print_json(&json!({ "changes": events })),
        (false, true) => print(&history::csv(&events)),
        (false, false) => print(&history::table(&events)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Begins a new log of budgets with the budgets of the database.
async fn confirm(state: &Path, log: &BudgetLog<'_>, as_json: bool) -> Result<(), CommandError> {
    let recorded = begin(state, "budget.confirm", None, None, None)?;
    let confirmed = log.confirm().await.map_err(|error| CommandError::from(BudgetError::from(error)));
    let aside = recorded.end(confirmed)?;
    let budgets = budgets(log.store, None).await?;
    if as_json {
        let previous = aside.as_ref().map(|aside| aside.display().to_string());
        print_json(&json!({ "budgets": budgets, "previous_log": previous }));
    } else {
        aside.iter().for_each(|aside| print(&format!("the previous log is {}\n", aside.display())));
        print(&table(&budgets));
    }
    Ok(())
}

/// Returns the amounts of a budget before a change; none if the account has no budget.
async fn before(store: &Store, account: &Account) -> Result<Option<Value>, CommandError> {
    Ok(store.budgets(Some(account)).await?.first().map(|(_, balance, _)| amounts(balance)))
}

fn amounts(balance: &Balance) -> Value {
    json!({ "granted_usd": usd(balance.granted), "spent_usd": usd(balance.spent) })
}

/// Records a change of a budget before it takes effect. `nanos` is the amount that is set or added.
fn begin(
    state: &Path,
    operation: &str,
    account: Option<&Account>,
    before: Option<Value>,
    nanos: Option<i64>,
) -> Result<RecordedOperation, CommandError> {
    let entry = ControlEntry {
        operation: operation.to_owned(),
        object: account.map(Account::to_string),
        before,
        after: nanos.map(|nanos| json!({ "usd": usd(nanos.into()) })),
        ..ControlEntry::default()
    };
    operator_record::begin(state, entry)
}

/// Compares log and database before a command. A fault stops changes, but not `show` and `confirm`.
async fn check_log(command: &BudgetCommand, log: &BudgetLog<'_>) -> Result<LogStatus, CommandError> {
    match (command, log.inspect().await) {
        (BudgetCommand::Confirm { .. }, _) | (_, Ok(None)) => Ok(LogStatus::Usable),
        // `show` lists the budgets of the database, without the log.
        (BudgetCommand::Show { .. }, Ok(Some(error)) | Err(error)) => {
            say(&error_chain(&error));
            Ok(LogStatus::Usable)
        }
        (_, Err(error @ LogError::Lost(_))) => {
            say(&error_chain(&error));
            Ok(LogStatus::Lost)
        }
        (_, Ok(Some(error)) | Err(error)) => Err(BudgetError::from(error).into()),
    }
}

/// Writes a change of the database to the log, and reports approvals that may fit now.
async fn after_change(log: &BudgetLog<'_>, status: LogStatus, account: &Account) -> Result<(), CommandError> {
    follow(log, status).await?;
    let announced = log.store.announce_approvals(account.as_str(), now_us()).await;
    announced.map(drop).map_err(|error| CommandError::failed(&error))
}

/// Writes a change of the database to the log.
async fn follow(log: &BudgetLog<'_>, status: LogStatus) -> Result<(), CommandError> {
    if status == LogStatus::Lost {
        return Ok(());
    }
    match log.synchronize().await {
        Ok(None) => Ok(()),
        Ok(Some(error)) | Err(error) => Err(BudgetError::from(error).into()),
    }
}

impl From<BudgetError> for CommandError {
    fn from(error: BudgetError) -> Self {
        let is_usage =
            matches!(error, BudgetError::NoBudget(_) | BudgetError::NothingToRemove(_) | BudgetError::TooMuch);
        Self::new(if is_usage { exit::USAGE } else { exit::FAILED }, &error)
    }
}

impl BudgetCommand {
    fn host(&self) -> &HostArgs {
        match self {
            Self::Set { host, .. }
            | Self::Add { host, .. }
            | Self::Show { host, .. }
            | Self::History { host, .. }
            | Self::Remove { host, .. }
            | Self::Confirm { host, .. } => host,
        }
    }
}

/// Returns the budget of an account, or all budgets.
async fn budgets(store: &Store, account: Option<&Account>) -> Result<Vec<AccountBudget>, CommandError> {
    let budgets = store.budgets(account).await?;
    if let (true, Some(account)) = (budgets.is_empty(), account) {
        return Err(BudgetError::NoBudget(account.clone()).into());
    }
    Ok(budgets.into_iter().map(|(account, balance, holds)| AccountBudget { account, balance, holds }).collect())
}

async fn show(store: &Store, account: Option<&Account>, format: OutputFormat) -> Result<(), CommandError> {
    let shown = budgets(store, account).await?;
    if format == OutputFormat::Json {
        print_json(&json!({ "budgets": shown }));
    } else {
        print(&table(&shown));
    }
    Ok(())
}

fn table(budgets: &[AccountBudget]) -> String {
    let columns = [
        Column::text("account").cut(),
        Column::number("granted, $").optional(1),
        Column::number("spent, $").optional(3),
        Column::number("held, $").optional(2),
        Column::number("left, $"),
    ];
    let mut lines = Table::new(terminal_width(), columns);
    for AccountBudget { account, balance, holds } in budgets {
        let Balance { granted, spent, held } = *balance;
        lines.row([account.to_string(), usd(granted), usd(spent), usd(held), usd(balance.left())]);
        for hold in holds {
            lines.note(&format!("  {} holds ${} of ${}: {}", hold.run, hold.held_usd, hold.hold_usd, hold.reason));
        }
    }
    lines.take()
}
