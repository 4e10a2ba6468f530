//! A pack of some kilobytes, with a last object that inflates to gigabytes. No git client makes such a pack.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// Bytes of the first object.
const START: usize = 60_000;
/// Maximum number of bytes that one instruction of a delta copies.
const COPY: usize = 0xff_ffff;

/// Returns a pack of a blob and a chain of deltas: each delta makes twice as many bytes as the one before it.
pub(crate) fn delta_chain(deltas: u32) -> Vec<u8> {
    let mut pack = [b"PACK\0\0\0\x02".as_slice(), &(deltas + 1).to_be_bytes()].concat();
    let mut last = pack.len();
    pack.extend(header(3, START));
    pack.extend(stored(&[0; START]));
    let mut size = START;
    for _ in 0..deltas {
        let (delta, at) = (doubling(size), pack.len());
        pack.extend(header(6, delta.len()));
        pack.extend(offset(at - last));
        pack.extend(stored(&delta));
        (last, size) = (at, size * 2);
    }
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &pack);
    pack.extend_from_slice(sum.as_ref());
    pack
}

/// Returns a delta that copies the whole source twice.
fn doubling(size: usize) -> Vec<u8> {
    let mut delta = [number(size), number(2 * size)].concat();
    for _ in 0..2 {
        for from in (0..size).step_by(COPY) {
            let length = COPY.min(size - from);
            delta.push(0xff);
            delta.extend_from_slice(&u32::try_from(from).expect("four bytes").to_le_bytes());
            delta.extend_from_slice(&u32::try_from(length).expect("three bytes").to_le_bytes()[..3]);
        }
    }
    delta
}

/// Type and size of an object.
fn header(kind: u8, size: usize) -> Vec<u8> {
    let first = kind << 4 | u8::try_from(size & 15).expect("four bits");
    if size < 16 { vec![first] } else { [vec![first | 0x80], number(size >> 4)].concat() }
}

/// A number, its lowest seven bits first.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// Distance to the source of a delta: its highest bits first, and each byte but the last counts from one.
fn offset(mut distance: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(distance & 0x7f).expect("seven bits")];
    distance >>= 7;
    while distance > 0 {
        distance -= 1;
        bytes.push(u8::try_from(distance & 0x7f).expect("seven bits") | 0x80);
        distance >>= 7;
    }
    bytes.reverse();
    bytes
}

/// A stream of zlib with one block that is not compressed.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("one block");
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    let head = [&[0x78, 0x01, 0x01][..], &length.to_le_bytes(), &(!length).to_le_bytes()].concat();
    [&head, bytes, &(high << 16 | low).to_be_bytes()].concat()
}
