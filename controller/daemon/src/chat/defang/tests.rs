use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};

use super::*;

fn defanged(text: &str) -> String {
    let mut filter = Defang::default();
    filter.push(text) + &filter.finish()
}

/// Returns whether a reader of Markdown would show an image or HTML.
fn is_active(markdown: &str) -> bool {
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
    Parser::new_ext(markdown, options).any(|event| {
        matches!(event, Event::Start(Tag::Image { .. } | Tag::HtmlBlock) | Event::Html(_) | Event::InlineHtml(_))
    })
}

#[test]
fn images_and_html_become_text() {
    for (text, safe) in [
        ("![a](https://evil/?q=1)", "!\\[a](https://evil/?q=1)"),
        ("[![a](u)](v)", "[!\\[a](u)](v)"),
        ("![a][r]\n\n[r]: https://evil", "!\\[a][r]\n\n[r]: https://evil"),
        ("<img src=x>", "&lt;img src=x>"),
        ("</b> <!-- x --> <?x?>", "&lt;/b> &lt;!-- x --> &lt;?x?>"),
        ("a < b, a <= b, 1<2 and wow! [x](u) !", "a < b, a <= b, 1<2 and wow! [x](u) !"),
        ("```html\n<b>![a](u)\n```\n<b>", "```html\n<b>![a](u)\n```\n&lt;b>"),
        ("~~~\n<b>\n```\n<b>\n~~~\n<b>", "~~~\n<b>\n```\n<b>\n~~~\n&lt;b>"),
        ("1. a:\n   ```\n   <b>\n   ```\n<b>", "1. a:\n   ```\n   <b>\n   ```\n&lt;b>"),
        ("``` `\n<b>", "``` `\n&lt;b>"),
        ("- a\n\n  ```\n<b>", "- a\n\n  ```\n&lt;b>"),
        ("> ```\n<b>", "> ```\n&lt;b>"),
        ("   ```\n```\n<b>", "   ```\n```\n&lt;b>"),
        (
            "1. a\n\n    ```\n    <b>\n    ```\n\n```\n<b>\n```\n",
            "1. a\n\n    ```\n    &lt;b>\n    ```\n\n```\n<b>\n```\n",
        ),
        ("<", "<"),
        ("!", "!"),
        ("!![a](u)", "!!\\[a](u)"),
        ("<<b>", "<&lt;b>"),
    ] {
        assert_eq!(defanged(text), safe, "{text}");
    }
}

#[test]
fn a_name_has_no_code() {
    for (name, safe) in [
        ("Bash", "Bash"),
        ("a < b!", "a < b!"),
        ("```\n<img>![a](u)", "```\n&lt;img>!\\[a](u)"),
        ("a\n\n~~~\n<b>\n~~~", "a\n\n~~~\n&lt;b>\n~~~"),
    ] {
        assert_eq!(Defang::name(name), safe);
    }
}

/// Pieces from which Markdown with images, HTML and fences is made.
fn piece() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "![a](https://e)", "<b>", "<!--", "-->", "```", "````", "~~~", "`", "\n", "\n", "\n\n", " ", "  ", "    ",
        "\t", "> ", "- ", "1. ", "* ", "a", "!", "[", "](u)", "<", "\\", "\r\n", "[^1]: ", "| a |", "|-|", "\u{a0}",
        "# ", "---", "&lt;", "x",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_reader_shows_an_image_or_html(pieces in proptest::collection::vec(piece(), 0..24)) {
        let text = pieces.concat();
        let safe = defanged(&text);
        prop_assert!(!is_active(&safe), "{text:?} became {safe:?}");
    }

    #[test]
    fn any_split_gives_the_same_text(pieces in proptest::collection::vec(piece(), 0..16)) {
        let text = pieces.concat();
        let whole = defanged(&text);
        for (at, _) in text.char_indices() {
            let mut filter = Defang::default();
            let mut split = filter.push(&text[..at]);
            split += &filter.push(&text[at..]);
            split += &filter.finish();
            prop_assert_eq!(&split, &whole, "split at {}", at);
        }
        let mut filter = Defang::default();
        let mut single: String = text.chars().map(|one| filter.push(one.encode_utf8(&mut [0; 4]))).collect();
        single += &filter.finish();
        prop_assert_eq!(single, whole);
    }
}
