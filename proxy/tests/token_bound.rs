//! The bound of tokens against the real tokenizers, by `tests/python/token_bound.py`.

use std::{
    env,
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use sluice_proxy::tokens::TokenBound;

mod random;

use random::Random;

/// Number of random texts, beside each word of the list.
const TEXTS: usize = 20_000;
const WORDS: &str = include_str!("../src/tokens/words.txt");

#[test]
fn no_tokenizer_makes_more_tokens_than_the_bound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "the Python environment of the tests is missing: run `make test`, or tests/setup/venv.sh");
    let seed = env::var("TOKEN_BOUND_SEED").map_or(1, |seed| seed.parse().expect("TOKEN_BOUND_SEED is a number"));
    let mut random = Random(seed);
    let words: Vec<&str> = WORDS.lines().map(|line| &line[..line.len() - 1]).collect();
    let mut texts: Vec<_> = (0..TEXTS).map(|_| text(&mut random, &words)).collect();
    for front in ["", " ", "_", "\\n"] {
        texts.extend(words.iter().map(|word| format!("{front}{word}")));
    }
    let mut lines = String::new();
    for text in &texts {
        let mut bound = TokenBound::new();
        bound.feed(text.as_bytes());
        let line = serde_json::json!({ "text": text, "bound": bound.finish() });
        writeln!(lines, "{line}").expect("a string takes it");
    }

    let mut child = Command::new(python)
        .arg(root.join("tests/python/token_bound.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python of the tests starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(lines.as_bytes()).expect("it reads to the end");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");

    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim_end(), format!("{} texts hold", texts.len()), "seed {seed}");
}

/// Returns the text of a JSON string, without its quotes: fragments side by side, mostly few, as each that is counted
/// too high hides one that is counted too low.
fn text(random: &mut Random, words: &[&str]) -> String {
    let mut text = String::new();
    let most = 1 + random.below(8);
    for _ in 0..=random.below(most) {
        let word = random.of(words);
        match random.below(24) {
            0..4 => text += word,
            4..7 => {
                text.push(' ');
                text += word;
            }
            7 => text += &cased(random, word),
            8 => text += random.of(CONTRACTIONS),
            9 => text += random.of(FOREIGN),
            10 => text += &random.of(SPACE).repeat(1 + random.below(40)),
            11 => text += &random.of(PUNCTUATION).repeat(1 + random.below(6)),
            12 => (0..=random.below(12)).for_each(|_| text.push(ascii(random))),
            13 => text += random.of(ESCAPES),
            14 => {
                text += "\\\\";
                text +=
                    random.of(&["n", "t", "r", "b", "f", "u0041", "u00e9", "\\\\", "\\\"", "/", "\\\\n", "\\\\\\\\t"]);
            }
            15 => {
                let unit = [random.below(0x80), random.below(0x3000), random.below(0xd800)][random.below(3)];
                _ = write!(text, "\\u{unit:04x}");
            }
            16 => text.extend(char::from_u32((0x80 + random.below(0x11_0000 - 0x80)) as u32)),
            17 => _ = write!(text, "{}", random.below(100_000_000)),
            18 => (0..=random.below(10)).for_each(|_| text.push((b"aAeEsStT'nN"[random.below(11)]).into())),
            19..23 => {
                text +=
                    random.of(&["'", "'", "é", "я", "ａ", "\\u0061", "\\\\u", "\\\\b", "\\\\n", "\\\\u0061", "\\\\x"]);
                text += word;
            }
            // A part of a word joined to another word, which no list has.
            _ => {
                text += &word[random.below(word.len())..];
                text += random.of(words);
            }
        }
    }
    text
}

/// Returns the word in capitals, with a capital, or with random ones.
fn cased(random: &mut Random, word: &str) -> String {
    match random.below(3) {
        0 => word.to_uppercase(),
        1 => word[..1].to_uppercase() + &word[1..],
        _ => word.chars().map(|c| if random.below(2) == 0 { c.to_ascii_uppercase() } else { c }).collect(),
    }
}

const CONTRACTIONS: &[&str] = &[
    "'", "'s", "'S", "'t", "'T", "'re", "'rE", "'ve", "'VE", "'m", "'M", "'ll", "'Ll", "'d", "'D", "'ſ", "'\\u0073",
    "\\u0027s", "’s", "'sS", "''",
];
const FOREIGN: &[&str] = &[
    "é", "ß", "İ", "ı", "ſ", "K", "я", "漢字", "の", "한", "🙂", "👩‍👩‍👧", "\u{12000}", "\u{3400}", "\u{301}", "\u{200d}",
    "\u{a0}", "\u{2028}", "\u{3000}", "ａ", "＇", "ﬁ", "…", "½", "٣", "\u{85}", "\u{feff}", "\u{10ffff}", "ª", "ǅ",
];
const SPACE: &[&str] = &[
    " ", " ", "\\n", "\\t", "\\r", "\\r\\n", "\\n ", "\\n    ", " \\n", "\\t ", "\u{a0} ", " \u{2003}",
    "\\n\\n        ", "       \\f", "\\n\\t  ", "                 \\n",
];
const PUNCTUATION: &[&str] = &[
    "!", "?", "%", "&", "-", "=", "*", "/", "#", "_", ".", ",", "{", "}", "()", "[]", "<", ">", ":", ";", "|", "~",
    "`", "^", "$", "@", "+", "!?%&", "<EOT>", "<|endoftext|>", "\\\"", "\\/", "/*", "<META>",
];
const ESCAPES: &[&str] = &[
    "\\n", "\\t", "\\r", "\\b", "\\f", "\\\"", "\\\\", "\\/", "\\u005c", "\\ud83d\\ude42", "\\ud800", "\\u0020",
    "\\u0061",
];

/// Returns any character that a JSON string may hold unescaped.
fn ascii(random: &mut Random) -> char {
    loop {
        let byte = 0x20 + random.below(0x60) as u8;
        if !matches!(byte, b'"' | b'\\') {
            return byte.into();
        }
    }
}
