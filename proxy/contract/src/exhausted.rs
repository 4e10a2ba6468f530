//! Budgets of LiteLLM that refused calls of a run, from its audit log alone.
//!
//! Pure.

use std::fmt;

use serde::Serialize;

use crate::budget::{BudgetRefusal, owner_in_words};
use crate::record::OptionalText;
use crate::text::sanitize;
use crate::{AuditLog, Usd};

/// A budget at LiteLLM that refused calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exhausted {
    /// Owner of the budget: `key`, `team`, `customer` and so on.
    pub of: String,
    /// Number of calls that it refused.
    pub calls: u64,
    /// Amount of the budget that LiteLLM last counted as spent or reserved; null if the message does not have it.
    pub spent_usd: Option<String>,
    /// Limit of the budget; null where the message does not have it.
    pub limit_usd: Option<String>,
}

/// Returns the budgets that refused calls, in the order of their first refusal.
#[must_use]
pub fn exhausted(log: &AuditLog) -> Vec<Exhausted> {
    let mut budgets: Vec<Exhausted> = Vec::new();
    for outcome in log.calls().iter().filter_map(|call| call.outcome.as_ref()) {
        let Some(of) = &outcome.budget_of else { continue };
        let text = |name: &Option<OptionalText<'_>>| name.as_ref().map(|name| name.0.to_string());
        let (spent_usd, limit_usd) = (text(&outcome.budget_spent_usd), text(&outcome.budget_limit_usd));
        match budgets.iter_mut().find(|budget| budget.of == of.0) {
            Some(budget) => {
                budget.calls += 1;
                (budget.spent_usd, budget.limit_usd) = (spent_usd, limit_usd);
            }
            None => budgets.push(Exhausted { of: of.0.to_string(), calls: 1, spent_usd, limit_usd }),
        }
    }
    budgets
}

impl From<&BudgetRefusal> for Exhausted {
    fn from(budget: &BudgetRefusal) -> Self {
        let usd = |nanos: Option<i64>| nanos.map(|nanos| Usd::from_nanos(nanos).to_string());
        Self { of: budget.owner.to_owned(), calls: 1, spent_usd: usd(budget.spent), limit_usd: usd(budget.limit) }
    }
}

/// States that the budget has no room left.
impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its budget for {} has no room left", owner_in_words(&self.of))?;
        match (&self.spent_usd, &self.limit_usd) {
            (Some(spent), Some(limit)) => write!(f, " (${spent} spent or reserved of ${limit})"),
            _ => Ok(()),
        }
    }
}

impl Exhausted {
    /// Returns a message with the refusals and what to do.
    #[must_use]
    pub fn advice(&self) -> String {
        let calls = if self.calls == 1 { "a call".to_owned() } else { format!("{} calls", self.calls) };
        sanitize(&format!(
            "LiteLLM refused {calls}: {self}; raise that budget at LiteLLM, or wait until it is reset; sluice preflight shows it"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(calls: u64, spent: Option<&str>) -> Exhausted {
        let text = |text: &str| text.to_owned();
        Exhausted { of: text("customer"), calls, spent_usd: spent.map(text), limit_usd: Some(text("0.25")) }
    }

    #[test]
    fn a_budget_shows_amounts_if_both_are_known() {
        let whole =
            "its budget for the customer (the run's account) has no room left ($0.3 spent or reserved of $0.25)";
        assert_eq!(budget(1, Some("0.3")).to_string(), whole);
        assert!(budget(1, Some("0.3")).advice().starts_with(&format!("LiteLLM refused a call: {whole}; ")));
        let bare = budget(2, None);
        assert!(bare.to_string().ends_with("no room left"), "{bare}");
        assert!(bare.advice().starts_with("LiteLLM refused 2 calls: "), "{}", bare.advice());
    }
}
