//! Strings and numbers: the parts of the scanner that keep some of the text.
//!
//! Pure.

use super::grammar::{decoded, is_number, number_run};
use super::plain::{plain, plain_or_escaped};
use super::{JsonError, JsonScalar, JsonVisitor, ScanState, Scanner, StrPrefix, TEXT_MAX};

impl Scanner {
    pub(super) fn start_string(&mut self, is_key: bool, here: u64) {
        self.is_key = is_key;
        self.start = here;
        self.text.clear();
        self.complete = true;
        self.at = ScanState::String;
    }

    /// Reads to the end of the string, or to the end of the piece.
    pub(super) fn string<V: JsonVisitor>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let (len, mut ascii) = plain(&piece[i..]);
        let mut end = i + len;
        if piece.get(end) == Some(&b'"') && ascii && self.text.is_empty() && self.complete {
            // The common case: the whole string lies in this piece, without an escape.
            let head = &piece[i..end.min(i + TEXT_MAX)];
            let text = StrPrefix { head, complete: head.len() == len };
            if !text.complete && !self.is_key && visit.wants_rest(self.depth, head) {
                visit.rest(&piece[i + TEXT_MAX..end]);
            }
            return self.end_string(text, piece, end + 1, visit);
        }
        let mut run = i;
        let stop = loop {
            match piece.get(end) {
                None => break None,
                Some(b'"') => break Some(b'"'),
                // Text is full of escapes: those that lie whole in the piece are decoded here.
                Some(b'\\') => match decoded(&piece[end..]) {
                    Some((decoded, len)) => {
                        self.keep(&piece[run..end], visit);
                        self.keep(decoded.encode_utf8(&mut [0; 4]).as_bytes(), visit);
                        end += len;
                        run = end;
                    }
                    None => break Some(b'\\'),
                },
                Some(_) => return Err(JsonError::String(self.offset + end as u64).into()),
            }
            let rest = &piece[end..];
            // Text that is neither kept nor read by the visitor need not be decoded.
            let decodes = self.complete || self.reads_rest;
            let (len, more_ascii) = if decodes { plain(rest) } else { plain_or_escaped(rest) };
            end += len;
            ascii &= more_ascii;
        };
        // An escape is ASCII, so the text between two of them is UTF-8 exactly if all of it is.
        if !(ascii && self.utf8.is_complete() || self.utf8.feed(&piece[i..end], stop.is_some())) {
            return Err(JsonError::String(self.offset + i as u64).into());
        }
        self.keep(&piece[run..end], visit);
        match stop {
            None => Ok(end),
            Some(b'"') => {
                let text = std::mem::take(&mut self.text);
                let ended = self.end_string(StrPrefix { head: &text, complete: self.complete }, piece, end + 1, visit);
                self.text = text;
                ended
            }
            Some(_) => {
                self.at = ScanState::Escape;
                Ok(end + 1)
            }
        }
    }

    /// Ends a string after the closing quote. The colon that mostly follows is read here as well.
    pub(super) fn end_string<V: JsonVisitor>(
        &mut self,
        text: StrPrefix<'_>,
        piece: &[u8],
        i: usize,
        visit: &mut V,
    ) -> Result<usize, V::Stop> {
        if !self.is_key {
            visit.scalar(self.depth, JsonScalar::String(text), self.start, self.offset + i as u64)?;
            self.after_value();
            return Ok(i);
        }
        visit.key(self.depth, text, self.start)?;
        let colon = piece.get(i) == Some(&b':');
        self.at = if colon { ScanState::Value } else { ScanState::Colon };
        Ok(i + usize::from(colon))
    }

    /// Takes decoded text: keeps the beginning of the string, and gives the rest to a visitor that reads it.
    pub(super) fn keep<V: JsonVisitor>(&mut self, run: &[u8], visit: &mut V) {
        let room = TEXT_MAX - self.text.len();
        if run.len() <= room {
            return self.text.extend_from_slice(run);
        }
        self.text.extend_from_slice(&run[..room]);
        if self.complete {
            self.complete = false;
            self.reads_rest = !self.is_key && visit.wants_rest(self.depth, &self.text);
        }
        if self.reads_rest {
            visit.rest(&run[room..]);
        }
    }

    pub(super) fn escape<V: JsonVisitor>(&mut self, b: u8, here: u64, visit: &mut V) -> Result<(), JsonError> {
        let decoded = match b {
            b'"' | b'\\' | b'/' => b,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at = ScanState::Hex { left: 4, code: 0 };
                return Ok(());
            }
            _ => return Err(JsonError::String(here)),
        };
        self.keep(&[decoded], visit);
        self.at = ScanState::String;
        Ok(())
    }

    pub(super) fn unicode<V: JsonVisitor>(&mut self, code: u16, here: u64, visit: &mut V) -> Result<(), JsonError> {
        let units = match self.high.take() {
            Some(high) => [high, code],
            None if (0xD800..0xDC00).contains(&code) => {
                self.high = Some(code);
                self.at = ScanState::LowEscape;
                return Ok(());
            }
            None => [code, 0],
        };
        let decoded = char::decode_utf16(units).next().and_then(Result::ok).ok_or(JsonError::String(here))?;
        self.keep(decoded.encode_utf8(&mut [0; 4]).as_bytes(), visit);
        self.at = ScanState::String;
        Ok(())
    }

    pub(super) fn number<V: JsonVisitor>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let rest = &piece[i..];
        let len = number_run(rest);
        if self.text.len() + len > TEXT_MAX {
            return Err(JsonError::Number(self.start).into());
        }
        if self.text.is_empty() && len < rest.len() {
            // The common case: the number lies whole in this piece.
            self.end_number(&rest[..len], self.offset + (i + len) as u64, visit)?;
            return Ok(i + len);
        }
        self.text.extend_from_slice(&rest[..len]);
        if len < rest.len() {
            self.end_kept_number(self.offset + (i + len) as u64, visit)?;
        }
        Ok(i + len)
    }

    pub(super) fn end_kept_number<V: JsonVisitor>(&mut self, end: u64, visit: &mut V) -> Result<(), V::Stop> {
        let text = std::mem::take(&mut self.text);
        let ended = self.end_number(&text, end, visit);
        self.text = text;
        ended
    }

    pub(super) fn end_number<V: JsonVisitor>(&mut self, text: &[u8], end: u64, visit: &mut V) -> Result<(), V::Stop> {
        if !is_number(text) {
            return Err(JsonError::Number(self.start).into());
        }
        visit.scalar(self.depth, JsonScalar::Number(text), self.start, end)?;
        self.after_value();
        Ok(())
    }
}
