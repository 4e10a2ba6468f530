//! The header that makes an answer a file to store, with a name that a sandbox may have chosen.
//!
//! Pure.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Maximum length of a name in characters.
const NAME_MAX: usize = 200;
/// Bytes that RFC 8187 does not leave as they are.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'~');

/// Returns the value of `Content-Disposition` for a name, or for the last part of a path.
pub(super) fn attachment(path: &[u8]) -> HeaderValue {
    let name = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"file");
    let name: String = String::from_utf8_lossy(name).chars().take(NAME_MAX).map(visible).collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let encoded = percent_encode(name.as_bytes(), ENCODED);
    let text = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}

/// Replaces characters that a name does not show, or that reorder it.
fn visible(c: char) -> char {
    let hides = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    if c.is_control() || hides || c == '\\' { '_' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        for (path, plain, encoded) in [
            (&b"/workspace/a.txt"[..], "a.txt", "a.txt"),
            (b"/workspace/d/", "d", "d"),
            (b"/", "file", "file"),
            (b"x\"; filename=\"y.exe", "x___filename__y.exe", "x%22%3B%20filename%3D%22y.exe"),
            (b"a\r\nSet-Cookie: b", "a__Set-Cookie__b", "a__Set-Cookie%3A%20b"),
            ("é".as_bytes(), "_", "%C3%A9"),
            ("a\u{202e}txt.exe".as_bytes(), "a_txt.exe", "a_txt.exe"),
            (b"\xff", "_", "%EF%BF%BD"),
            (b"..\\..\\a", ".._.._a", ".._.._a"),
        ] {
            let expected = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
            assert_eq!(attachment(path).to_str().expect("it is ASCII"), expected);
        }
        assert!(attachment(&[b'a'; 5000]).len() < 500);
    }
}
