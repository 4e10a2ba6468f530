//! A run that did not start.

use serde_json::{Value, json};
use sluice_contract::exit;
use sluice_runs::report::RunReport;
use sluice_runs::verdict::ErrorCode;
use sluice_state::budget::{BudgetError, Shortfall};
use sluice_state::ledger::usd;

use super::super::error::CommandError;

/// A run that did not start.
pub(super) struct NoRun {
    pub(super) error: CommandError,
    /// The missing amount, if the account's budget has too little left.
    short: Option<Box<Shortfall>>,
}

impl NoRun {
    /// Makes the error of a run that did not start.
    pub(super) fn before(error: &dyn std::error::Error) -> Self {
        Self { error: CommandError::not_started(error), short: None }
    }

    /// Returns the JSON object of the run: the members of every run, with null for values that a run without a container
    /// lacks.
    pub(super) fn to_json(&self) -> Value {
        let CommandError { code: exit_code, message } = &self.error;
        let report = RunReport::not_started(ErrorCode::CreationFailed, message.clone(), (*exit_code).into());
        let mut object = serde_json::to_value(report).expect("plain data");
        for name in ["run_id", "attempt", "audit"] {
            object[name] = Value::Null;
        }
        if let Some(short) = &self.short {
            object["error_code"] = json!(ErrorCode::InsufficientCredits.as_str());
            object["error_message"] = json!(short.to_string());
            object["account"] = json!(short.account);
            object["asked_usd"] = json!(short.asked.map(|nanos| usd(nanos.into())));
            object["budget"] = json!(short.balance);
        }
        object
    }
}

impl From<CommandError> for NoRun {
    fn from(error: CommandError) -> Self {
        Self { error, short: None }
    }
}

impl From<BudgetError> for NoRun {
    fn from(error: BudgetError) -> Self {
        match error {
            BudgetError::Insufficient(short) => {
                let code = ErrorCode::InsufficientCredits.as_str();
                let error = CommandError { code: exit::BUDGET, message: format!("{code}: {short}") };
                Self { error, short: Some(short) }
            }
            error => Self::before(&error),
        }
    }
}
