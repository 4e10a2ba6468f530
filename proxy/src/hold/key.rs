//! The key by which a repeated request is recognised.
//!
//! Pure.

use sluice_contract::Hash;

use crate::body::ParsedBody;
use crate::intake::BufferedBody;
use crate::policy::Route;

/// Returns the hash of a request: its route, and its body as far as that goes upstream. So names of users and metadata,
/// which a client may write anew for each attempt, are not in it, and neither are messages of the operator, which come
/// between two attempts. To be called before the sidecar bounds the output.
pub(crate) fn key(route: &Route, parsed: &ParsedBody, body: &BufferedBody) -> Hash {
    let route = [route.method.as_str().as_bytes(), b" ", route.path.as_bytes(), b"\n"];
    let added = parsed.injection().map_or(&[][..], |injection| &injection.added);
    let member = |range: &(u64, u64)| std::iter::once(&b","[..]).chain(body.within(without(*range, added)));
    Hash::of_all(route.into_iter().chain(parsed.edit.keep.iter().flat_map(member)))
}

/// Returns the parts of a range that are not in others, which are in order.
fn without((mut from, to): (u64, u64), others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    for &(start, end) in others {
        if end <= from || start >= to {
            continue;
        }
        if start > from {
            parts.push((from, start));
        }
        from = end;
    }
    if from < to {
        parts.push((from, to));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_bytes_are_taken_out_of_a_range() {
        for (range, others, expected) in [
            ((0, 9), vec![], vec![(0, 9)]),
            ((0, 9), vec![(3, 5)], vec![(0, 3), (5, 9)]),
            ((3, 9), vec![(0, 4), (4, 5), (8, 12)], vec![(5, 8)]),
            ((3, 9), vec![(0, 3), (9, 12)], vec![(3, 9)]),
            ((3, 9), vec![(3, 9)], vec![]),
        ] {
            assert_eq!(without(range, &others), expected, "{range:?} {others:?}");
        }
    }
}
