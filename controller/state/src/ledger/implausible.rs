//! Costs that cannot be true: far above what was reserved for their call.
//!
//! An answer states its own cost, so one false number could use up the budget of an account. Such a cost is not posted: the
//! call counts as reserved, and its run fails.
//!
//! Pure.

use std::collections::HashMap;

use sluice_contract::Usd;
use sluice_contract::reader::Record;
use sluice_contract::record::{Control, Intent, Outcome};

/// Multiple of a call's reservation above which a cost is implausible.
pub const IMPLAUSIBLE_FACTOR: i64 = 10;
/// Minimum amount in nano-USD with which a reservation counts that is not an upper bound. A cap of a cent must not turn
/// a true cost of dollars into an implausible one, which the account would not pay.
pub const GUESS_FLOOR: i64 = 1_000_000_000;
/// Reason word for an implausible cost, which counts as unknown.
pub const IMPLAUSIBLE: &str = "implausible";

/// A cost that is not posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImplausibleCost {
    /// Id of the call.
    pub call_id: String,
    /// Dollars, as the answer states them.
    pub cost_usd: String,
    /// Dollars that were reserved for the call.
    pub reserved_usd: String,
    /// Highest cost that is plausible, in dollars.
    pub plausible_usd: String,
}

/// Checks the costs of an audit file, record by record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CostBounds {
    /// The cap of the run in nano-USD, with the raises so far.
    cap: Option<i64>,
    /// Reservation of each open call, by its number.
    open: HashMap<u64, CallReservation>,
}

/// Reservation of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CallReservation {
    /// Dollars, as the intent states them; 0 if it states none.
    usd: String,
    nanos: i64,
    /// True if the reservation is an upper bound of the cost.
    is_strict: bool,
}

impl CostBounds {
    /// Takes the next record of a file. Returns its cost if the cost is implausible.
    pub fn take(&mut self, record: &Record) -> Option<ImplausibleCost> {
        match record {
            Record::Open(open) => self.cap = nanos_of(open.limits.max_cost_usd.as_deref()),
            Record::Intent(intent) => {
                self.open.insert(intent.call, CallReservation::of(intent));
            }
            Record::Outcome(outcome) => return self.open.remove(&outcome.call)?.implausible(outcome, self.cap),
            Record::Control(control) => self.cap = raised(self.cap, control),
            // The open calls of the earlier sidecar get no outcome.
            Record::Recovered(_) => self.open.clear(),
            Record::Refused(_)
            | Record::Epoch(_)
            | Record::Held(_)
            | Record::Released(_)
            | Record::Close(_)
            | Record::Other(_) => {}
        }
        None
    }
}

impl CallReservation {
    fn of(intent: &Intent<'_>) -> Self {
        let nanos = nanos_of(intent.reserved_usd.as_deref()).unwrap_or(0);
        let usd = intent.reserved_usd.as_deref().unwrap_or("0").to_owned();
        Self { usd, nanos, is_strict: intent.reserved_strict == Some(true) && nanos > 0 }
    }

    /// Returns the highest plausible cost of the call in nano-USD; none if nothing limits it.
    ///
    /// A reservation that is not an upper bound, or that is missing because the price is 0 or unknown, says little about the
    /// cost: then the whole cap is the measure, or [`GUESS_FLOOR`] if that is more. Without a cap, no budget is at risk.
    fn plausible_nanos(&self, cap: Option<i64>) -> Option<i64> {
        let measure = if self.is_strict { self.nanos } else { self.nanos.max(cap?).max(GUESS_FLOOR) };
        Some(measure.saturating_mul(IMPLAUSIBLE_FACTOR))
    }

    /// Returns the cost of the call, if it is implausible. `cap` is the cap of the run at the end of the call.
    fn implausible(self, outcome: &Outcome<'_>, cap: Option<i64>) -> Option<ImplausibleCost> {
        let cost_usd = outcome.cost_usd.as_deref()?;
        let plausible = self.plausible_nanos(cap)?;
        (nanos_of(Some(cost_usd))? > plausible).then(|| ImplausibleCost {
            call_id: outcome.call_id.to_string(),
            cost_usd: cost_usd.to_owned(),
            reserved_usd: self.usd,
            plausible_usd: Usd::from_nanos(plausible).to_string(),
        })
    }
}

