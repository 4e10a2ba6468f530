//! Selection of receipts.

use rusqlite::ToSql;

/// Selection of receipts. All members that are set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Run id.
    pub run_id: Option<String>,
    /// Attempt of the run.
    pub attempt: Option<u32>,
    /// Account that pays.
    pub account: Option<String>,
    /// Owner of the run. A run of `sluice run` has none.
    pub owner: Option<String>,
    /// Requested model; empty for calls without one.
    pub model: Option<String>,
    /// Earliest arrival of the receipt or of one of its entries, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// Time before which the receipt or one of its entries arrived, in microseconds since 1970.
    pub until_us: Option<i64>,
    /// Earliest time of the call, in microseconds since 1970.
    pub from_us: Option<i64>,
    /// Latest time of the call, in microseconds since 1970.
    pub to_us: Option<i64>,
    /// Only calls that have ended and have an unknown cost.
    pub open: bool,
    /// Names of receipts.
    pub references: Option<Vec<String>>,
}

impl Filter {
    /// Returns the condition in SQL, and its values.
    pub(super) fn clause(&self) -> (String, Vec<Box<dyn ToSql>>) {
        let mut clauses = vec!["1".to_owned()];
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        if let Some(run_id) = &self.run_id {
            add(&mut clauses, &mut values, "run_id = ?", Box::new(run_id.clone()));
        }
        if let Some(attempt) = self.attempt {
            add(&mut clauses, &mut values, "attempt = ?", Box::new(attempt));
        }
        if let Some(account) = &self.account {
            add(&mut clauses, &mut values, "account = ?", Box::new(account.clone()));
        }
        if let Some(owner) = &self.owner {
            add(&mut clauses, &mut values, OF_OWNER, Box::new(owner.clone()));
        }
        if let Some(model) = &self.model {
            add(&mut clauses, &mut values, "ifnull(model, '') = ?", Box::new(model.clone()));
        }
        match (self.since_us, self.until_us) {
            (None, None) => {}
            (since, until) => {
                values.push(Box::new(since.unwrap_or(i64::MIN)));
                values.push(Box::new(until.unwrap_or(i64::MAX)));
                let [since, until] = [values.len() - 1, values.len()];
                let arrived =
                    |table: &str| format!("({table}.arrived_us >= ?{since} AND {table}.arrived_us < ?{until})");
                clauses.push(format!(
                    "({} OR EXISTS (SELECT 1 FROM entries AS late WHERE late.receipt = receipts.id AND {}))",
                    arrived("receipts"),
                    arrived("late")
                ));
            }
        }
        if let Some(from) = self.from_us {
            add(&mut clauses, &mut values, "receipts.origin_us >= ?", Box::new(from));
        }
        if let Some(to) = self.to_us {
            add(&mut clauses, &mut values, "receipts.origin_us <= ?", Box::new(to));
        }
        if let Some(references) = &self.references {
            let names = serde_json::to_string(references).expect("plain data");
            add(
                &mut clauses,
                &mut values,
                "receipts.source_reference IN (SELECT value FROM json_each(?))",
                Box::new(names),
            );
        }
        if self.open {
            // Selected by the entries that leave a receipt open, because those are fewer.
            clauses.push(OPEN.to_owned());
        }
        (clauses.join(" AND "), values)
    }
}

/// Adds a condition, whose `?` becomes the number of its value.
fn add(clauses: &mut Vec<String>, values: &mut Vec<Box<dyn ToSql>>, clause: &str, value: Box<dyn ToSql>) {
    values.push(value);
    clauses.push(clause.replace('?', &format!("?{}", values.len())));
}

const OF_OWNER: &str = "run_id IN (SELECT run_id FROM sandboxes WHERE owner = ?)";
const OPEN: &str = "receipts.id IN (SELECT receipt FROM entries WHERE status IN ('pending_cost', 'unknown')) \
                    AND NOT EXISTS (SELECT 1 FROM entries AS done WHERE done.receipt = receipts.id \
                                    AND done.status NOT IN ('pending_cost', 'unknown'))";
