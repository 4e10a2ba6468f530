//! The size of files and functions.
//!
//! Pure.

use crate::source::{Source, end_of_block};
use crate::violation::Violation;

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 100;

/// Returns the files and the functions that are too long.
pub(crate) fn violations<'a>(files: impl Iterator<Item = (&'a str, &'a Source)>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in files {
        if source.lines > FILE_LINES_MAX {
            let what = format!("{} lines; the limit is {FILE_LINES_MAX}", source.lines);
            found.push(Violation::new("file size", file, source.lines, what));
        }
        for (name, line, lines) in functions(source).into_iter().filter(|(.., lines)| *lines > FUNCTION_LINES_MAX) {
            let what = format!("{name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}");
            found.push(Violation::new("function size", file, line, what));
        }
    }
    found
}

/// Returns each function that has a body: its name, its first line, and the number of its lines.
fn functions(source: &Source) -> Vec<(String, usize, usize)> {
    let code = &source.code;
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let is_keyword = !code[..start].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let name: String =
            code[start + 3..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        let Some(open) = body_of(code, start).filter(|_| is_keyword && !name.is_empty()) else {
            continue;
        };
        let first = source.line_of(start);
        let last = source.line_of(end_of_block(code, open) - 1);
        found.push((name, first, last - first + 1));
    }
    found
}

/// Returns the brace that opens the body of the function that begins here; a declaration has none.
fn body_of(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{functions, violations};
    use crate::source::Source;

    fn found(text: &str) -> Vec<String> {
        let source = Source::parse(text);
        violations([("a.rs", &source)].into_iter()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_of_401_lines_is_too_long() {
        assert!(found(&"// line\n".repeat(400)).is_empty());
        assert_eq!(found(&"// line\n".repeat(401)), ["a.rs:401: file size: 401 lines; the limit is 400"]);
    }

    #[test]
    fn a_function_of_101_lines_is_too_long() {
        let function =
            |lines: usize| format!("impl A {{\n    fn long(\n) {{\n{}    }}\n}}\n", "call();\n".repeat(lines - 3));
        assert!(found(&function(100)).is_empty());
        assert_eq!(found(&function(101)), ["a.rs:2: function size: long has 101 lines; the limit is 100"]);
    }

    #[test]
    fn tests_may_be_long() {
        let text = format!("#[cfg(test)]\nmod tests {{\nfn long() {{\n{}}}\n}}\n", "call();\n".repeat(200));
        assert!(found(&text).is_empty());
    }

    #[test]
    fn functions_are_measured_with_their_signature() {
        let text = "trait A { fn declared(&self) -> [u8; 2]; }\nfn one() {}\nfn three(a: [u8; 3])\nwhere\n{ if a { b } }\nfn\n";
        let sizes = functions(&Source::parse(text));
        assert_eq!(sizes, [("one".to_owned(), 2, 1), ("three".to_owned(), 3, 3)]);
    }
}
