//! Lines of git's protocol, each with its length.
//!
//! Pure.

use super::command_list::ListError;

/// The end of a list.
pub(crate) const FLUSH: &[u8] = b"0000";

/// Maximum length of a line, with the four bytes of its length.
pub(crate) const LONGEST: usize = 65520;

/// Meaning of the four bytes before a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PktLength {
    /// The end of a list.
    Flush,
    /// A line with this many bytes.
    Data(usize),
}

/// Reads the four bytes before a line.
pub(crate) fn pkt_length(bytes: [u8; 4]) -> Result<PktLength, ListError> {
    let is_hex = bytes.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(&bytes).ok().filter(|_| is_hex).ok_or(ListError::Length)?;
    match usize::from_str_radix(text, 16) {
        Ok(0) => Ok(PktLength::Flush),
        Ok(length @ 4..=LONGEST) => Ok(PktLength::Data(length - 4)),
        _ => Err(ListError::Length),
    }
}

/// Encodes a line. Bytes beyond the maximum length are cut off.
pub(crate) fn data(line: &[u8]) -> Vec<u8> {
    let line = &line[..line.len().min(LONGEST - 4)];
    let mut packet = format!("{:04x}", line.len() + 4).into_bytes();
    packet.extend_from_slice(line);
    packet
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_is_four_hexadecimal_digits() {
        for (bytes, expected) in [
            (b"0000", Ok(PktLength::Flush)),
            (b"0004", Ok(PktLength::Data(0))),
            (b"00fF", Ok(PktLength::Data(251))),
            (b"fff0", Ok(PktLength::Data(LONGEST - 4))),
            (b"fff1", Err(ListError::Length)),
            (b"0001", Err(ListError::Length)),
            (b"0003", Err(ListError::Length)),
            (b"+004", Err(ListError::Length)),
            (b" 004", Err(ListError::Length)),
            (b"00\xff4", Err(ListError::Length)),
            (b"PACK", Err(ListError::Length)),
        ] {
            assert_eq!(pkt_length(*bytes), expected, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_is_read_as_it_was_written(line: Vec<u8>) {
            let packet = data(&line);
            let (length, rest) = packet.split_first_chunk::<4>().expect("a length");
            prop_assert_eq!(pkt_length(*length), Ok(PktLength::Data(rest.len())));
            prop_assert_eq!(rest, &line[..]);
        }

        #[test]
        fn any_four_bytes_are_a_length_or_an_error(bytes: [u8; 4]) {
            if let Ok(PktLength::Data(length)) = pkt_length(bytes) {
                prop_assert!(length <= LONGEST - 4);
            }
        }
    }
}
