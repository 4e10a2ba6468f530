//! Width and height from the first bytes of an image.
//!
//! A hostile sender writes these bytes, so the result must be what every decoder reads from them. The decoder takes
//! the size from the same fields: a small size there means a small image, or an error. Where decoders are known to
//! differ, where a later part of the file may override the size, or where the format is animated, the result is
//! `None`, and the caller reserves the family's maximum. Exact equality matters, not only "at least": tile counts can
//! fall as one side of an image grows, so a larger size is not an upper bound.
//!
//! The formats are those that Anthropic and OpenAI document: PNG, JPEG, WebP and GIF. They take no BMP.

/// Number of base64 characters that are read.
const TEXT_MAX: usize = 512;
const BYTES_MAX: usize = TEXT_MAX / 4 * 3;

/// Returns width and height of the image whose base64 text begins like this, as a `data:image/…;base64,` URL or bare.
///
/// `None` if the size is not certain from the first 512 characters: then it may be anything.
#[must_use]
pub fn dimensions(head: &[u8]) -> Option<(u32, u32)> {
    let mut bytes = [0; BYTES_MAX];
    let length = decode(base64_of(head)?, &mut bytes)?;
    let head = bytes.get(..length)?;
    let (width, height) = png(head).or_else(|| jpeg(head)).or_else(|| webp(head)).or_else(|| gif(head))?;
    (width > 0 && height > 0).then_some((width, height))
}

/// Returns the base64 text of a data URL, or the whole head.
fn base64_of(head: &[u8]) -> Option<&[u8]> {
    if !head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:")) {
        return Some(head);
    }
    let comma = head.iter().position(|byte| *byte == b',')?;
    let media_type = head.get(5..comma)?;
    let subtype = media_type.get(6..media_type.len().checked_sub(7)?)?;
    let is_image = media_type.get(..6)?.eq_ignore_ascii_case(b"image/")
        && media_type.ends_with(b";base64")
        && subtype.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    if is_image { head.get(comma + 1..) } else { None }
}

/// Decodes the first characters and returns the number of bytes.
///
/// Decoders differ on anything but the standard alphabet: some skip it, some end there, some refuse it.
fn decode(text: &[u8], bytes: &mut [u8; BYTES_MAX]) -> Option<usize> {
    let text = text.get(..TEXT_MAX).unwrap_or(text);
    let data = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let padding = text.get(data..)?;
    if padding.len() > 2 || padding.iter().any(|byte| *byte != b'=') {
        return None;
    }
    let mut length = 0;
    for group in text.get(..data)?.chunks(4) {
        let mut bits = 0_u32;
        for at in 0..4 {
            bits = bits << 6 | group.get(at).map_or(Some(0), |byte| sextet(*byte))?;
        }
        // Four characters are three bytes, three are two, two are one.
        for byte in bits.to_be_bytes().iter().skip(1).take(group.len().saturating_sub(1)) {
            *bytes.get_mut(length)? = *byte;
            length += 1;
        }
    }
    Some(length)
}

fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(u16::from_be_bytes(bytes).into())
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(u16::from_le_bytes(bytes).into())
}

fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    Some(le16(bytes, at)? | u32::from(*bytes.get(at.checked_add(2)?)?) << 16)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(le16(bytes, at)? | le16(bytes, at.checked_add(2)?)? << 16)
}

/// Size of a PNG whose image data begins within the head.
///
/// Pillow takes the size from the last IHDR before the image data (`PngImagePlugin.chunk_IHDR`), libpng from the first.
/// So all chunks up to the data must be seen. APNG is left out: how its frames are billed is not documented.
fn png(head: &[u8]) -> Option<(u32, u32)> {
    const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
    head.strip_prefix(SIGNATURE)?;
    let size = (be32(head, 16)?, be32(head, 20)?);
    if size.0 > 0x7fff_ffff || size.1 > 0x7fff_ffff {
        return None;
    }
    let mut at = 8 + 12 + 13;
    loop {
        let kind = head.get(at + 4..at + 8)?;
        match kind {
            b"IDAT" => return Some(size),
            b"IHDR" | b"acTL" | b"fcTL" | b"fdAT" | b"IEND" => return None,
            _ => at = at.checked_add(usize::try_from(be32(head, at)?).ok()?)?.checked_add(12)?,
        }
        if at >= head.len() {
            return None;
        }
    }
}

