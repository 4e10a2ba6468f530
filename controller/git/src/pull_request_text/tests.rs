use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::*;

fn facts<'a>(title: &'a str, asked: &'a str, done: &'a str) -> PullRequestFacts<'a> {
    PullRequestFacts {
        ticket: Some("PROJ-12"),
        title: Some(title),
        asked,
        done,
        cost: "$0.1234",
        run_id: "r-0123456789abcdef",
        audit_head: "sha256:00ff",
    }
}

/// Returns the parts of a document, without the contents of fenced code.
fn skeleton(markdown: &str) -> Vec<String> {
    let options = Options::all();
    let mut is_code = false;
    let events = Parser::new_ext(markdown, options).filter(|event| match event {
        Event::Start(Tag::CodeBlock(_)) => {
            is_code = true;
            true
        }
        Event::End(TagEnd::CodeBlock) => {
            is_code = false;
            true
        }
        _ => !is_code,
    });
    events.map(|event| format!("{event:?}")).collect()
}

/// Returns the lines of a body that are not inside a fence, by the rule for fences alone.
fn outside(body: &str) -> Vec<&str> {
    let mut fence: Option<&str> = None;
    let is_mark = |line: &str| line.starts_with("```");
    body.lines()
        .filter(|line| match fence {
            None if is_mark(line) => {
                fence = Some(line.trim_end_matches("text"));
                false
            }
            None => true,
            Some(mark) => {
                if *line == mark {
                    fence = None;
                }
                false
            }
        })
        .collect()
}

#[test]
fn a_body_has_the_facts_of_its_run() {
    let body = body(&facts("t", "Fix the login.\nPlease.", "I fixed it."));
    assert_eq!(
        body,
        "Sluice opened this pull request for run `r-0123456789abcdef`.\n\nAsked:\n\n```text\n Fix the login.\n \
         Please.\n```\n\nDone, in the words of the agent, not checked by a person:\n\n```text\n I fixed it.\n```\n\n\
         Cost: `$0.1234`  \nRun: `r-0123456789abcdef`  \nAudit head: `sha256:00ff`\n"
    );
}

#[test]
fn titles_show_their_ticket_and_do_nothing() {
    for (ticket, text, expected) in [
        (Some("PROJ-12"), Some("Add a login page"), "[PROJ-12] Add a login page"),
        (Some("GH-1"), Some("Add GH-5 page"), "[GH-1] Add GH- 5 page"),
        (Some("#7"), None, "[# 7] run r-0123456789abcdef"),
        (None, None, "Run r-0123456789abcdef"),
        (None, Some("/deploy now"), "Task: /deploy now"),
        (None, Some(" \u{a0}\n/deploy"), "Task: /deploy"),
        (None, Some("closes #1, fixes o/r#2, @team, resolves !3"), "closes # 1, fixes o/r# 2, @ team, resolves ! 3"),
        (None, Some("closes https://github.com/o/r/issues/1"), "closes https:/ /github.com/o/r/issues/1"),
        (None, Some("x [skip ci] ***NO_CI*** `y`"), "x (skip ci) ---NO_CI--- 'y'"),
        (None, Some("a\r\nb\u{202e}c\u{1b}[2J"), "a b(U+202E)c(U+001B)(2J"),
        (None, Some("![x](https://evil/x)"), "! (x)(https:/ /evil/x)"),
        (None, Some("<!-- x -->"), "(! -- x --)"),
    ] {
        assert_eq!(title(&PullRequestFacts { ticket, title: text, ..facts("", "", "") }), expected);
    }
    let long = "word ".repeat(100);
    let cut = title(&facts(&long, "", ""));
    assert!(cut.chars().count() <= TITLE_MAX && cut.ends_with("wo..."), "{cut}");
}

