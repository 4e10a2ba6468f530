//! The names in an intent's `stripped`, bounded: the sandbox chooses them, and the audit file holds them.
//!
//! Pure. A name of the usual kind, `[A-Za-z0-9_.-]{1,64}`, is written until all of them take 1 KB. The rest, and every
//! other name, is counted: the last entry is then `+N`.

use std::borrow::Cow;

/// Maximum number of bytes that the names take in the line, with quotes and commas.
const BYTES_MAX: usize = 1024;
/// Maximum length of one name.
const NAME_MAX: usize = 64;

/// Keeps what may be written, in its order, and counts the rest in one last entry.
#[must_use]
pub fn bounded(mut names: Vec<Cow<'static, str>>) -> Vec<Cow<'static, str>> {
    // The entry with the count is part of it.
    let (mut bytes, mut left_out) = ("\"+1000\"".len(), 0_usize);
    names.retain(|name| {
        // What is not copied from the client is ours.
        let ours = matches!(name, Cow::Borrowed(_));
        let kept = (ours || is_identifier(name)) && bytes + name.len() + 3 <= BYTES_MAX;
        if kept {
            bytes += name.len() + 3;
        } else {
            left_out += 1;
        }
        kept
    });
    if left_out > 0 {
        names.push(format!("+{left_out}").into());
    }
    names
}

fn is_identifier(name: &str) -> bool {
    let name = name.strip_prefix("anthropic-beta:").unwrap_or(name);
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<Cow<'static, str>> {
        bounded(names.iter().map(|name| Cow::Owned((*name).to_owned())).collect())
    }

    #[test]
    fn identifiers_are_named_and_the_rest_is_counted() {
        let long = "x".repeat(65);
        for (names, expected) in [
            (&[][..], &[][..]),
            (&["user", "x-litellm-tags", "a.b_C9"], &["user", "x-litellm-tags", "a.b_C9"]),
            (&["", "a b", "\0", "\"", "ü", "\u{1b}[31m", "+5", &long, "last"], &["last", "+8"]),
        ] {
            assert_eq!(of(names), expected, "{names:?}");
        }
        assert_eq!(bounded(vec!["x-stainless-*".into()]), ["x-stainless-*"]);
        assert_eq!(
            of(&["anthropic-beta:a-2026-01-01", "x:a", "anthropic-beta:"]),
            ["anthropic-beta:a-2026-01-01", "+2"]
        );
    }

    #[test]
    fn all_names_together_take_one_kilobyte() {
        let names: Vec<_> = (0..300).map(|n| format!("{n:064}")).collect();
        let kept = of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(kept.last().map(|name| &**name), Some("+285"));
        assert!(serde_json::to_string(&kept).is_ok_and(|line| line.len() <= BYTES_MAX + 2), "{kept:?}");
        // What still fits behind one that did not is named.
        let mixed: Vec<_> = names.iter().map(String::as_str).chain(["end"]).collect();
        assert_eq!(of(&mixed).iter().rev().nth(1).map(|name| &**name), Some("end"));
    }
}
