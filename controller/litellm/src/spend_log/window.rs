//! Time windows of requests to the spend log.
//!
//! Pure. LiteLLM counts its pages anew at each request while rows are added. So a window is halved until its rows fit on
//! one page, and no second page is requested as long as a window can be halved.

/// A time window in seconds since 1970, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are descriptions")]
pub struct TimeWindow {
    pub from: i64,
    pub to: i64,
}

/// Maximum difference in seconds between LiteLLM's clock, which dates rows, and ours, which dates receipts.
pub const SKEW_S: i64 = 600;

const US: i64 = 1_000_000;

impl TimeWindow {
    /// Returns the window of all rows that can belong to a call at this time, in microseconds since 1970.
    #[must_use]
    pub fn around(us: i64) -> Self {
        Self::over(us, us)
    }

    /// Returns the window of all rows that can belong to calls of this period, in microseconds since 1970.
    #[must_use]
    pub fn over(from_us: i64, to_us: i64) -> Self {
        Self { from: from_us.div_euclid(US) - SKEW_S, to: to_us.div_euclid(US) + 1 + SKEW_S }
    }

    /// Returns both halves; they share one second, so that no row is between them. None if the window cannot be halved:
    /// LiteLLM takes whole seconds.
    #[must_use]
    pub fn halves(self) -> Option<[Self; 2]> {
        let middle = self.from + (self.to - self.from) / 2;
        (middle > self.from).then_some([Self { from: self.from, to: middle }, Self { from: middle, to: self.to }])
    }
}

/// Returns windows that cover the same time and do not overlap.
#[must_use]
pub fn merged(mut windows: Vec<TimeWindow>) -> Vec<TimeWindow> {
    windows.sort_unstable();
    let mut merged: Vec<TimeWindow> = Vec::new();
    for window in windows {
        match merged.last_mut() {
            Some(last) if window.from <= last.to => last.to = last.to.max(window.to),
            _ => merged.push(window),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_covers_the_difference_of_two_clocks() {
        assert_eq!(TimeWindow::around(1_000_999_999), TimeWindow { from: 400, to: 1601 });
        assert_eq!(TimeWindow::over(1_000_000_000, 2_000_000_001), TimeWindow { from: 400, to: 2601 });
    }

    #[test]
    fn halves_have_no_gap_between_them() {
        assert_eq!(
            TimeWindow { from: 0, to: 10 }.halves(),
            Some([TimeWindow { from: 0, to: 5 }, TimeWindow { from: 5, to: 10 }])
        );
        assert_eq!(
            TimeWindow { from: 0, to: 3 }.halves(),
            Some([TimeWindow { from: 0, to: 1 }, TimeWindow { from: 1, to: 3 }])
        );
        assert_eq!(TimeWindow { from: 7, to: 8 }.halves(), None);
        assert_eq!(TimeWindow { from: 7, to: 7 }.halves(), None);
    }

    #[test]
    fn windows_that_touch_are_merged() {
        let window = |from, to| TimeWindow { from, to };
        let rows = [
            (vec![], vec![]),
            (vec![window(5, 9), window(1, 5)], vec![window(1, 9)]),
            (vec![window(1, 9), window(2, 3), window(11, 12)], vec![window(1, 9), window(11, 12)]),
        ];
        for (given, want) in rows {
            assert_eq!(merged(given), want);
        }
    }
}
