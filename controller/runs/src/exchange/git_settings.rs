//! The format of git's configuration, read as git reads it, and written.
//!
//! Pure.

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// Section in lower case.
    pub(super) section: Vec<u8>,
    pub(super) subsection: Option<Vec<u8>>,
    /// Name in lower case.
    pub(super) name: Vec<u8>,
    /// `None` for a name without `=`.
    pub(super) value: Option<Vec<u8>>,
}

/// Returns the settings of a configuration, or the number of the line that git does not read.
pub(super) fn parse(config: &[u8]) -> Result<Vec<Setting>, usize> {
    let mut reader = Reader { rest: config.strip_prefix(b"\xef\xbb\xbf").unwrap_or(config), line: 1 };
    let (mut section, mut subsection) = (Vec::new(), None);
    let mut settings = Vec::new();
    while let Some(byte) = reader.next() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => (section, subsection) = reader.section().ok_or(reader.line)?,
            _ if is_space(byte) => {}
            _ if byte.is_ascii_alphabetic() => {
                let (name, value) = reader.setting(byte).ok_or(reader.line)?;
                settings.push(Setting { section: section.clone(), subsection: subsection.clone(), name, value });
            }
            _ => return Err(reader.line),
        }
    }
    Ok(settings)
}

/// Writes settings as a configuration.
pub(super) fn write<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut head = None;
    for Setting { section, subsection, name, value } in settings {
        if head != Some((section, subsection)) {
            text.push(b'[');
            text.extend_from_slice(section);
            if let Some(subsection) = subsection {
                text.extend_from_slice(b" \"");
                for byte in subsection {
                    text.extend(matches!(byte, b'"' | b'\\').then_some(b'\\'));
                    text.push(*byte);
                }
                text.push(b'"');
            }
            text.extend_from_slice(b"]\n");
            head = Some((section, subsection));
        }
        text.push(b'\t');
        text.extend_from_slice(name);
        if let Some(value) = value {
            text.extend_from_slice(b" = ");
            write_value(value, &mut text);
        }
        text.push(b'\n');
    }
    text
}

fn write_value(value: &[u8], text: &mut Vec<u8>) {
    let is_plain = |byte: &u8| !is_space(*byte) && !b"#;\"\\\x08".contains(byte);
    let has_edge = [value.first(), value.last()].into_iter().flatten().any(|byte| is_space(*byte));
    if !has_edge && value.iter().all(|byte| is_plain(byte) || *byte == b' ') {
        text.extend_from_slice(value);
        return;
    }
    text.push(b'"');
    for byte in value {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'\x08' => text.extend_from_slice(b"\\b"),
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            _ => text.push(*byte),
        }
    }
    text.push(b'"');
}

