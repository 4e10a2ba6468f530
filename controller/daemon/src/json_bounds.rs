//! The bounds of a JSON text, checked before it is parsed: depth, members, length of names, no NUL.
//!
//! The text may be invalid JSON; the parser refuses it afterwards.
//!
//! Pure.

use crate::limits::HttpLimits;

/// Bound that a text exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoundError {
    /// Objects and arrays are nested too deep.
    Depth,
    /// Too many members in one object, or elements in one array.
    Members,
    /// The name of a member is too long.
    Name,
    /// The character U+0000, which a database cannot store as text.
    Nul,
}

/// Checks the bounds of a text.
///
/// # Errors
/// The first [`BoundError`].
pub(crate) fn check(text: &[u8], limits: &HttpLimits) -> Result<(), BoundError> {
    // Number of members in each open object or array.
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => {
                if open.len() == limits.json_depth {
                    return Err(BoundError::Depth);
                }
                open.push(1);
            }
            b'}' | b']' => drop(open.pop()),
            b',' => {
                if let Some(members) = open.last_mut() {
                    *members += 1;
                    if *members > limits.json_members {
                        return Err(BoundError::Members);
                    }
                }
            }
            b'"' => {
                let start = at + 1;
                at = end_of_string(text, start)?;
                let is_name = text[at.min(text.len())..].iter().skip(1).find(|byte| !byte.is_ascii_whitespace());
                if is_name == Some(&b':') && at - start > limits.json_name_bytes {
                    return Err(BoundError::Name);
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Returns the position of the quote that ends a string, or the end of the text.
fn end_of_string(text: &[u8], start: usize) -> Result<usize, BoundError> {
    let mut at = start;
    loop {
        match text.get(at) {
            None | Some(b'"') => return Ok(at),
            Some(b'\\') => {
                if text[at..].starts_with(br"\u0000") {
                    return Err(BoundError::Nul);
                }
                at += 2;
            }
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(), BoundError> {
        check(text.as_bytes(), &HttpLimits::default())
    }

    #[test]
    fn depth_and_members_are_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!((of(&nested(32)), of(&nested(33))), (Ok(()), Err(BoundError::Depth)));
        let list = |members: usize| format!("[{}]", vec!["1"; members].join(","));
        assert_eq!((of(&list(1000)), of(&list(1001))), (Ok(()), Err(BoundError::Members)));
        assert_eq!(of(&format!("[{},{}]", list(900), list(900))), Ok(()), "each array has its own count");
        let name = |len: usize| format!("{{\"{}\" : 1}}", "n".repeat(len));
        assert_eq!((of(&name(255)), of(&name(256))), (Ok(()), Err(BoundError::Name)));
        assert_eq!(of(&format!("{{\"a\":\"{}\"}}", "v".repeat(300))), Ok(()));
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(of(&format!("\"{}\"", "[{,\\\"".repeat(2000))), Ok(()));
        for broken in ["\"", "\"\\", "]]]]", "{", ",,,", "\"a", "\\"] {
            assert_eq!(of(broken), Ok(()), "{broken}: the parser refuses it");
        }
    }

    #[test]
    fn the_character_nul_is_refused() {
        assert_eq!(of(r#"{"a":"\u0000"}"#), Err(BoundError::Nul));
        assert_eq!(of(r#"{"a":"\\u0000"}"#), Ok(()));
    }
}
