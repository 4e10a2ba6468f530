//! Rust source as the rules read it: code without comments, strings and tests.
//!
//! Pure. What is removed becomes blanks, so that offsets and line numbers stay those of the file.

/// The code of a file, and what its module doc says.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file's text; comments, literals and test items are blanks.
    pub(crate) code: String,
    /// The `//!` lines, without their marks.
    pub(crate) doc: String,
    /// Number of lines of the file.
    pub(crate) lines: usize,
    newlines: Vec<usize>,
    /// Modules that are declared for tests only (`#[cfg(test)] mod name;`).
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    /// Reads a file's text.
    pub(crate) fn parse(text: &str) -> Self {
        let mut code = without_comments_and_literals(text);
        let test_modules = remove_test_items(&mut code);
        let doc = text.lines().filter_map(|line| line.trim_start().strip_prefix("//!"));
        let doc = doc.map(str::trim).collect::<Vec<_>>().join("\n");
        let newlines = text.match_indices('\n').map(|(at, _)| at).collect();
        Self { code, doc, lines: text.lines().count(), newlines, test_modules }
    }

    /// Returns true if the module doc has the word "Pure".
    pub(crate) fn says_pure(&self) -> bool {
        self.doc.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "Pure")
    }

    /// Returns the number of the line that holds this offset.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        1 + self.newlines.partition_point(|newline| *newline < offset)
    }
}

/// Returns the text with blanks for each comment, string and character.
pub(crate) fn without_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = end_of_hidden(text, at);
        if end == at {
            at += 1;
            continue;
        }
        blank(&mut code[at..end]);
        at = end;
    }
    String::from_utf8(code).expect("whole characters were replaced by blanks")
}

/// Returns the end of the comment or literal that begins here, or `at` if none does.
fn end_of_hidden(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    match bytes[at] {
        b'/' if bytes[at..].starts_with(b"//") => end_after(bytes, at, b"\n").saturating_sub(1).max(at + 2),
        b'/' if bytes[at..].starts_with(b"/*") => end_of_block_comment(bytes, at),
        b'"' => end_of_string(bytes, at),
        b'\'' => end_of_character(text, at),
        b'r' if at == 0 || !is_word(bytes[at - 1]) || is_string_prefix(bytes, at) => end_of_raw_string(bytes, at),
        _ => at,
    }
}

/// Returns true if the `r` at this offset follows the `b` or `c` of a byte or C string.
fn is_string_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at - 1], b'b' | b'c') && (at == 1 || !is_word(bytes[at - 2]))
}

fn end_after(bytes: &[u8], from: usize, end: &[u8]) -> usize {
    let found = bytes[from..].windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len() + usize::from(end == b"\n"), |offset| from + offset + end.len())
}

fn end_of_block_comment(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (1, at + 2);
    while end < bytes.len() && depth > 0 {
        let step = match &bytes[end..] {
            [b'/', b'*', ..] => 1,
            [b'*', b'/', ..] => -1,
            _ => 0,
        };
        depth += step;
        end += if step == 0 { 1 } else { 2 };
    }
    end
}

fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

fn end_of_raw_string(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return at;
    }
    let end = [&b"\""[..], &b"#".repeat(hashes)].concat();
    end_after(bytes, open + 1, &end).min(bytes.len())
}

