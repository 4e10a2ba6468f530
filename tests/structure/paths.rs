//! The paths that a file names: its `use` declarations, written out, and the paths in its code.
//!
//! Pure.

use crate::source::Source;

/// A path, and where the file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    pub(crate) kind: PathKind,
}

/// The way in which a file names a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// `use a::b;`
    Import,
    /// `pub use a::b;`, with any visibility.
    ReExport,
    /// `a::b` in code.
    Code,
}

impl NamedPath {
    /// Returns the path as source code.
    pub(crate) fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// Returns each path of a file, in order; a name alone in code is not a path.
pub(crate) fn paths_of(source: &Source) -> Vec<NamedPath> {
    let code = &source.code;
    let (mut paths, mut at) = (Vec::new(), 0);
    while let Some((start, word)) = next_word(code, at) {
        at = start + word.len();
        if word == "use" {
            let end = code[at..].find(';').map_or(code.len(), |offset| at + offset);
            let kind = if is_public(&code[..start]) { PathKind::ReExport } else { PathKind::Import };
            let line = source.line_of(start);
            paths.extend(written_out(&code[at..end]).into_iter().map(|segments| NamedPath { segments, line, kind }));
            at = end;
            continue;
        }
        if code[start..at].starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        let mut segments = vec![word.to_owned()];
        while let Some(next) = next_segment(code, at) {
            segments.push(next.1.to_owned());
            at = next.0 + next.1.len();
        }
        if segments.len() > 1 {
            paths.push(NamedPath { segments, line: source.line_of(start), kind: PathKind::Code });
        }
    }
    paths
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn word_at(code: &str, start: usize) -> &str {
    let rest = &code[start..];
    &rest[..rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())]
}

fn next_word(code: &str, at: usize) -> Option<(usize, &str)> {
    let start = at + code[at..].find(is_word)?;
    Some((start, word_at(code, start)))
}

/// Returns the segment that follows `::` at this offset; blanks may surround the colons.
fn next_segment(code: &str, at: usize) -> Option<(usize, &str)> {
    let colons = at + code[at..].find(|letter: char| !letter.is_whitespace())?;
    let after = code[colons..].strip_prefix("::").map(|_| colons + 2)?;
    let start = after + code[after..].find(|letter: char| !letter.is_whitespace())?;
    let word = word_at(code, start);
    (!word.is_empty()).then_some((start, word))
}

/// Returns true if the text before a `use` ends with a visibility.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let before = match before.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')) {
        Some((visibility, _)) => visibility.trim_end(),
        None => before,
    };
    before.strip_suffix("pub").is_some_and(|rest| !rest.ends_with(is_word))
}

/// Returns the paths of a tree such as `a::{b, c::{self, d as e}}`.
fn written_out(tree: &str) -> Vec<Vec<String>> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let segments = path.split("::").map(|segment| segment.trim().to_owned());
        let segments: Vec<String> = segments.filter(|segment| !segment.is_empty()).collect();
        return if segments.is_empty() { Vec::new() } else { vec![segments] };
    };
    let prefix: Vec<String> =
        prefix.split("::").map(|segment| segment.trim().to_owned()).filter(|segment| !segment.is_empty()).collect();
    let inner = rest.rfind('}').map_or(rest, |end| &rest[..end]);
    let mut paths = Vec::new();
    for branch in branches(inner) {
        for path in written_out(branch) {
            let whole =
                prefix.iter().cloned().chain(path.into_iter().filter(|segment| segment != "self" || prefix.is_empty()));
            paths.push(whole.collect());
        }
    }
    paths
}

/// Splits the inside of a group at the commas that are not in an inner group.
fn branches(inner: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&inner[start..]);
    found
}

#[cfg(test)]
mod tests {
    use super::{PathKind, paths_of};
    use crate::source::Source;

    fn texts(code: &str, kind: PathKind) -> Vec<String> {
        let paths = paths_of(&Source::parse(code));
        paths.iter().filter(|path| path.kind == kind).map(super::NamedPath::text).collect()
    }

    #[test]
    fn imports_are_written_out() {
        let code = "use std::{fs, io::{self, Read as _}};\nuse crate::a::B as C;\nuse d;";
        assert_eq!(texts(code, PathKind::Import), ["std::fs", "std::io", "std::io::Read", "crate::a::B", "d"]);
    }

    #[test]
    fn re_exports_are_distinguished_from_imports() {
        let code = "pub use a::B;\npub(crate) use c::D;\npub(in crate::x) use e::F;\nuse g::H;\nfn f() { use i::J; }";
        assert_eq!(texts(code, PathKind::ReExport), ["a::B", "c::D", "e::F"]);
        assert_eq!(texts(code, PathKind::Import), ["g::H", "i::J"]);
    }

    #[test]
    fn code_names_paths() {
        let code = "fn f(x: a::B<c::D>) { super::g::<E>(h::\n i()); j; 1.0; }";
        assert_eq!(texts(code, PathKind::Code), ["a::B", "c::D", "super::g", "h::i"]);
    }

    #[test]
    fn paths_know_their_lines() {
        let paths = paths_of(&Source::parse("use a::b;\n\nfn f() {\n    c::d();\n}"));
        assert_eq!(paths.iter().map(|path| path.line).collect::<Vec<_>>(), [1, 4]);
    }
}