/// Size of a JPEG whose frame header is within the head.
///
/// libjpeg, Go and Rust decoders refuse a second frame header, so the first one is the size. Only the frame types that
/// all of them decode count: baseline, extended and progressive, with Huffman coding. A height of 0 means that it
/// follows later in the file.
fn jpeg(head: &[u8]) -> Option<(u32, u32)> {
    head.strip_prefix(b"\xff\xd8\xff")?;
    let mut at = 2;
    loop {
        if *head.get(at)? != 0xff {
            return None;
        }
        while *head.get(at)? == 0xff {
            at += 1;
        }
        match *head.get(at)? {
            0xc0..=0xc2 => return Some((be16(head, at + 6)?, be16(head, at + 4)?)),
            // Tables, application data and comments have a length.
            0xc4 | 0xdb | 0xdd | 0xe0..=0xef | 0xfe => {
                let length = usize::try_from(be16(head, at + 1)?).ok()?;
                if length < 2 {
                    return None;
                }
                at += 1 + length;
            }
            _ => return None,
        }
    }
}

/// Size of a still WebP.
///
/// An extended file has a canvas and a frame inside. libwebp refuses a file where they differ, others take either, so
/// both must be seen and equal. A size field that spells `ftyp` makes the file HEIC to some readers, LiteLLM's among
/// them.
fn webp(head: &[u8]) -> Option<(u32, u32)> {
    if head.get(..4)? != b"RIFF" || head.get(4..8)? == b"ftyp" || head.get(8..12)? != b"WEBP" {
        return None;
    }
    if head.get(12..16)? != b"VP8X" {
        return webp_frame(head, 12);
    }
    const ANIMATION: u8 = 0x02;
    if le32(head, 16)? != 10 || head.get(20)? & ANIMATION != 0 {
        return None;
    }
    let canvas = (le24(head, 24)? + 1, le24(head, 27)? + 1);
    (webp_frame(head, 30)? == canvas).then_some(canvas)
}

/// Size of the image in the chunk that begins here.
fn webp_frame(head: &[u8], at: usize) -> Option<(u32, u32)> {
    let data = at + 8;
    match head.get(at..at + 4)? {
        b"VP8 " => {
            let is_key_frame = head.get(data)? & 1 == 0;
            let has_start_code = head.get(data + 3..data + 6)? == b"\x9d\x01\x2a";
            let size = (le16(head, data + 6)? & 0x3fff, le16(head, data + 8)? & 0x3fff);
            (is_key_frame && has_start_code).then_some(size)
        }
        b"VP8L" => {
            let bits = le32(head, data + 1)?;
            (*head.get(data)? == 0x2f).then_some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

/// Size of a GIF whose first frame begins within the head and fills the screen.
///
/// Pillow enlarges the image to the first frame's extent (`GifImagePlugin._seek`), and others return the frame alone.
/// Anthropic documents that it reads the first frame only, OpenAI that it takes no animation.
fn gif(head: &[u8]) -> Option<(u32, u32)> {
    if !matches!(head.get(..6)?, b"GIF87a" | b"GIF89a") {
        return None;
    }
    let screen = (le16(head, 6)?, le16(head, 8)?);
    let mut at = 13 + colour_table(*head.get(10)?);
    loop {
        match *head.get(at)? {
            b',' => {
                let corner = (le16(head, at + 1)?, le16(head, at + 3)?);
                let frame = (le16(head, at + 5)?, le16(head, at + 7)?);
                return (corner == (0, 0) && frame == screen).then_some(screen);
            }
            b'!' => {
                at += 2;
                loop {
                    let length = usize::from(*head.get(at)?);
                    at += 1 + length;
                    if length == 0 {
                        break;
                    }
                }
            }
            _ => return None,
        }
    }
}

/// Returns the length of the colour table that the flags announce.
fn colour_table(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 6 << (flags & 7) }
}
