//! The byte range that a request asks for.
//!
//! Pure.

use http::HeaderMap;
use http::header::{IF_RANGE, RANGE};

/// The part of a file that an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilePart {
    /// The whole file.
    Whole,
    /// Some of its bytes.
    Range {
        /// Offset of the first byte.
        start: u64,
        /// Number of bytes, at least 1.
        len: u64,
    },
    /// The file does not have the part.
    Missing,
}

/// Returns the range within a file of this size. A range has at most `max` bytes; the response states it. Ranges of another
/// unit, several ranges, and conditional ranges mean the whole file.
pub(super) fn file_part(headers: &HeaderMap, size: u64, max: u64) -> FilePart {
    let mut ranges = headers.get_all(RANGE).iter();
    let (Some(range), None, None) = (ranges.next(), ranges.next(), headers.get(IF_RANGE)) else {
        return FilePart::Whole;
    };
    range.to_str().ok().and_then(|range| part(range, size, max)).unwrap_or(FilePart::Whole)
}

fn part(range: &str, size: u64, max: u64) -> Option<FilePart> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first, last) {
        ("", last) => {
            let len = number(last)?.min(size);
            (size - len, size)
        }
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            (first, last.saturating_add(1).min(size))
        }
    };
    if start >= end {
        return Some(FilePart::Missing);
    }
    Some(FilePart::Range { start, len: (end - start).min(max) })
}

/// Reads a number; one that is too large for any file becomes the maximum.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(range: &str, size: u64) -> FilePart {
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_str(range).expect("a value"))]);
        file_part(&headers, size, 100)
    }

    #[test]
    fn each_range_has_its_part() {
        let range = |start, len| FilePart::Range { start, len };
        for (text, size, expected) in [
            ("bytes=0-0", 10, range(0, 1)),
            ("bytes=2-5", 10, range(2, 4)),
            ("bytes=5-", 10, range(5, 5)),
            ("bytes=5-99", 10, range(5, 5)),
            ("bytes=-3", 10, range(7, 3)),
            ("bytes=-30", 10, range(0, 10)),
            ("bytes=0-", 1000, range(0, 100)),
            ("bytes=-500", 1000, range(500, 100)),
            ("bytes=0-18446744073709551615", 10, range(0, 10)),
            ("bytes=0-99999999999999999999999", 10, range(0, 10)),
            ("bytes=10-", 10, FilePart::Missing),
            ("bytes=99999999999999999999999-", 10, FilePart::Missing),
            ("bytes=-0", 10, FilePart::Missing),
            ("bytes=0-", 0, FilePart::Missing),
            ("bytes=-1", 0, FilePart::Missing),
            ("bytes=5-2", 10, FilePart::Whole),
            ("bytes=0-1,3-4", 10, FilePart::Whole),
            ("bytes=+1-2", 10, FilePart::Whole),
            ("bytes=-", 10, FilePart::Whole),
            ("bytes=a-b", 10, FilePart::Whole),
            ("items=0-1", 10, FilePart::Whole),
        ] {
            assert_eq!(of(text, size), expected, "{text} of {size}");
        }
    }

    #[test]
    fn a_range_that_depends_on_something_is_ignored() {
        let value = HeaderValue::from_static;
        let twice = HeaderMap::from_iter([(RANGE, value("bytes=0-0")), (IF_RANGE, value("\"x\""))]);
        assert_eq!(file_part(&twice, 10, 100), FilePart::Whole);
        assert_eq!(file_part(&HeaderMap::new(), 10, 100), FilePart::Whole);
    }
}
