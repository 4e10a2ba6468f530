//! The outgoing body as ranges of the original one, so that nothing that stays is copied.
//!
//! Pure.

/// `prefix`, then the ranges of the original text, each after a comma, then `}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyEdit {
    /// `{` and our own members.
    pub prefix: String,
    /// Offsets from and to, of whole members.
    pub keep: Vec<(u64, u64)>,
    /// Ranges inside of those that do not go upstream, in their order.
    pub cut: Vec<(u64, u64)>,
}

impl BodyEdit {
    /// The ranges that go upstream, in their order, without what is cut out of them. The flag says whether a range begins
    /// with a member of its own, and so follows a comma.
    pub fn ranges(&self) -> impl Iterator<Item = (bool, u64, u64)> {
        self.keep.iter().flat_map(move |&(from, to)| {
            let first = self.cut.partition_point(|cut| cut.1 <= from);
            let inner = self.cut[first..].iter().take_while(move |cut| cut.0 < to);
            let ends = inner.clone().map(|cut| cut.0).chain([to]);
            let starts = [from].into_iter().chain(inner.map(|cut| cut.1));
            starts.zip(ends).enumerate().map(|(i, (from, to))| (i == 0, from, to))
        })
    }

    /// Takes a whole value out, for another to be put in its place.
    pub(super) fn cut_value(&mut self, range: (u64, u64)) {
        self.cut.retain(|cut| cut.1 <= range.0 || range.1 <= cut.0);
        let place = self.cut.partition_point(|cut| cut.1 <= range.0);
        self.cut.insert(place, range);
    }
}

/// What is put where this range ends.
#[must_use]
pub fn put_at(put: &[(u64, String)], end: u64) -> Option<&str> {
    put.iter().find(|(at, _)| *at == end).map(|(_, text)| &**text)
}
