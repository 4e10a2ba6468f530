//! The outgoing body as ranges of the original one, so that nothing that stays is copied.
//!
//! Pure.

/// The outgoing body: `prefix`, then the ranges of the original text, each after a comma, then `}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyEdit {
    /// `{` and the members that the sidecar sets.
    pub prefix: String,
    /// Ranges of whole members, from and to.
    pub keep: Vec<(u64, u64)>,
    /// Ranges inside `keep` that do not go upstream, in their order.
    pub cut: Vec<(u64, u64)>,
}

impl BodyEdit {
    /// Returns the ranges that go upstream, in their order, without the cuts. The flag is true if a range begins with
    /// a member of its own, and so follows a comma.
    pub fn ranges(&self) -> impl Iterator<Item = (bool, u64, u64)> {
        self.keep.iter().flat_map(move |&(from, to)| {
            let first = self.cut.partition_point(|cut| cut.1 <= from);
            let inner = self.cut[first..].iter().take_while(move |cut| cut.0 < to);
            let ends = inner.clone().map(|cut| cut.0).chain([to]);
            let starts = [from].into_iter().chain(inner.map(|cut| cut.1));
            starts.zip(ends).enumerate().map(|(i, (from, to))| (i == 0, from, to))
        })
    }

    /// Cuts a whole value, for another one to replace it.
    pub(super) fn cut_value(&mut self, range: (u64, u64)) {
        self.cut.retain(|cut| cut.1 <= range.0 || range.1 <= cut.0);
        let place = self.cut.partition_point(|cut| cut.1 <= range.0);
        self.cut.insert(place, range);
    }
}

/// Returns the text that replaces the value that was cut out where a range ends.
#[must_use]
pub fn put_at(put: &[(u64, String)], end: u64) -> Option<&str> {
    put.iter().find(|(at, _)| *at == end).map(|(_, text)| &**text)
}
