//! The list of changes of budgets, as a table or as comma-separated values.

use sluice_state::budget::BudgetEvent;

use super::super::output::{dash, terminal_width};
use super::super::receipts::quoted;
use super::super::table::{Column, Table};

/// Head line. The names are stable, and say the unit.
const CSV_HEAD: &str = "made_at,account,change,amount_usd,made_by\r\n";

/// Returns the list as comma-separated values.
pub(super) fn csv(events: &[BudgetEvent]) -> String {
    CSV_HEAD.to_owned() + &events.iter().map(csv_row).collect::<String>()
}

/// Returns the list as a table.
pub(super) fn table(events: &[BudgetEvent]) -> String {
    let columns = [
        Column::text("time (UTC)").optional(1),
        Column::text("account").cut(),
        Column::text("change"),
        Column::number("amount, $"),
        Column::text("by").cut().optional(2),
    ];
    let mut table = Table::new(terminal_width(), columns);
    for BudgetEvent { account, change, amount_usd, made_at, made_by } in events {
        let (amount, by) = (dash(amount_usd.as_ref()), dash(made_by.as_ref()));
        table.row([made_at.clone(), account.clone(), change.to_string(), amount, by]);
    }
    table.take()
}

fn csv_row(event: &BudgetEvent) -> String {
    let BudgetEvent { account, change, amount_usd, made_at, made_by } = event;
    let [amount, by] = [amount_usd, made_by].map(|text| text.clone().unwrap_or_default());
    format!("{made_at},{},{change},{amount},{}\r\n", quoted(account), quoted(&by))
}