/// White space as git's own `isspace` has it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        if let Some(rest) = self.rest.strip_prefix(b"\r\n") {
            self.rest = rest;
            self.line += 1;
            return Some(b'\n');
        }
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.line += usize::from(*byte == b'\n');
        Some(*byte)
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    /// Reads the rest of a section's head.
    fn section(&mut self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut name = Vec::new();
        let quoted = loop {
            match self.next()? {
                b']' => break None,
                b'\n' => return None,
                byte if is_space(byte) => break Some(self.subsection()?),
                byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') => {
                    name.push(byte.to_ascii_lowercase());
                }
                _ => return None,
            }
        };
        // The old form: [section.subsection].
        match name.iter().position(|byte| *byte == b'.') {
            Some(at) => {
                let old = name[at + 1..].to_vec();
                let subsection = quoted.map_or(old.clone(), |quoted| [&old, b".".as_slice(), &quoted].concat());
                Some((name[..at].to_vec(), Some(subsection)))
            }
            None => Some((name, quoted)),
        }
    }

    fn subsection(&mut self) -> Option<Vec<u8>> {
        let mut byte = self.next()?;
        while is_space(byte) && byte != b'\n' {
            byte = self.next()?;
        }
        if byte != b'"' {
            return None;
        }
        let mut name = Vec::new();
        loop {
            let byte = match self.next()? {
                b'"' => break,
                b'\\' => self.next()?,
                byte => byte,
            };
            if byte == b'\n' {
                return None;
            }
            name.push(byte);
        }
        (self.next()? == b']').then_some(name)
    }

    fn setting(&mut self, first: u8) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut name = vec![first.to_ascii_lowercase()];
        // The end of the file ends a line.
        let mut byte = self.next().unwrap_or(b'\n');
        while byte.is_ascii_alphanumeric() || byte == b'-' {
            name.push(byte.to_ascii_lowercase());
            byte = self.next().unwrap_or(b'\n');
        }
        while matches!(byte, b' ' | b'\t') {
            byte = self.next().unwrap_or(b'\n');
        }
        match byte {
            b'\n' => Some((name, None)),
            b'=' => Some((name, Some(self.value()?))),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        // Length without unquoted white space at the end.
        let mut length = 0;
        let mut is_quoted = false;
        loop {
            let byte = self.next().unwrap_or(b'\n');
            match byte {
                b'\n' if is_quoted => return None,
                b'\n' => break,
                _ if is_space(byte) && !is_quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b'#' | b';' if !is_quoted => {
                    self.skip_line();
                    break;
                }
                b'"' => is_quoted = !is_quoted,
                b'\\' => match self.next().unwrap_or(b'\n') {
                    b'\n' => continue,
                    b't' => value.push(b'\t'),
                    b'b' => value.push(b'\x08'),
                    b'n' => value.push(b'\n'),
                    escaped @ (b'\\' | b'"') => value.push(escaped),
                    _ => return None,
                },
                _ => value.push(byte),
            }
            length = value.len();
        }
        value.truncate(length);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str) -> Result<Vec<String>, usize> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let one = |setting: &Setting| {
            let subsection = setting.subsection.as_ref().map(|name| format!("<{}>", text(name))).unwrap_or_default();
            let value = setting.value.as_ref().map_or("-".to_owned(), |value| format!("={}", text(value)));
            format!("{}{subsection}.{}{value}", text(&setting.section), text(&setting.name))
        };
        Ok(parse(config.as_bytes())?.iter().map(one).collect())
    }

    #[test]
    fn settings_are_read_as_git_reads_them() {
        for (config, expected) in [
            ("[http] extraheader = x\n", "http.extraheader=x"),
            ("[A \"b \\\"c\"]\r\n\tName= two words  ; comment\r\n", "a<b \"c>.name=two words"),
            ("[a.B]x\n", "a<b>.x-"),
            ("[a]\n\tx = one\\\n two\n", "a.x=one two"),
            ("[a]\n\tx = \"a # b\" # c\n", "a.x=a # b"),
            ("[a]\n\tx = \" y \"z\\t\n", "a.x= y z\t"),
            ("\u{feff}[a]x=", "a.x="),
            ("# [b]\n[a]\n; y = 1\nx = /hooks#dir", "a.x=/hooks"),
        ] {
            assert_eq!(read(config), Ok(vec![expected.to_owned()]), "{config:?}");
        }
        for (config, line) in [("[a]\nx = \"y\n", 3), ("[a\n", 2), ("[a]\n1 = x", 2), ("[a \"b\nc\"]", 2), ("[a]x;", 1)]
        {
            assert_eq!(read(config), Err(line), "{config:?}");
        }
    }

    #[test]
    fn written_settings_are_the_same() {
        let config = b"[a \"b\\\\\\\"\"]\nx = \" y;\\n\\\\\"\nz = plain # comment\n[c]\nflag\nempty =\n";
        let settings = parse(config).expect("it is valid");
        let written = write(&settings);
        assert_eq!(parse(&written), Ok(settings), "{}", String::from_utf8_lossy(&written));
        assert!(!written.windows(7).any(|part| part == b"comment"));
    }
}
