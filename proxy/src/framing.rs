//! A second check of where a request ends.
//!
//! Pure. hyper decides by RFC 9112, and drops what it overruled: two equal lengths become one, a length beside
//! `Transfer-Encoding` is removed. The sidecar forwards neither header, but a client that sends them is confused or
//! hostile, and gets an error. This check reads the same bytes beside hyper; it never decides what a request says.

use memchr::memchr;

/// Error for a head that can be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramingState {
    /// Before the first byte of a head, or after blank lines that a parser skips.
    Between,
    /// In the first line of a head.
    RequestLine,
    /// In its headers.
    Head,
    /// Number of bytes left of a body with a length.
    Body(u64),
    ChunkSize,
    /// Number of bytes left of a chunk, with the line break after it.
    Chunk(u64),
    Trailers,
    /// hyper judges the framing from here on; nothing more is read.
    Lost,
}

/// Maximum kept length of a line: a longer one is cut, and no framing header is that long.
const LINE: usize = 96;

/// Follower of the requests of one connection.
#[derive(Debug)]
pub struct Framing {
    at: FramingState,
    line: [u8; LINE],
    len: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self { at: FramingState::Between, line: [0; LINE], len: 0, length: None, chunked: false }
    }
}

impl Framing {
    /// Takes the bytes that were read.
    ///
    /// # Errors
    /// [`Ambiguous`], at the end of the line that makes the head ambiguous.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Ambiguous> {
        while !bytes.is_empty() {
            match &mut self.at {
                FramingState::Lost => return Ok(()),
                FramingState::Body(left) | FramingState::Chunk(left) => {
                    let taken = (bytes.len() as u64).min(*left);
                    *left -= taken;
                    bytes = &bytes[taken as usize..];
                    self.at = match self.at {
                        FramingState::Body(0) => FramingState::Between,
                        FramingState::Chunk(0) => FramingState::ChunkSize,
                        at => at,
                    };
                }
                FramingState::Between
                | FramingState::RequestLine
                | FramingState::Head
                | FramingState::ChunkSize
                | FramingState::Trailers => {
                    let Some(end) = memchr(b'\n', bytes) else {
                        self.keep(bytes);
                        if self.at == FramingState::Between {
                            self.at = FramingState::RequestLine;
                        }
                        return Ok(());
                    };
                    let (line, rest) = bytes.split_at(end);
                    bytes = &rest[1..];
                    self.end_line(line)?;
                }
            }
        }
        Ok(())
    }

    /// Returns true if some of a head has come, and not all of it.
    #[must_use]
    pub fn in_head(&self) -> bool {
        matches!(self.at, FramingState::RequestLine | FramingState::Head)
    }

    /// Returns true between requests, where an end of input does not break a request.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.at, FramingState::Between | FramingState::Lost)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (LINE - self.len).min(bytes.len());
        self.line[self.len..self.len + room].copy_from_slice(&bytes[..room]);
        self.len += room;
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        if self.len == 0 {
            return self.whole_line(&line[..line.len().min(LINE)]);
        }
        self.keep(line);
        let (kept, len) = (self.line, std::mem::take(&mut self.len));
        self.whole_line(&kept[..len])
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.at {
            FramingState::Between | FramingState::RequestLine if line.is_empty() => self.at = FramingState::Between,
            FramingState::Between | FramingState::RequestLine => self.at = FramingState::Head,
            FramingState::Head if line.is_empty() => {
                self.at = match (self.chunked, self.length.take()) {
                    (true, _) => FramingState::ChunkSize,
                    (false, Some(length)) if length > 0 => FramingState::Body(length),
                    (false, _) => FramingState::Between,
                };
                self.chunked = false;
            }
            FramingState::Head => self.header(line)?,
            FramingState::ChunkSize => self.at = chunk(line),
            FramingState::Trailers if line.is_empty() => self.at = FramingState::Between,
            FramingState::Trailers | FramingState::Body(_) | FramingState::Chunk(_) | FramingState::Lost => {}
        }
        Ok(())
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        // The first letter rules most lines out.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            return Ok(());
        }
        let Some(colon) = memchr(b':', line) else {
            return Ok(());
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = decimal(value).ok_or(Ambiguous)?;
            if self.chunked || self.length.replace(length).is_some() {
                return Err(Ambiguous);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || self.length.is_some() || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Ambiguous);
            }
            self.chunked = true;
        }
        Ok(())
    }
}

/// Parses digits only: different programs read `+5`, `5, 5` and `0x5` differently.
fn decimal(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if digits { std::str::from_utf8(value).ok()?.parse().ok() } else { None }
}

fn chunk(line: &[u8]) -> FramingState {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let size = std::str::from_utf8(&line[..digits]).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
    match size {
        Some(0) => FramingState::Trailers,
        Some(size) if size < u64::MAX - 2 => FramingState::Chunk(size + 2),
        _ => FramingState::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<bool, Ambiguous> {
        let run = |size: usize| {
            let mut framing = Framing::default();
            text.as_bytes().chunks(size).try_for_each(|piece| framing.feed(piece)).map(|()| framing.is_between())
        };
        let whole = run(text.len().max(1));
        for size in 1..text.len() {
            assert_eq!(run(size), whole, "{text:?} in pieces of {size}");
        }
        whole
    }

    #[test]
    fn plain_requests_are_followed_to_their_end() {
        for (text, ended) in [
            ("GET /health HTTP/1.1\r\nhost: x\r\n\r\n", true),
            ("\r\nGET / HTTP/1.1\n\n", true),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", true),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell", false),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nt: 1\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", false),
            ("GET / HTTP/1.1\r\nhost", false),
            ("Transfer-Encoding: chunked\r\n\r\n5", false),
        ] {
            assert_eq!(read(text), Ok(ended), "{text:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for lines in [
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 5",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: xchunked",
            "Content-Length: +5",
            "Content-Length: 5, 5",
            "Content-Length: 0x5",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
        ] {
            assert_eq!(read(&format!("POST / HTTP/1.1\r\nhost: x\r\n{lines}\r\n\r\n")), Err(Ambiguous), "{lines}");
            let second = format!("POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}POST / HTTP/1.1\r\n{lines}\r\n\r\n");
            assert_eq!(read(&second), Err(Ambiguous), "pipelined {lines}");
        }
    }

    #[test]
    fn a_long_header_is_no_framing_header() {
        assert_eq!(read(&format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "content-length: 1".repeat(100))), Ok(true));
    }
}