#[test]
fn a_fence_is_longer_than_any_run_of_backticks() {
    for (text, expected) in [
        ("", "```text\n```\n"),
        ("```\n# heading", "````text\n ```\n # heading\n````\n"),
        ("a ````` b", "``````text\n a ````` b\n``````\n"),
        ("~~~\n</details>", "```text\n ~~~\n </details>\n```\n"),
        ("a\rb\r\nc\u{2028}d\u{85}e", "```text\n a<U+000D>b\n c<U+2028>d<U+0085>e\n```\n"),
        ("\n\n  x\n\n", "```text\n   x\n```\n"),
    ] {
        assert_eq!(fenced(text), expected, "{text:?}");
    }
}

#[test]
fn long_texts_are_cut() {
    for text in ["é".repeat(FENCED_MAX + 1), "x\n".repeat(FENCED_MAX), "`".repeat(9000), "\u{202e}".repeat(4000)] {
        let fenced = fenced(&text);
        let inside: Vec<&str> = fenced.lines().collect();
        let inside = inside[1..inside.len() - 1].join("\n") + "\n";
        assert!(inside.chars().count() <= FENCED_MAX, "{}", inside.chars().count());
        assert!(inside.chars().count() > FENCED_MAX - 20 && inside.ends_with("\n [...]\n"));
    }
    let exact = "é".repeat(FENCED_MAX - 2);
    assert_eq!(fenced(&exact), format!("```text\n {exact}\n```\n"));
}

#[test]
fn a_commit_message_has_no_words_of_others() {
    assert_eq!(
        commit_message(&facts("t", "asked", "done")),
        "Sluice-Run: r-0123456789abcdef\nSluice-Audit-Head: sha256:00ff\n"
    );
    let hostile = PullRequestFacts { run_id: "r\n\ncloses #1`", audit_head: "", ..facts("", "", "") };
    assert_eq!(commit_message(&hostile), "Sluice-Run: rcloses 1\nSluice-Audit-Head: -\n");
}

/// Pieces that act in Markdown, or at a forge, where no fence is around them.
fn piece() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "```", "````", "`````", "`", "~~~", "\n", "\n", "\n\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{2028}", "\u{85}",
        " ", "    ", "\t", "> ", "- ", "1. ", "/deploy", "/lgtm\n", "@team", "@org/team", "closes #1", "Fixes GH-1",
        "resolves o/r#3", "![a](https://evil/x)", "<img src=https://evil>", "<!--", "-->", "</details>",
        "[a]: https://e", "https://evil/", "| a |\n|-|", "# x", "---", "===", "\u{202e}", "\u{200b}", "\u{0}",
        "\u{1b}[2J", "[skip ci]", "[^1]", "$$", "text", "a", "é",
    ])
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acts_outside_of_the_fences(asked in text(), done in text()) {
        let harmless = body(&facts("t", "a", "b"));
        let body = body(&facts("t", &asked, &done));
        prop_assert_eq!(skeleton(&body), skeleton(&harmless), "{}", body);
        prop_assert_eq!(outside(&body), outside(&harmless));
        prop_assert!(!body.chars().any(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c)));
        for line in body.lines().filter(|line| !line.starts_with(' ')) {
            prop_assert!(!line.contains(['@', '#', '<', '!']) && !line.starts_with('/'), "{}", line);
        }
    }

    #[test]
    fn nothing_acts_in_a_title(ticket in text(), text in text()) {
        let title = title(&PullRequestFacts { ticket: Some(&ticket), title: Some(&text), ..facts("", "", "") });
        prop_assert!(title.chars().count() <= TITLE_MAX && !title.contains(['\n', '`', '<', '*', '\t']), "{}", title);
        prop_assert!(!title.is_empty() && !title.starts_with('/'), "{}", title);
        for mark in ['@', '#', '!'] {
            let follows = |(at, _): (usize, &str)| title[at + 1..].chars().next().is_some_and(|c| c != ' ' && c != ')' && c != ']');
            prop_assert!(!title.match_indices(mark).any(follows), "{}", title);
        }
        prop_assert!(!title.contains("://") && !title.contains("[skip"), "{}", title);
    }
}
