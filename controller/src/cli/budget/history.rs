//! The list of changes of budgets, as a table or as comma-separated values.

use sluice_contract::text::sanitize;
use sluice_state::budget::BudgetEvent;

use super::super::output::dash;
use super::super::receipts::quoted;

/// Head line. The names are stable, and say the unit.
const CSV_HEAD: &str = "made_at,account,change,amount_usd,made_by\r\n";

/// Returns the list as comma-separated values.
pub(super) fn csv(events: &[BudgetEvent]) -> String {
    CSV_HEAD.to_owned() + &events.iter().map(csv_row).collect::<String>()
}

/// Returns the list as a table.
pub(super) fn table(events: &[BudgetEvent]) -> String {
    head() + &events.iter().map(row).collect::<String>()
}

fn head() -> String {
    format!("{:<20} {:<32} {:<8} {:>16}  {}\n", "time (UTC)", "account", "change", "amount, $", "by")
}

fn row(event: &BudgetEvent) -> String {
    let BudgetEvent { account, change, amount_usd, made_at, made_by } = event;
    let by = sanitize(made_by.as_deref().unwrap_or("-"));
    format!("{made_at:<20} {account:<32} {change:<8} {:>16}  {by}\n", dash(amount_usd.as_ref()))
}

fn csv_row(event: &BudgetEvent) -> String {
    let BudgetEvent { account, change, amount_usd, made_at, made_by } = event;
    let [amount, by] = [amount_usd, made_by].map(|text| text.clone().unwrap_or_default());
    format!("{made_at},{},{change},{amount},{}\r\n", quoted(account), quoted(&by))
}
