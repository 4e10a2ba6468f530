use super::*;
use proptest::prelude::*;

fn bound(text: &str) -> u64 {
    let mut bound = TokenBound::new();
    bound.feed(text.as_bytes());
    bound.finish()
}

/// The words of the list and their classes.
fn words() -> impl Iterator<Item = (&'static str, u8)> {
    let lines = str::from_utf8(WORDS).expect("the list is ASCII").lines();
    lines.map(|line| (&line[..line.len() - 1], line.as_bytes()[line.len() - 1]))
}

#[test]
fn every_word_of_the_list_is_found() {
    assert!(WORDS.len() <= 64 * 1024 && words().count() <= 8_192);
    for (word, class) in words() {
        let spaced = 1 + class_tokens(class, Front::Space);
        assert_eq!((bound(word), bound(&format!(" {word}"))), (class_tokens(class, Front::Ascii), spaced), "{word}");
    }
}

#[test]
fn the_list_is_sorted_and_its_words_save_tokens() {
    let lines: Vec<_> = words().map(|(word, _)| (word.len(), word)).collect();
    assert!(lines.is_sorted_by(|one, next| one < next));
    for (word, class) in words() {
        assert!(word.bytes().all(|b| b.is_ascii_alphabetic()) && matches!(class, b'1'..=b'4'), "{word}");
        assert!(class_tokens(class, Front::Ascii) <= word.len() as u64, "{word}");
    }
    assert_eq!(lines.last().map(|(len, _)| *len), Some(LETTERS_MAX));
}

#[test]
fn a_word_counts_one_without_neighbouring_letters() {
    for (text, tokens) in [
        ("", 0),
        ("function", 1),
        (" function", 1),
        ("Function the function", 3),
        ("functionx", 9),
        ("xfunction", 9),
        ("_function(", 3),
        ("1function2", 3),
        ("éfunction", 2 + 8),
        ("functioné", 8 + 2),
        (r"\u0041function", 3 + 8),
        (r"function\u0041", 8 + 3),
        (r"\nfunction\n", 3),
        (r#"\"function\""#, 3),
        (r"\\function", 2 + 8),
        (r"\\nfunction\\n", 3 + 1 + 3),
        (r"\\\\nfunction", 4 + 1 + 1),
        (r"\\u0041function", 7 + 8),
        (r"function\\u0041", 8 + 7),
        ("'function", 2),
        ("'string'", 8),
        ("it's", 3),
        ("the'", 2),
        ("0123456789", 10),
        ("{\"role\":\"user\"}", 9),
        ("\u{12000}", 4),
        (r"\ud808\udc00", 6),
    ] {
        assert_eq!(bound(text), tokens, "{text}");
    }
}

#[test]
fn spaces_count_an_eighth_and_some() {
    let counts: Vec<_> = (0..=17).map(|n| bound(&" ".repeat(n))).collect();
    assert_eq!(counts, [0, 1, 2, 2, 2, 2, 3, 3, 2, 2, 3, 3, 3, 3, 4, 4, 3, 3]);
    assert_eq!(bound(&" ".repeat(8_000)), 1_001);
}

proptest! {
    #[test]
    fn the_bound_ignores_splits_and_never_exceeds_bytes(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..20),
        cuts in prop::collection::vec(0..200_usize, 0..8),
    ) {
        let text = parts.concat();
        let mut bound = TokenBound::new();
        let mut at = 0;
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        for cut in cuts {
            bound.feed(&text.as_bytes()[at..cut]);
            at = cut;
        }
        bound.feed(&text.as_bytes()[at..]);
        let tokens = bound.finish();
        prop_assert_eq!(tokens, self::bound(&text));
        prop_assert!(tokens <= text.len() as u64, "{} tokens of {} bytes", tokens, text.len());
    }

    #[test]
    fn any_bytes_are_at_most_their_number(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut bound = TokenBound::new();
        bytes.chunks(3).for_each(|piece| bound.feed(piece));
        prop_assert!(bound.finish() <= bytes.len() as u64);
    }
}

const PARTS: &[&str] = &[
    "a", "function", "the", "Return", "useState", "internationalization", "xq", " ", "    ", "\n", "\\", "\\n", "\\t",
    "\\\"", "\\\\", "\\u", "0041", "\\u00e9", "u", "n", "'", "'s", "'LL", "é", "漢", "🙂", "0", "12", "{\"", "\":",
    "_", "-", "ſ",
];
