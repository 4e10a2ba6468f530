//! A strict parser of HTTP/1.1: heads and message bodies, from bytes that arrive in any split.
//!
//! Pure: no sockets. Both ends of the test kit use it, so it accepts only what a careful
//! sender writes; a tolerant parser would hide a fault of the sidecar.

use bytes::{Buf, BytesMut};

/// A message head, taken from the front of a buffer.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the parts of a head")]
pub struct HeadLines {
    pub first: String,
    pub headers: Vec<(String, String)>,
    pub raw: Vec<u8>,
}

/// Takes a complete head; `None` when it has not arrived completely.
pub fn take_head(buffer: &mut BytesMut) -> Result<Option<HeadLines>, String> {
    let Some(end) = find(buffer, b"\r\n\r\n") else {
        return Ok(None);
    };
    let raw = buffer.split_to(end + 4).to_vec();
    let text = String::from_utf8_lossy(&raw[..end]).into_owned();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let headers = lines.map(header).collect::<Result<Vec<_>, _>>()?;
    if first.contains(['\r', '\n']) || first.is_empty() {
        return Err(format!("bad first line {first:?}"));
    }
    Ok(Some(HeadLines { first, headers, raw }))
}

fn header(line: &str) -> Result<(String, String), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let (name, value) = line.split_once(':').ok_or_else(|| format!("header line without a colon: {line:?}"))?;
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("bad header name in {line:?}"));
    }
    if value.contains(['\r', '\n', '\0']) {
        return Err(format!("bad header value in {line:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// The first value of a header.
pub fn first<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// All values of a header, in wire order.
pub fn all<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
}

/// Returns the offset of the first `needle`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

/// The rest of a message body, and the rule of its end.
#[derive(Debug)]
pub enum Body {
    /// A number of bytes.
    Length(u64),
    /// Chunked coding.
    Chunked(Chunked),
    /// Everything until the connection closes.
    UntilClose,
}

impl Body {
    /// The body that follows a request head; two declarations of its length are an error.
    pub fn of_request(headers: &[(String, String)]) -> Result<Self, String> {
        Ok(Self::declared(headers)?.unwrap_or(Self::Length(0)))
    }

    /// The body that follows a response head.
    pub fn of_response(status: u16, headers: &[(String, String)]) -> Result<Self, String> {
        if status < 200 || status == 204 || status == 304 {
            return Ok(Self::Length(0));
        }
        Ok(Self::declared(headers)?.unwrap_or(Self::UntilClose))
    }

    fn declared(headers: &[(String, String)]) -> Result<Option<Self>, String> {
        match (all(headers, "transfer-encoding").as_slice(), all(headers, "content-length").as_slice()) {
            ([], []) => Ok(None),
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Self::Chunked(Chunked::default()))),
            ([], [length]) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Some(Self::Length(length.parse().map_err(|_| format!("content-length {length}"))?)))
            }
            (codings, lengths) => {
                Err(format!("ambiguous framing: transfer-encoding {codings:?}, content-length {lengths:?}"))
            }
        }
    }

    /// Moves the arrived part of the body from `input` to `out`; returns true once the body has ended.
    pub fn take(&mut self, input: &mut BytesMut, out: &mut Vec<u8>) -> Result<bool, String> {
        match self {
            Self::Length(left) => {
                let here = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                out.extend_from_slice(&input.split_to(here));
                *left -= here as u64;
                Ok(*left == 0)
            }
            Self::Chunked(chunked) => chunked.take(input, out),
            Self::UntilClose => {
                out.extend_from_slice(&input.split());
                Ok(false)
            }
        }
    }
}

/// A decoder of chunked coding.
#[derive(Debug, Default)]
pub struct Chunked {
    at: At,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum At {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    Done,
}

impl Chunked {
    fn take(&mut self, input: &mut BytesMut, out: &mut Vec<u8>) -> Result<bool, String> {
        loop {
            self.at = match self.at {
                At::Size => match take_line(input)? {
                    None => return Ok(false),
                    Some(line) => match chunk_size(&line)? {
                        0 => At::Trailers,
                        size => At::Data(size),
                    },
                },
                At::Data(left) => {
                    let here = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    out.extend_from_slice(&input.split_to(here));
                    match left - here as u64 {
                        0 => At::DataEnd,
                        left => {
                            self.at = At::Data(left);
                            return Ok(false);
                        }
                    }
                }
                At::DataEnd => {
                    if input.len() < 2 {
                        return Ok(false);
                    }
                    if &input[..2] != b"\r\n" {
                        return Err(format!("chunk not followed by CRLF but by {:?}", &input[..2]));
                    }
                    input.advance(2);
                    At::Size
                }
                At::Trailers => match take_line(input)? {
                    None => return Ok(false),
                    Some(line) if line.is_empty() => At::Done,
                    Some(line) => header(&line).map(|_| At::Trailers)?,
                },
                At::Done => return Ok(true),
            };
        }
    }
}

fn chunk_size(line: &str) -> Result<u64, String> {
    let digits = line.split(';').next().unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("bad chunk size line {line:?}"));
    }
    u64::from_str_radix(digits, 16).map_err(|_| format!("chunk size too large: {line:?}"))
}

