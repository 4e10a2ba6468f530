//! Server-sent events in any split: the position of data, and the end of events.
//!
//! Pure, and without a buffer. Lines end in CR, LF or CRLF. Only `data` fields matter here, since every API format
//! repeats the event's name in its data.

use memchr::memchr2;

/// Part of the stream that the splitter reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SsePiece<'a> {
    /// Some of the event's data; a field may come in several pieces.
    Data(&'a [u8]),
    /// The end of a data field; another one would be the next line of the same data.
    DataEnd,
    /// The end of an event; the offset after it in the chunk.
    End(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    LineStart,
    /// Number of bytes of `data` that have matched.
    Name(usize),
    /// After `data:`, where one blank is not part of the value.
    Blank,
    Data,
    Skip,
}

/// Splitter of a stream into events.
#[derive(Debug)]
pub struct SseSplitter {
    at: LineState,
    after_cr: bool,
}

impl Default for SseSplitter {
    fn default() -> Self {
        Self { at: LineState::LineStart, after_cr: false }
    }
}

impl SseSplitter {
    /// Takes the next chunk, and reports its parts, in order.
    pub fn feed<'a>(&mut self, chunk: &'a [u8], mut tell: impl FnMut(SsePiece<'a>)) {
        let mut i = 0;
        while i < chunk.len() {
            let b = chunk[i];
            if std::mem::take(&mut self.after_cr) && b == b'\n' {
                i += 1;
                continue;
            }
            match (self.at, b) {
                (_, b'\n' | b'\r') => {
                    self.after_cr = b == b'\r';
                    i += 1;
                    match self.at {
                        LineState::LineStart => {
                            if self.after_cr && chunk.get(i) == Some(&b'\n') {
                                self.after_cr = false;
                                i += 1;
                            }
                            tell(SsePiece::End(i));
                        }
                        LineState::Data | LineState::Blank => tell(SsePiece::DataEnd),
                        LineState::Name(_) | LineState::Skip => {}
                    }
                    self.at = LineState::LineStart;
                }
                // The name may be cut by the end of the chunk; mostly it is not.
                (LineState::LineStart, b'd') if chunk[i..].starts_with(b"data: ") => {
                    (self.at, i) = (LineState::Data, i + 6)
                }
                (LineState::LineStart, b'd') => (self.at, i) = (LineState::Name(1), i + 1),
                (LineState::Name(4), b':') => (self.at, i) = (LineState::Blank, i + 1),
                (LineState::Name(n), b) if n < 4 && b == b"data"[n] => (self.at, i) = (LineState::Name(n + 1), i + 1),
                (LineState::Blank, b' ') => (self.at, i) = (LineState::Data, i + 1),
                (LineState::LineStart | LineState::Name(_), _) => self.at = LineState::Skip,
                (LineState::Blank, _) => self.at = LineState::Data,
                (LineState::Data | LineState::Skip, _) => {
                    let rest = &chunk[i..];
                    let len = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    if self.at == LineState::Data {
                        tell(SsePiece::Data(&rest[..len]));
                    }
                    i += len;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the data of each event, with its lines joined, for any split.
    fn events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut splitter, mut done, mut now) = (SseSplitter::default(), Vec::new(), String::new());
        for chunk in chunks {
            splitter.feed(chunk, |piece| match piece {
                SsePiece::Data(bytes) => now.push_str(&String::from_utf8_lossy(bytes)),
                SsePiece::DataEnd => now.push('\n'),
                SsePiece::End(_) => done.push(std::mem::take(&mut now)),
            });
        }
        done
    }

    #[test]
    fn lines_end_in_three_ways() {
        let text = b"event: x\ndata: one\n\ndata:two\r\ndata: three\r\n\r\n: comment\rdata:  four\r\rdatax: no\ndat\ndata\n\ndata:\n\n";
        let want = ["one\n", "two\nthree\n", " four\n", "", "\n"];
        assert_eq!(events([text.as_slice()]), want);
        for size in 1..text.len() {
            assert_eq!(events(text.chunks(size)), want, "chunks of {size}");
        }
    }

    #[test]
    fn an_event_ends_after_its_blank_line() {
        let mut ends = Vec::new();
        SseSplitter::default().feed(b"data: a\n\ndata: b\r\n\r\ndata: c", |piece| {
            if let SsePiece::End(end) = piece {
                ends.push(end);
            }
        });
        assert_eq!(ends, [9, 20]);
    }

    proptest! {
        #[test]
        fn any_split_tells_the_same(text in "[da t:x\r\n]{0,80}", cut in 0usize..80) {
            let text = text.as_bytes();
            let cut = cut.min(text.len());
            prop_assert_eq!(events([&text[..cut], &text[cut..]]), events([text]));
        }
    }
}
