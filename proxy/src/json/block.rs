//! Search of 64 bytes at a time for the end of a run of plain text.

/// Number of bytes in a block: one for each bit of the result.
pub(super) const BLOCK: usize = 64;

/// Returns a bit for each quote, backslash and control character, the first byte's the lowest; and true if all bytes
/// are ASCII.
pub(super) fn stops(block: &[u8; BLOCK]) -> (u64, bool) {
    // Two plain loops that the compiler vectorises, and a product that collects the lowest bit of each of eight
    // bytes.
    let mut marks = [0; BLOCK];
    for (mark, byte) in marks.iter_mut().zip(block) {
        *mark = u8::from((*byte == b'"') | (*byte == b'\\') | (*byte < 0x20));
    }
    let seen = block.iter().fold(0, |seen, byte| seen | byte);
    let eight = |marks: &[u8; 8]| u64::from_le_bytes(*marks).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let stops = marks.as_chunks().0.iter().rev().fold(0, |stops, marks| stops << 8 | eight(marks));
    (stops, seen < 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_marked_alike_wherever_it_stands() {
        for byte in 0..=255 {
            let stops_at = |at: u32| u64::from(matches!(byte, b'"' | b'\\' | ..0x20)) << at;
            for at in 0..64 {
                let mut block = [b'x'; BLOCK];
                block[at as usize] = byte;
                assert_eq!(stops(&block), (stops_at(at), byte < 0x80), "{byte:#x} at {at}");
            }
            assert_eq!(stops(&[byte; BLOCK]).0, (0..64).fold(0, |all, at| all | stops_at(at)), "{byte:#x} everywhere");
        }
    }
}