fn take_line(input: &mut BytesMut) -> Result<Option<String>, String> {
    let Some(end) = find(&input[..input.len().min(16_384)], b"\r\n") else {
        return if input.len() < 16_384 { Ok(None) } else { Err("chunk line without an end".to_owned()) };
    };
    let line = String::from_utf8_lossy(&input[..end]).into_owned();
    input.advance(end + 2);
    Ok(Some(line))
}

/// Returns the text of the first SSE event in `stream`, and its length with the blank line.
pub fn first_event(stream: &[u8]) -> Option<(&[u8], usize)> {
    let ends: [&[u8]; 5] = [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"];
    let mut at = 0;
    // One pass: a body of thousands of events is split by repeated calls.
    while let Some(offset) = stream[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        at += offset;
        if let Some(end) = ends.iter().find(|end| stream[at..].starts_with(end)) {
            return Some((&stream[..at], at + end.len()));
        }
        at += 1;
    }
    None
}

/// The `data:` of one SSE event, its lines joined.
pub fn sse_data(event: &str) -> String {
    let data = |line: &str| line.strip_prefix("data:").map(|text| text.strip_prefix(' ').unwrap_or(text).to_owned());
    event.lines().filter_map(data).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Body, Chunked, first_event, sse_data, take_head};
    use bytes::BytesMut;

    fn decode(wire: &[u8], piece: usize) -> Result<(Vec<u8>, bool, usize), String> {
        let (mut body, mut input, mut out) = (Body::Chunked(Chunked::default()), BytesMut::new(), Vec::new());
        let mut ended = false;
        for part in wire.chunks(piece) {
            input.extend_from_slice(part);
            ended = body.take(&mut input, &mut out)?;
        }
        Ok((out, ended, input.len()))
    }

    #[test]
    fn chunks_decode_alike_in_any_split() {
        let wire = b"3;name=\"v\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nx-trailer: 1\r\n\r\n";
        for piece in 1..=wire.len() {
            assert_eq!(decode(wire, piece), Ok((b"abc0123456789".to_vec(), true, 0)), "in pieces of {piece}");
        }
    }

    #[test]
    fn a_body_without_its_last_chunk_has_not_ended() {
        assert_eq!(decode(b"3\r\nabc\r\n", 4), Ok((b"abc".to_vec(), false, 0)));
        assert_eq!(decode(b"3\r\nabc\r\n0\r\n", 4), Ok((b"abc".to_vec(), false, 0)));
        assert_eq!(decode(b"3\r\nab", 4), Ok((b"ab".to_vec(), false, 0)));
    }

    #[test]
    fn bad_chunks_are_errors() {
        for wire in [&b"\r\nabc"[..], b"xyz\r\n", b"3\r\nabcd\r\n", b"+3\r\nabc\r\n", b"11111111111111111\r\n"] {
            assert!(decode(wire, 64).is_err(), "{:?}", String::from_utf8_lossy(wire));
        }
    }

    #[test]
    fn bytes_after_a_body_stay_in_the_buffer() {
        assert_eq!(decode(b"0\r\n\r\nHTTP/1.1", 64), Ok((Vec::new(), true, 8)));
    }

    #[test]
    fn a_head_is_taken_whole_or_not_at_all() {
        let mut buffer = BytesMut::from(&b"GET / HTTP/1.1\r\nHost: a\r\nX-Y:  z \r\n\r"[..]);
        assert!(take_head(&mut buffer).expect("no error yet").is_none());
        buffer.extend_from_slice(b"\nrest");
        let head = take_head(&mut buffer).expect("a good head").expect("a whole head");
        assert_eq!(head.first, "GET / HTTP/1.1");
        assert_eq!(head.headers, [("Host".to_owned(), "a".to_owned()), ("X-Y".to_owned(), "z".to_owned())]);
        assert_eq!(&buffer[..], b"rest");
    }

    #[test]
    fn sloppy_heads_are_errors() {
        for head in
            ["GET /\nHost: a\r\n\r\n", "GET /\r\nHost : a\r\n\r\n", "GET /\r\n folded\r\n\r\n", "GET /\r\na\r\n\r\n"]
        {
            assert!(take_head(&mut BytesMut::from(head)).is_err(), "{head:?}");
        }
    }

    #[test]
    fn two_lengths_are_an_error() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (length, chunked) = (pair("content-length", "3"), pair("transfer-encoding", "chunked"));
        assert!(Body::of_request(&[length.clone(), length.clone()]).is_err());
        assert!(Body::of_request(&[length, chunked]).is_err());
        assert!(Body::of_request(&[pair("content-length", "+3")]).is_err());
    }

    #[test]
    fn events_end_at_any_kind_of_blank_line() {
        for (stream, text, length) in [
            ("data: a\n\ndata: b\n\n", "data: a", 9),
            ("data: a\r\n\r\ndata: b", "data: a", 11),
            ("data: a\r\rdata: b\n\n", "data: a", 9),
        ] {
            assert_eq!(first_event(stream.as_bytes()), Some((text.as_bytes(), length)));
        }
        assert_eq!(first_event(b"data: a\n"), None);
        assert_eq!(sse_data("event: x\ndata: a\ndata:b"), "a\nb");
    }
}
