//! Sums over the calls of a run so far, which grow with the event at the end of each call.

use rusqlite::{Transaction, params};
use sluice_contract::Usd;

use super::{CallData, EventSource, NewLoggedEvent};

/// Type of the event at the end of a call.
const CALL: &str = "llm.call";
/// Highest sum in nano-USD. More is counted as this much.
const NANO_MAX: i64 = 9_000_000_000_000_000_000;

/// Sums over the calls of all attempts that have ended. They are for people; receipts are the bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallSums {
    /// Number of calls.
    pub calls: u64,
    /// Number of calls of unknown cost.
    pub unknown_costs: u64,
    /// Known costs in nano-USD; none without any.
    pub nano_usd: Option<i64>,
}

/// Adds a new event to the sums of its run, if it is the end of a call that the daemon saw.
pub(super) fn add(transaction: &Transaction<'_>, event: &NewLoggedEvent) -> rusqlite::Result<()> {
    let Some(run_id) = &event.sandbox_id else { return Ok(()) };
    if event.event_type != CALL || event.source != EventSource::System {
        return Ok(());
    }
    let nanos = known_nanos(&event.event_data);
    transaction
        .prepare_cached(
            "UPDATE sandboxes SET calls = calls + 1, unknown_costs = unknown_costs + (?2 IS NULL),
                 cost_nano = iif(?2 IS NULL, cost_nano, min(coalesce(cost_nano, 0) + ?2, ?3))
             WHERE run_id = ?1",
        )?
        .execute(params![run_id, nanos, NANO_MAX])?;
    Ok(())
}

fn known_nanos(data: &str) -> Option<i64> {
    let call = CallData::read(data)?;
    let usd = Usd::parse(&call.known_cost()?.usd).ok().filter(Usd::is_countable)?;
    Some(usd.to_nanos().min(NANO_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_amount_is_a_known_cost() {
        for (data, nanos) in [
            (r#"{"cost":{"known":{"usd":"0.0214","source":"header"}}}"#, Some(21_400_000)),
            (r#"{"cost":{"known":{"usd":"0"}}}"#, Some(0)),
            (r#"{"cost":{"unknown":{"reason":"no_price"}}}"#, None),
            (r#"{"cost":{"known":{"usd":"-1"}}}"#, None),
            (r#"{"cost":null}"#, None),
            ("7", None),
        ] {
            assert_eq!(known_nanos(data), nanos, "{data}");
        }
    }
}