/// Returns the end of a character literal; the quote of a lifetime begins none.
fn end_of_character(text: &str, at: usize) -> usize {
    let mut letters = text[at + 1..].char_indices();
    match letters.next() {
        Some((_, '\\')) => {
            letters.next();
            letters.find(|(_, letter)| *letter == '\'').map_or(at, |(offset, _)| at + offset + 2)
        }
        Some((_, letter)) if letter != '\'' => match letters.next() {
            Some((offset, '\'')) => at + offset + 2,
            _ => at,
        },
        _ => at,
    }
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Blanks each item with `#[cfg(test)]`, and returns the names of the modules among them that have files.
fn remove_test_items(code: &mut String) -> Vec<String> {
    const MARK: &str = "#[cfg(test)]";
    let mut modules = Vec::new();
    while let Some(start) = code.find(MARK) {
        let item = skip_attributes(code, start + MARK.len());
        let end = end_of_item(code, item);
        let text = &code[item..end];
        if let Some((_, name)) = text.strip_suffix(';').and_then(|text| text.rsplit_once("mod ")) {
            modules.push(name.trim().to_owned());
        }
        let mut bytes = std::mem::take(code).into_bytes();
        blank(&mut bytes[start..end]);
        *code = String::from_utf8(bytes).expect("items begin and end at ASCII characters");
    }
    modules
}

fn skip_attributes(code: &str, mut at: usize) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        at = end_after(code.as_bytes(), at, b"]").min(code.len());
    }
}

/// Returns the end of the item that begins here: its `;`, or the brace that closes its block.
///
/// An item that is a field, a variant or an arm ends with its comma.
fn end_of_item(code: &str, at: usize) -> usize {
    const ITEMS: [&str; 14] = [
        "pub", "mod", "fn", "impl", "use", "const", "static", "struct", "enum", "trait", "type", "async", "unsafe",
        "macro_rules",
    ];
    let word: String = code[at..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    let ends: &[char] = if ITEMS.contains(&word.as_str()) { &['{', ';'] } else { &[',', ';', '}'] };
    match code[at..].find(ends) {
        Some(offset) if code.as_bytes()[at + offset] == b'{' => end_of_block(code, at + offset),
        Some(offset) if code.as_bytes()[at + offset] == b'}' => at + offset,
        Some(offset) => at + offset + 1,
        None => code.len(),
    }
}

/// Returns the offset after the brace that closes the block opened here.
pub(crate) fn end_of_block(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return offset + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::{Source, without_comments_and_literals};

    #[test]
    fn comments_and_literals_become_blanks() {
        for (text, code) in [
            ("a // b", "a     "),
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ \n */ d", "a              \n    d"),
            (r#"f("a \" b", c)"#, "f(        , c)"),
            (r###"f(r#"a " b"#, br"c")"###, "f(          , b    )"),
            ("f('\"', '\\'', 'x, \"y\")", "f(   ,     , 'x,    )"),
            ("for<'a> fn(&'a str) -> char { 'b' }", "for<'a> fn(&'a str) -> char {     }"),
            ("'\\u{2192}' 'ß' b", "                b"),
        ] {
            assert_eq!(without_comments_and_literals(text).trim_end(), code.trim_end(), "{text}");
        }
    }

    #[test]
    fn test_items_become_blanks() {
        for (text, kept) in [
            ("fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c(); } }\nfn d() {}", "fn a() {} fn d() {}"),
            ("#[cfg(test)]\n#[allow(x)]\nuse b::C;\nuse d::E;", "use d::E;"),
            ("struct A {\n#[cfg(test)]\nb: C,\nd: E,\n}", "struct A { d: E, }"),
            ("struct A {\nd: E,\n#[cfg(test)]\nb: C\n}", "struct A { d: E, }"),
        ] {
            let source = Source::parse(text);
            assert_eq!(source.code.split_whitespace().collect::<Vec<_>>().join(" "), kept, "{text}");
            assert_eq!(source.code.len(), text.len());
        }
    }

    #[test]
    fn modules_of_tests_are_named() {
        let source = Source::parse("mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod fixture;\n");
        assert_eq!(source.test_modules, ["tests", "fixture"]);
        assert_eq!(source.code.trim_end(), "mod a;");
    }

    #[test]
    fn the_module_doc_says_pure() {
        assert!(Source::parse("//! A list.\n//!\n//! Pure but for its lock.\nuse a;").says_pure());
        assert!(!Source::parse("//! Purely a list.\n// Pure.\n/// Pure.\nfn pure() {}").says_pure());
    }
}
