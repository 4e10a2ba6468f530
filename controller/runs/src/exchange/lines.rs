//! The changed lines between two texts, at a bounded cost.
//!
//! Pure. No algorithm for good differences is fast for every text, and a run chooses its texts. So large texts are
//! cut at the lines that occur exactly once in both. The parts between are compared only while the budget lasts; a part that
//! is not compared becomes one change.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput, Token};

/// Maximum number of lines, of both texts together, that are compared without a cut.
const PART_MAX: usize = 4096;

/// Work that the comparison of all files of a patch may take: the sum of the squares of the numbers of compared lines.
#[derive(Debug)]
pub(super) struct LineBudget(u64);

impl Default for LineBudget {
    fn default() -> Self {
        Self(1 << 34)
    }
}

impl LineBudget {
    /// Returns a budget for this much work.
    pub(super) fn of(work: u64) -> Self {
        Self(work)
    }

    fn take(&mut self, lines: usize) -> bool {
        let cost = (lines as u64).saturating_mul(lines as u64);
        let left = self.0.checked_sub(cost).filter(|_| lines <= PART_MAX);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Returns the changes, in their order.
pub(super) fn changed_lines(old: &[&[u8]], new: &[&[u8]], budget: &mut LineBudget) -> Vec<Hunk> {
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let mut comparison = Comparison { old, new, input: &input, budget, hunks: Vec::new() };
    let (before, after) = comparison.without_ends(0..old.len(), 0..new.len());
    let cuts = if before.len() + after.len() > PART_MAX { comparison.cuts(&before, &after) } else { Vec::new() };
    let mut at = (before.start, after.start);
    for (one, other) in cuts {
        comparison.part(at.0..one, at.1..other);
        at = (one + 1, other + 1);
    }
    comparison.part(at.0..before.end, at.1..after.end);
    comparison.hunks
}

struct Comparison<'a> {
    old: &'a [&'a [u8]],
    new: &'a [&'a [u8]],
    input: &'a InternedInput<&'a [u8]>,
    budget: &'a mut LineBudget,
    hunks: Vec<Hunk>,
}

impl Comparison<'_> {
    /// Returns the parts without the lines that are equal at the start and at the end.
    fn without_ends(&self, mut before: Range<usize>, mut after: Range<usize>) -> (Range<usize>, Range<usize>) {
        let (old, new) = (&self.input.before, &self.input.after);
        while !before.is_empty() && !after.is_empty() && old[before.start] == new[after.start] {
            before.start += 1;
            after.start += 1;
        }
        while !before.is_empty() && !after.is_empty() && old[before.end - 1] == new[after.end - 1] {
            before.end -= 1;
            after.end -= 1;
        }
        (before, after)
    }

    /// Returns the longest sequence of lines that occur exactly once in both parts and have the same order in both.
    fn cuts(&self, before: &Range<usize>, after: &Range<usize>) -> Vec<(usize, usize)> {
        let [old, new] = [(&self.input.before, before), (&self.input.after, after)]
            .map(|(tokens, range)| places(tokens, range, self.input.interner.num_tokens() as usize));
        let pairs = before.clone().filter_map(|line| {
            let token = self.input.before[line].0 as usize;
            let (LineCount::Once(_), LineCount::Once(other)) = (old[token], new[token]) else { return None };
            Some((line, other as usize))
        });
        longest_increasing(&pairs.collect::<Vec<_>>())
    }

    /// Compares two parts.
    fn part(&mut self, before: Range<usize>, after: Range<usize>) {
        let (before, after) = self.without_ends(before, after);
        let is_compared = !before.is_empty() && !after.is_empty() && self.budget.take(before.len() + after.len());
        if !is_compared {
            self.push(before, after);
            return;
        }
        // A separate table: the table of the whole texts would be cleared for each part.
        let mut input = InternedInput::default();
        input.update_before(self.old[before.clone()].iter().copied());
        input.update_after(self.new[after.clone()].iter().copied());
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        for hunk in diff.hunks() {
            let shift = |range: &Range<u32>, by: usize| range.start as usize + by..range.end as usize + by;
            self.push(shift(&hunk.before, before.start), shift(&hunk.after, after.start));
        }
    }

    /// Adds a change, as a part of the last one if nothing is between them.
    fn push(&mut self, before: Range<usize>, after: Range<usize>) {
        let narrow = |range: Range<usize>| {
            let [start, end] = [range.start, range.end].map(|line| u32::try_from(line).unwrap_or(u32::MAX));
            start..end
        };
        let (before, after) = (narrow(before), narrow(after));
        match self.hunks.last_mut() {
            _ if before.is_empty() && after.is_empty() => {}
            Some(last) if last.before.end == before.start && last.after.end == after.start => {
                last.before.end = before.end;
                last.after.end = after.end;
            }
            _ => self.hunks.push(Hunk { before, after }),
        }
    }
}

/// Position of a line in a text.
#[derive(Debug, Clone, Copy)]
enum LineCount {
    Never,
    Once(u32),
    Often,
}

