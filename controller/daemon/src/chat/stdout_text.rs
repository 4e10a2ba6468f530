//! The text of an answer in a program's stdout, as it comes.
//!
//! Pure. For a plain program, stdout is the text. An envelope agent prints lines `{"delta": "text"}` as it streams, and then
//! its envelope, whose text is the answer if there were no such lines.

use sluice_runs::envelope;
use sluice_runs::verdict::Contract;

/// Maximum number of bytes of a kept line. A longer line cannot be a valid envelope.
const LINE_MAX: usize = 4 << 20;

/// Reads a program's stdout.
#[derive(Debug)]
pub(super) struct StdoutText {
    contract: Contract,
    /// Bytes that are not used yet: half of a character, or the beginning of a line.
    rest: Vec<u8>,
    /// Bytes of the rest that have no end of a line.
    scanned: usize,
    /// True after the first line that is not a delta: the rest is the envelope.
    is_envelope: bool,
    /// True after a line that is too long. The rest is ignored.
    is_too_long: bool,
    /// Text of all deltas of a streaming agent.
    said: String,
}

impl StdoutText {
    pub(super) fn new(contract: Contract) -> Self {
        let (rest, said) = (Vec::new(), String::new());
        Self { contract, rest, scanned: 0, is_envelope: false, is_too_long: false, said }
    }

    /// Returns the text that is complete with these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        if self.is_too_long {
            return String::new();
        }
        self.rest.extend_from_slice(bytes);
        match self.contract {
            Contract::Plain => take_text(&mut self.rest),
            Contract::Envelope => self.take_lines(),
        }
    }

    /// Returns the rest of the text at the end of the stream.
    pub(super) fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        self.scanned = 0;
        let rest = String::from_utf8_lossy(&rest);
        match self.contract {
            Contract::Plain => rest.into_owned(),
            Contract::Envelope => self.envelope(&rest),
        }
    }

    fn take_lines(&mut self) -> String {
        let mut text = String::new();
        while !self.is_envelope {
            let Some(end) = self.rest[self.scanned..].iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.rest.len();
                break;
            };
            let end = self.scanned + end;
            match std::str::from_utf8(&self.rest[..end]).ok().and_then(envelope::delta) {
                Some(delta) => {
                    text += &delta;
                    self.rest.drain(..=end);
                    self.scanned = 0;
                }
                None => self.is_envelope = true,
            }
        }
        if self.rest.len() > LINE_MAX {
            self.is_too_long = true;
            self.rest.clear();
        }
        self.said += &text;
        text
    }

    /// Returns the part of the envelope's text that the earlier lines did not have.
    fn envelope(&self, text: &str) -> String {
        let Ok(envelope) = envelope::parse(text) else { return String::new() };
        match envelope.content.strip_prefix(self.said.as_str()) {
            Some(more) => more.to_owned(),
            None => String::new(),
        }
    }
}

/// Takes all whole characters. Bytes that are not part of a character become U+FFFD.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text += valid;
                bytes.clear();
                return text;
            }
            Err(error) => {
                let valid = error.valid_up_to();
                text += &String::from_utf8_lossy(&bytes[..valid]);
                let Some(invalid) = error.error_len() else {
                    bytes.drain(..valid);
                    return text;
                };
                text.push('\u{fffd}');
                bytes.drain(..valid + invalid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(contract: Contract, output: &[u8], cuts: &[usize]) -> String {
        let mut reader = StdoutText::new(contract);
        let (mut text, mut at) = (String::new(), 0);
        for cut in cuts.iter().copied().chain([output.len()]) {
            let to = cut.clamp(at, output.len());
            text += &reader.push(&output[at..to]);
            at = to;
        }
        text + &reader.finish()
    }

    #[test]
    fn bytes_after_the_end_are_read() {
        let mut reader = StdoutText::new(Contract::Envelope);
        assert_eq!((reader.push(b"{\"del"), reader.finish()), (String::new(), String::new()));
        assert_eq!(reader.push(b"{\"delta\":\"a\"}\n"), "a");
    }

    #[test]
    fn the_text_of_each_contract() {
        let envelope = |output: &str| read(Contract::Envelope, output.as_bytes(), &[]);
        assert_eq!(envelope("{\"payloads\":[{\"text\":\"a\"},{\"text\":\"b\"}]}\n"), "a\nb");
        let streamed = "{\"delta\":\"a\"}\n{\"delta\":\"b\"}\n";
        assert_eq!(envelope(&format!("{streamed}{{\"payloads\":[{{\"text\":\"ab\"}}]}}")), "ab");
        assert_eq!(envelope(&format!("{streamed}{{\"payloads\":[{{\"text\":\"abc\"}}]}}")), "abc");
        assert_eq!(envelope(&format!("{streamed}{{\"payloads\":[{{\"text\":\"other\"}}]}}")), "ab", "it was said");
        assert_eq!(envelope(streamed), "ab", "an agent that died");
        assert_eq!(envelope("log\n{\"delta\":\"a\"}\n"), "");
        assert_eq!(read(Contract::Plain, b"a\xff\xe2\x82\xacb\xe2", &[]), "a\u{fffd}€b\u{fffd}");
    }

    #[test]
    fn a_delta_is_there_with_its_line() {
        let mut reader = StdoutText::new(Contract::Envelope);
        assert_eq!(reader.push(b"{\"delta\":\"a\"}\n{\"del"), "a");
        assert_eq!(reader.push(b"ta\":\"b\"}\n"), "b");
        let mut reader = StdoutText::new(Contract::Plain);
        assert_eq!((reader.push(b"a\xe2"), reader.push(b"\x82\xac")), ("a".to_owned(), "€".to_owned()));
    }

    #[test]
    fn nothing_counts_after_a_line_that_is_too_long() {
        let mut reader = StdoutText::new(Contract::Envelope);
        assert_eq!(reader.push("{\"delta\":\"a\"}\n".as_bytes()), "a");
        reader.push(&vec![b'x'; LINE_MAX + 1]);
        assert_eq!(reader.push(b"\n{\"delta\":\"b\"}\n{\"payloads\":[{\"text\":\"abc\"}]}"), "");
        assert_eq!((reader.rest.len(), reader.finish()), (0, String::new()));
    }

    proptest! {
        #[test]
        fn cuts_change_no_text(text in "[a€\u{1f600}\n\"{]{0,20}", mut cuts in proptest::collection::vec(0..80_usize, 0..8)) {
            cuts.sort_unstable();
            let plain = text.as_bytes();
            prop_assert_eq!(read(Contract::Plain, plain, &cuts), text.clone());
            let lines = text.chars().map(|part| format!("{}\n", serde_json::json!({ "delta": part.to_string() })));
            let streamed = lines.collect::<String>() + &serde_json::json!({ "payloads": [{ "text": text }] }).to_string();
            prop_assert_eq!(read(Contract::Envelope, streamed.as_bytes(), &cuts), text);
        }
    }
}
