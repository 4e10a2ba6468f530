//! The names in an intent's `stripped`, bounded: the sandbox chooses them, and the audit file holds them.
//!
//! Pure. A name of the usual kind, `[A-Za-z0-9_.-]{1,64}`, is written until all of them take 1 KB. The rest, and every
//! other name, is counted: the last entry is then `+N`.

use std::borrow::Cow;

/// Maximum number of bytes that the names take in the line, with quotes and commas.
const BYTES_MAX: usize = 1024;
/// Maximum length of one name.
const NAME_MAX: usize = 64;

/// Members that identify or label a call, and the member that asks for usage: the sidecar sets its own, and the
/// response is the same.
const WITHOUT_EFFECT: [&str; 6] =
    ["user", "metadata", "litellm_metadata", "safety_identifier", "tags", "stream_options"];

/// Returns the names of dropped members that have an effect on the response, for the header that tells the client;
/// bounded like [`bounded`].
#[must_use]
pub fn effective(names: Vec<Cow<'static, str>>) -> Option<Box<str>> {
    let is_effective = |name: &Cow<'static, str>| {
        let member = name.rsplit('.').next().unwrap_or(name);
        !WITHOUT_EFFECT.contains(&member)
    };
    let names = bounded(names.into_iter().filter(is_effective).collect());
    (!names.is_empty()).then(|| names.join(", ").into())
}

/// Returns the names that may be written, in their order, and the number of the others in one last entry.
#[must_use]
pub fn bounded(mut names: Vec<Cow<'static, str>>) -> Vec<Cow<'static, str>> {
    // The entry with the number is counted as well.
    let (mut bytes, mut left_out) = ("\"+1000\"".len(), 0_usize);
    names.retain(|name| {
        // A name that is not copied from the client is the sidecar's own.
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
    fn the_caller_gets_names_with_an_effect() {
        let told = |names: &[&str]| effective(names.iter().map(|name| Cow::Owned((*name).to_owned())).collect());
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["user", "metadata", "tags", "safety_identifier", "stream_options", "input.metadata"]), None);
        assert_eq!(told(&["user", "min_p", "tools.server_url"]).as_deref(), Some("min_p, tools.server_url"));
        assert_eq!(told(&["min_p", "a\r\nb", "\u{1b}"]).as_deref(), Some("min_p, +2"));
        let many: Vec<_> = (0..300).map(|n| format!("{n:064}")).collect();
        let told = told(&many.iter().map(String::as_str).collect::<Vec<_>>()).expect("names");
        assert!(told.len() <= BYTES_MAX && told.ends_with(", +285"), "{told}");
    }

    #[test]
    fn all_names_together_take_one_kilobyte() {
        let names: Vec<_> = (0..300).map(|n| format!("{n:064}")).collect();
        let kept = of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(kept.last().map(|name| &**name), Some("+285"));
        assert!(serde_json::to_string(&kept).is_ok_and(|line| line.len() <= BYTES_MAX + 2), "{kept:?}");
        // A name that still fits after one that did not is written.
        let mixed: Vec<_> = names.iter().map(String::as_str).chain(["end"]).collect();
        assert_eq!(of(&mixed).iter().rev().nth(1).map(|name| &**name), Some("end"));
    }
}