fn places(tokens: &[Token], range: &Range<usize>, count: usize) -> Vec<LineCount> {
    let mut places = vec![LineCount::Never; count];
    for line in range.clone() {
        let place = &mut places[tokens[line].0 as usize];
        *place = match place {
            LineCount::Never => LineCount::Once(u32::try_from(line).unwrap_or(u32::MAX)),
            LineCount::Once(_) | LineCount::Often => LineCount::Often,
        };
    }
    places
}

/// Returns a longest subsequence of the pairs, which are sorted by the first number, that is also sorted by the second one.
fn longest_increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // `ends`: for each length, the sequence end with the smallest second number. `previous`: for each pair, the one before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous = vec![usize::MAX; pairs.len()];
    for (index, (_, number)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *number);
        previous[index] = length.checked_sub(1).map_or(usize::MAX, |shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut found = Vec::new();
    let mut at = ends.last().copied().unwrap_or(usize::MAX);
    while let Some(pair) = pairs.get(at) {
        found.push(*pair);
        at = previous[at];
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn split(text: &str) -> Vec<&[u8]> {
        text.as_bytes().split_inclusive(|byte| *byte == b'\n').collect()
    }

    /// The new text, from the old one and the changes.
    fn applied(old: &[&[u8]], new: &[&[u8]], hunks: &[Hunk]) -> Vec<Vec<u8>> {
        let (mut made, mut at) = (Vec::new(), 0);
        for hunk in hunks {
            made.extend_from_slice(&old[at..hunk.before.start as usize]);
            made.extend_from_slice(&new[hunk.after.start as usize..hunk.after.end as usize]);
            at = hunk.before.end as usize;
        }
        made.extend_from_slice(&old[at..]);
        made.iter().map(|line| line.to_vec()).collect()
    }

    #[test]
    fn a_large_text_has_small_changes() {
        let lines: Vec<String> = (0..20_000).map(|n| format!("{n}\n{}\n", n % 7)).collect();
        let mut changed = lines.clone();
        changed[10] = "ten\n".to_owned();
        changed.remove(15_000);
        changed.insert(19_000, "new\n".to_owned());
        let [old, new] = [lines.concat(), changed.concat()];
        let mut budget = LineBudget::default();
        let hunks = changed_lines(&split(&old), &split(&new), &mut budget);
        let counts: Vec<_> = hunks.iter().map(|hunk| (hunk.before.len(), hunk.after.len())).collect();
        assert_eq!(counts, [(2, 1), (2, 0), (0, 1)]);
    }

    #[test]
    fn hostile_texts_take_bounded_work() {
        // Short lines that repeat, and pairs of lines in the wrong order.
        let many = |seed: u32| -> String {
            let mut state = seed;
            let mut line = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                format!("{}\n", char::from(b'a' + (state >> 24) as u8 % 26))
            };
            (0..(2 << 20) / 2).map(|_| line()).collect()
        };
        let swapped = |by: u32| -> String { (0..200_000_u32).map(|n| format!("{}\n", n ^ by)).collect() };
        for (old, new) in [(many(1), many(2)), (swapped(0), swapped(1)), (swapped(0), swapped(4095))] {
            let begun = Instant::now();
            let (old, new) = (split(&old), split(&new));
            let mut budget = LineBudget::default();
            let hunks = changed_lines(&old, &new, &mut budget);
            assert!(applied(&old, &new, &hunks).iter().map(Vec::as_slice).eq(new.iter().copied()));
            let work = LineBudget::default().0 - budget.0;
            assert!(work <= (old.len() + new.len()) as u64 * PART_MAX as u64, "{work}");
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn without_a_budget_everything_changes() {
        let (old, new) = (split("a\nb\nc\n"), split("a\nx\nb\ny\nc\n"));
        assert_eq!(changed_lines(&old, &new, &mut LineBudget::default()).len(), 2);
        let hunks = changed_lines(&old, &new, &mut LineBudget(0));
        assert_eq!(hunks, [Hunk { before: 1..2, after: 1..4 }]);
    }

    proptest! {
        #[test]
        fn changes_lead_from_one_text_to_the_other(
            old in prop::collection::vec(0_u8..30, 0..60),
            new in prop::collection::vec(0_u8..30, 0..60),
        ) {
            let [old, new] = [&old, &new].map(|lines| lines.chunks(1).collect::<Vec<_>>());
            let mut budget = LineBudget::default();
            let hunks = changed_lines(&old, &new, &mut budget);
            prop_assert_eq!(applied(&old, &new, &hunks), new.iter().map(|line| line.to_vec()).collect::<Vec<_>>());
        }

        #[test]
        fn a_longest_increasing_part_is_sorted(numbers in prop::collection::vec(0_usize..1000, 0..100)) {
            let pairs: Vec<_> = numbers.iter().copied().enumerate().collect();
            let found = longest_increasing(&pairs);
            prop_assert!(found.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
            prop_assert_eq!(found.is_empty(), pairs.is_empty());
        }
    }
}
