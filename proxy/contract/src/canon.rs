//! The canonical form of a line (RFC 8785, and narrower): one spelling for each value.
//!
//! Pure. A canonical line has no blanks, names of printable ASCII in rising order, no numbers but integers below 2^53,
//! and strings with the necessary escapes only, each in its shortest form. So equal content has equal bytes and an
//! equal hash.

use std::ops::Range;

/// Maximum depth of nesting.
const DEPTH_MAX: u32 = 32;

/// A top-level member of a line, with the position of its name, colon and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name as it is in the line, without escapes.
    pub name: &'a [u8],
    /// Range from the quote of the name to the end of the value.
    pub span: Range<usize>,
}

/// Position from which the text is not in canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not in canonical form from byte {0} on")]
pub struct NotCanonical(pub usize);

/// Returns the members of a text that is one object in canonical form.
///
/// # Errors
/// [`NotCanonical`]
pub fn members(text: &[u8]) -> Result<Vec<Member<'_>>, NotCanonical> {
    let utf8 = std::str::from_utf8(text);
    if let Err(error) = utf8 {
        return Err(NotCanonical(error.valid_up_to()));
    }
    let mut scan = Scan { text, at: 0 };
    let mut members = Vec::with_capacity(24);
    let done = scan.object(0, &mut |member| members.push(member));
    if done.is_some() && scan.at == text.len() { Ok(members) } else { Err(NotCanonical(scan.at)) }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn value(&mut self, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'{' => self.object(depth, &mut |_| {}),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.integer(),
        }
    }

    fn object(&mut self, depth: u32, each: &mut dyn FnMut(Member<'a>)) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        let mut last: Option<&[u8]> = None;
        loop {
            let start = self.at;
            let name = self.name()?;
            if last.is_some_and(|last| last >= name) {
                self.at = start;
                return None;
            }
            self.take(b':')?;
            self.value(depth + 1)?;
            each(Member { name, span: start..self.at });
            last = Some(name);
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    fn array(&mut self, depth: u32) -> Option<()> {
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let start = self.at;
        while matches!(self.peek()?, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~') {
            self.at += 1;
        }
        let name = &self.text[start..self.at];
        self.take(b'"')?;
        Some(name)
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            match self.peek()? {
                b'"' => break self.take(b'"'),
                b'\\' => self.escape()?,
                0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        match rest.get(1)? {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                // Only control characters without a short form are escaped in this way.
                let digits = std::str::from_utf8(rest.get(2..6)?).ok()?;
                let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                let code = u8::try_from(u32::from_str_radix(digits, 16).ok()?).ok()?;
                if !lower || code > 0x1f || matches!(code, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d) {
                    return None;
                }
                self.at += 6;
            }
            _ => return None,
        }
        Some(())
    }

    fn integer(&mut self) -> Option<()> {
        let start = self.at;
        let negative = self.take(b'-').is_some();
        let digits = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[digits..self.at]).ok()?;
        let plain = text == "0" && !negative || !text.starts_with('0');
        // A fraction or an exponent may follow; the caller refuses it.
        if plain && text.parse::<u64>().is_ok_and(|number| number < 1 << 53) {
            Some(())
        } else {
            self.at = start;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn is_canonical(text: &str) -> bool {
        members(text.as_bytes()).is_ok()
    }

    #[test]
    fn there_is_one_spelling_for_each_value() {
        for good in [
            "{}",
            r#"{"a":1}"#,
            r#"{"a":{"b":[],"c":{}},"b":[1,"x",null,true,false,-1,0,{"z":9007199254740991}]}"#,
            r#"{"a":"é\u0000\u001f\b\t\n\f\r\"\\/ \u007f"}"#.replace("\\u007f", "\u{7f}").as_str(),
        ] {
            assert!(is_canonical(good), "{good}");
        }
        for bad in [
            "", "[]", "{} ", " {}", "{}{}", r#"{"a": 1}"#, r#"{"b":1,"a":1}"#, r#"{"a":1,"a":1}"#, r#"{"a":1,}"#,
            r#"{"a":1.0}"#, r#"{"a":1e3}"#, r#"{"a":01}"#, r#"{"a":-0}"#, r#"{"a":-}"#, r#"{"a":9007199254740992}"#,
            r#"{"a":"\u0041"}"#, r#"{"a":"\u000a"}"#, r#"{"a":"\u001F"}"#, r#"{"a":"\/"}"#, r#"{"a":"\ud83d\ude00"}"#,
            "{\"a\":\"\t\"}", r#"{"é":1}"#, r#"{"a\"":1}"#, r#"{"a":tru}"#, r#"{"a":[1,]}"#, r#"{"a"}"#, r#"{"a":"x}"#,
        ] {
            assert!(!is_canonical(bad), "{bad}");
        }
        let deep = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(is_canonical(&deep(30)) && !is_canonical(&deep(40)) && !is_canonical(&deep(100_000)));
    }

    #[test]
    fn members_stand_where_they_say() {
        let text = br#"{"a":"x","b":{"a":1},"c":null}"#;
        let members = members(text).expect("canonical");
        let shown: Vec<_> = members.iter().map(|member| std::str::from_utf8(&text[member.span.clone()])).collect();
        assert_eq!(shown, [Ok(r#""a":"x""#), Ok(r#""b":{"a":1}"#), Ok(r#""c":null"#)]);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-(1i64 << 53) + 1..1 << 53).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[ -!#-\\[\\]-~]{0,8}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn serde_writes_sorted_members_canonically(value in value()) {
            let text = format!("{{\"a\":{value}}}");
            prop_assert!(is_canonical(&text), "{text}");
        }

        #[test]
        fn serde_writes_canonical_text_unchanged(text in "[{}\\[\\]:,\"\\\\a01u\\-. tnf]{0,40}") {
            if is_canonical(&text) {
                let value: Value = serde_json::from_str(&text).expect("JSON");
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