/// Returns the cap after a record of a change. As in the sidecar, a raise lowers no cap, and gives none to a run without one.
fn raised(cap: Option<i64>, control: &Control<'_>) -> Option<i64> {
    let to = nanos_of(control.to.max_cost_usd.as_ref().map(|usd| &*usd.0));
    cap.map(|cap| cap.max(to.unwrap_or(cap)))
}

fn nanos_of(usd: Option<&str>) -> Option<i64> {
    Usd::parse(usd?).ok().map(|usd| usd.to_nanos())
}

impl ImplausibleCost {
    /// Describes the cost for people, with what to do.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { call_id, cost_usd, reserved_usd, plausible_usd } = self;
        format!(
            "the answer to call {call_id} states a cost of ${cost_usd}, which is above ${plausible_usd}, the most that is \
             plausible with ${reserved_usd} reserved; it is not posted, and the account is charged with the reservation: \
             compare the prices of Sluice with those of LiteLLM, and look the call up with sluice reconcile --run RUN"
        )
    }
}

#[cfg(test)]
mod tests {
    use sluice_contract::reader::lines;

    use super::*;

    /// Calls with `reserved_usd` 0.001 and the cap 0.5.
    const BOUNDED: &str = include_str!("../../../../proxy/contract/tests/golden/bounded.jsonl");

    fn found(text: &str) -> Option<ImplausibleCost> {
        let mut bounds = CostBounds::default();
        lines(text.as_bytes()).flatten().find_map(|line| bounds.take(&line.record))
    }

    #[test]
    fn a_cost_above_ten_reservations_is_implausible() {
        const STRICT: &str = r#""reserved_strict":true"#;
        const GUESS: &str = r#""reserved_strict":false"#;
        for (strict, reserved, cost, plausible) in [
            (STRICT, "0.001", "0.01", None),
            (STRICT, "0.001", "0.010000001", Some("0.01")),
            (STRICT, "0.001", "9000000000", Some("0.01")),
            // A price of 0 reserves nothing, and a guess takes what is left.
            (STRICT, "0", "9.9", None),
            (STRICT, "0", "10.1", Some("10")),
            (GUESS, "0.001", "9.9", None),
            (GUESS, "0.001", "10.1", Some("10")),
            (GUESS, "3", "29.9", None),
            (GUESS, "3", "30.1", Some("30")),
        ] {
            let text = BOUNDED.replace(STRICT, strict).replace("0.00000585", cost);
            let text = text.replace(r#""reserved_usd":"0.001""#, &format!(r#""reserved_usd":"{reserved}""#));
            let found = found(&text).map(|found| (found.cost_usd, found.reserved_usd, found.plausible_usd));
            let expected = plausible.map(|plausible| (cost.to_owned(), reserved.to_owned(), plausible.to_owned()));
            assert_eq!(found, expected, "{strict} {reserved} {cost}");
        }
    }

    #[test]
    fn a_call_without_a_reservation_is_measured_by_the_cap() {
        let dear = BOUNDED.replace("0.00000585", "1000");
        assert!(found(&dear).is_some());
        let unpriced = dear.replace(r#""reserved_usd":"0.001""#, r#""reserved_usd":null"#);
        let measured = |text: &str| found(text).map(|found| (found.reserved_usd, found.plausible_usd));
        assert_eq!(measured(&unpriced), Some(("0".to_owned(), "10".to_owned())));
        let without_both = unpriced.replace(r#""reserved_strict":true,"#, "");
        assert_eq!(measured(&without_both), Some(("0".to_owned(), "10".to_owned())));
        let guess = dear.replace(r#""reserved_strict":true"#, r#""reserved_strict":false"#);
        assert_eq!(found(&guess.replace(r#""max_cost_usd":"0.5""#, r#""max_cost_usd":null"#)), None);
    }
}
