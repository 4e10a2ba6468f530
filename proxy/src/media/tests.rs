use proptest::prelude::*;

use super::*;

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
        }
        text.extend(std::iter::repeat_n('=', 3 - group.len()));
    }
    text
}

fn size_of(bytes: &[u8]) -> Option<(u32, u32)> {
    let text = base64(bytes);
    let bare = dimensions(text.as_bytes());
    let url = format!("data:image/png;base64,{text}");
    assert_eq!(dimensions(url.as_bytes()), bare);
    bare
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    [&(data.len() as u32).to_be_bytes()[..], kind, data, b"crc."].concat()
}

fn ihdr(width: u32, height: u32) -> Vec<u8> {
    chunk(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat())
}

fn png(chunks: &[Vec<u8>]) -> Vec<u8> {
    [&b"\x89PNG\r\n\x1a\n"[..], &chunks.concat()].concat()
}

#[test]
fn a_png_needs_its_data_chunk() {
    // Made by zlib: 2 x 3 pixels, and the head of one with 1092 x 1092.
    let small = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADAQAAAACRkeMsAAAAC0lEQVR42mNgAAEAAAYAAW0oEC8AAAAASUVORK5CYII=";
    let large = "iVBORw0KGgoAAAANSUhEUgAABEQAAAREAQAAAABU/vmOAAAAqUlEQVR42u3BgQAAAADDoPlTX+AIVQ";
    assert_eq!(dimensions(small.as_bytes()), Some((2, 3)));
    assert_eq!(dimensions(large.as_bytes()), Some((1092, 1092)));
    let data = chunk(b"IDAT", b"data");
    let physical = chunk(b"pHYs", &[0; 9]);
    assert_eq!(size_of(&png(&[ihdr(7, 9), physical, data.clone()])), Some((7, 9)));
    let none = [
        vec![ihdr(7, 9)],
        vec![ihdr(7, 9), ihdr(8000, 8000), data.clone()],
        vec![ihdr(7, 9), chunk(b"tEXt", &[0; 400]), ihdr(8000, 8000), data.clone()],
        vec![ihdr(7, 9), chunk(b"acTL", &[0; 8]), data.clone()],
        vec![chunk(b"CgBI", &[0; 4]), ihdr(7, 9), data.clone()],
        vec![ihdr(0, 9), data.clone()],
        vec![ihdr(7, u32::MAX), data],
    ];
    for chunks in none {
        assert_eq!(size_of(&png(&chunks)), None);
    }
}

#[test]
fn a_jpeg_needs_its_frame_header() {
    let frame = |kind: u8| [0xff, kind, 0, 17, 8, 0x03, 0x00, 0x04, 0x00, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1];
    let start = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xdb\0\x04\0\0".to_vec();
    for kind in [0xc0, 0xc1, 0xc2] {
        assert_eq!(size_of(&[start.clone(), frame(kind).to_vec()].concat()), Some((1024, 768)));
    }
    let exif = [&b"\xff\xd8\xff\xe1\x20\0"[..], &[0; 378], &frame(0xc0)].concat();
    let later_height = b"\xff\xd8\xff\xc0\0\x11\x08\0\0\x04\0\x03".to_vec();
    for bytes in [start.clone(), exif, later_height, [start, frame(0xc9).to_vec()].concat()] {
        assert_eq!(size_of(&bytes), None);
    }
}

fn webp(chunks: &[u8]) -> Vec<u8> {
    [b"RIFF\x40\0\0\0WEBP", chunks].concat()
}

#[test]
fn a_webp_needs_equal_canvas_and_frame() {
    let lossy = b"VP8 \x20\0\0\0\x30\x01\0\x9d\x01\x2a\x20\x43\x58\x02";
    let lossless = b"VP8L\x20\0\0\0\x2f\x1f\xc3\x95\0";
    let canvas = |flags: u8| [&b"VP8X\x0a\0\0\0"[..], &[flags, 0, 0, 0, 0x1f, 0x03, 0, 0x57, 0x02, 0]].concat();
    assert_eq!(size_of(&webp(lossy)), Some((800, 600)));
    assert_eq!(size_of(&webp(lossless)), Some((800, 600)));
    assert_eq!(size_of(&webp(&[canvas(0), lossy.to_vec()].concat())), Some((800, 600)));
    assert_eq!(size_of(&webp(&[canvas(0x02), lossy.to_vec()].concat())), None);
    assert_eq!(size_of(&webp(&[canvas(0x10), chunk(b"ALPH", &[])].concat())), None);
    let other = b"VP8 \x20\0\0\0\x30\x01\0\x9d\x01\x2a\x21\x03\x58\x02";
    assert_eq!(size_of(&webp(&[canvas(0), other.to_vec()].concat())), None);
    assert_eq!(size_of(&[&b"RIFFftypWEBP"[..], lossy].concat()), None);
}

#[test]
fn a_gif_needs_a_full_first_frame() {
    let gif = |frame: &[u8]| [b"GIF89a\x20\x03\x58\x02\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\0\0\0\0\0,", frame].concat();
    assert_eq!(size_of(&gif(b"\0\0\0\0\x20\x03\x58\x02\0")), Some((800, 600)));
    assert_eq!(size_of(&gif(b"\0\0\0\0\x20\x43\x58\x42\0")), None);
    assert_eq!(size_of(&gif(b"\x01\0\0\0\x20\x03\x58\x02\0")), None);
    assert_eq!(size_of(b"GIF89a\x20\x03\x58\x02\xf7\0\0"), None);
}

#[test]
fn text_that_is_no_strict_base64_has_no_size() {
    let text = base64(&png(&[ihdr(7, 9), chunk(b"IDAT", &[])]));
    for prefix in ["data:text/plain;base64,", "data:image/png,", "data:image/png;charset=a;base64,", "data:", " ", "@"]
    {
        assert_eq!(dimensions(format!("{prefix}{text}").as_bytes()), None, "{prefix:?}");
    }
    assert_eq!(dimensions(format!("DATA:IMAGE/svg+xml;base64,{text}").as_bytes()), Some((7, 9)));
    for blank in ["\n", "-", "_", "=", "\0"] {
        assert_eq!(dimensions(text.replacen("AAAA", &format!("AA{blank}AA"), 1).as_bytes()), None, "{blank:?}");
    }
    for other in ["", "BM", "Qk0=", "JVBERi0=", "lorem", "iVBORlorem"] {
        assert_eq!(dimensions(other.as_bytes()), None, "{other:?}");
    }
}

#[test]
fn documented_examples_are_met() {
    use Detail::{Auto, High, Low, Original};
    use Family as F;
    for (family, detail, width, height, tokens) in [
        (F::Gpt4o, High, 1024, 1024, 765),
        (F::Gpt4o, High, 2048, 4096, 1105),
        (F::Gpt4o, Low, 4096, 8192, 85),
        (F::Gpt4o, Auto, 512, 512, 255),
        // Measured, on OpenAI's forum, 2025: eight tiles.
        (F::Gpt4o, High, 2049, 513, 1445),
        (F::Gpt4oMini, High, 2048, 2048, 2833 + 4 * 5667),
        (F::Gpt56, High, 1024, 1024, 1229 + 1),
        (F::Gpt56, High, 2048, 2048, 3000 + 1),
        (F::Gpt56, High, 4096, 512, 2458 + 1),
        (F::Gpt56, Auto, 6400, 1440, 10_800 + 1),
        (F::Gpt56, Original, 65_535, 65_535, 36_000 + 1),
        (F::Gpt54, Low, 4096, 4096, 7373 + 1),
        // 1,452 patches in the example; the bound takes the 4,275 of the image as it is.
        (F::Gpt5Mini, High, 1800, 2400, 6926 + 1),
        // 64 at Anthropic; LiteLLM counts 85 for any image.
        (F::Claude, Auto, 200, 200, 85),
        (F::Claude, Auto, 1000, 1000, 1334),
        (F::Claude, Auto, 1092, 1092, 1590),
        (F::Claude, Auto, 3840, 2160, 1640),
        (F::ClaudeLarge, Auto, 1920, 1080, 2765),
        (F::ClaudeLarge, Auto, 3840, 2160, 5001),
        (F::Gemini2, Auto, 384, 384, 258),
        (F::Gemini2, Auto, 960, 540, 2304),
        (F::Gemini3, Auto, 4000, 4000, 1120),
        (F::Gemini3, Original, 4000, 4000, 2240),
    ] {
        assert_eq!(
            image_tokens(Some((width, height)), detail, family),
            tokens,
            "{family:?} {detail:?} {width}x{height}"
        );
        assert_eq!(image_tokens(Some((height, width)), detail, family), tokens);
    }
    assert_eq!(image_tokens(None, Low, F::Gpt4o), 85);
    assert_eq!(image_tokens(None, High, F::Gpt4o), 1445);
    assert_eq!(image_tokens(None, Auto, F::Unknown), 2833 + 8 * 5667);
}

#[test]
fn a_name_tells_its_family_or_none() {
    for (family, names) in [
        (Family::Gpt4o, &["fast", "azure/gpt-4o-2024-08-06", "azure"][..]),
        (Family::Gpt4oMini, &["openai/gpt-4o-mini"]),
        (Family::Gpt5, &["gpt-5-2025-08-07", "azure/eu/gpt-5.1"]),
        (Family::Gpt56, &["us.openai.gpt-5.6-sol", "bedrock_converse"]),
        (Family::Claude, &["bedrock/us.anthropic.claude-3-5-sonnet-20240620-v1:0", "anthropic"]),
        (Family::Claude, &["vertex_ai/claude-haiku-4-5@20251001"]),
        (Family::Claude, &["claude-opus-4-20250514"]),
        (Family::ClaudeLarge, &["claude-opus-4-5-20251101"]),
        (Family::ClaudeLarge, &["github_copilot/claude-opus-4.8"]),
        (Family::ClaudeLarge, &["claude-mythos-preview"]),
        (Family::Gemini2, &["gemini/gemini-2.5-pro", "gemini"]),
        (Family::Gemini3, &["gemini-3.1-pro-preview"]),
        (Family::Unknown, &[]),
        (Family::Unknown, &["fast", "azure/prod-1"]),
        (Family::Unknown, &["gpt-4o", "claude-opus-4-8"]),
        (Family::Unknown, &["gpt-4o", "azure/gpt-4o-mini-prod"]),
        (Family::Unknown, &["gemini-4-argon"]),
        (Family::Unknown, &["gemini/gemma-3-27b-it"]),
        (Family::Unknown, &["gemini-2.5-flash-image"]),
        (Family::Unknown, &["o3-deep-research"]),
        (Family::Unknown, &["gpt-6-sol"]),
        (Family::Unknown, &["claude-to-gpt-4o"]),
        (Family::Unknown, &["gpt-4o-ü-2024-08-06", "日本語"]),
    ] {
        assert_eq!(Family::of(names.iter().copied()), family, "{names:?}");
    }
}

#[test]
fn packed_bytes_have_no_bound() {
    assert_eq!(document_tokens(900, DocumentForm::PlainText), TokenEstimate::Bound(900));
    assert_eq!(document_tokens(10_000, DocumentForm::Packed), TokenEstimate::Unbounded { guess: 3 * 8901 });
    assert_eq!(document_tokens(u64::MAX, DocumentForm::Packed), TokenEstimate::Unbounded { guess: 3000 * 8901 });
    assert_eq!(audio_tokens(480_000, AudioForm::Pcm16), TokenEstimate::Bound(320 + 16));
    assert_eq!(audio_tokens(60_000, AudioForm::Encoded), TokenEstimate::Unbounded { guess: 1920 + 16 });
    assert_eq!(audio_tokens(u64::MAX, AudioForm::Pcm16), TokenEstimate::Bound(u64::MAX / 1500 + 1 + 16));
}

/// LiteLLM's counter, in floats as it is.
fn litellm(width: u32, height: u32, detail: Detail) -> u64 {
    if matches!(detail, Detail::Low | Detail::Auto) {
        return 85;
    }
    let (mut w, mut h) = (u64::from(width), u64::from(height));
    if w > 768 || h > 768 {
        let aspect = w.max(h) as f64 / w.min(h) as f64;
        let (mut short, mut long) = (768, (768.0 * aspect) as u64);
        if long > 2000 {
            (short, long) = ((2000.0 / aspect) as u64, 2000);
        }
        (w, h) = if w <= h { (short, long) } else { (long, short) };
    }
    85 + 170 * w.div_ceil(512) * h.div_ceil(512)
}

fn side() -> impl Strategy<Value = u32> {
    prop_oneof![1..3000_u32, 1..100_000_u32, any::<u32>(), Just(u32::MAX), Just(0)]
}

fn any_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

/// Beginnings of image files.
const STARTS: [&[u8]; 7] = [
    b"", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", b"\xff\xd8\xff", b"GIF89a", b"RIFF____WEBPVP8X\x0a\0\0\0",
    b"RIFF____WEBPVP8 ", b"RIFF____WEBPVP8L",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bound_is_below_litellm_or_above_the_maximum(
        width in side(), height in side(), detail in any_of(&Detail::ALL), family in any_of(&Family::ALL),
    ) {
        let tokens = image_tokens(Some((width, height)), detail, family);
        prop_assert!(tokens <= image_tokens(None, detail, family));
        prop_assert!(tokens <= image_tokens(Some((width, height)), detail, Family::Unknown));
        prop_assert!(tokens <= image_tokens(Some((width, height)), Detail::Original, family));
        prop_assert_eq!(tokens, image_tokens(Some((height, width)), detail, family));
        if width > 0 && height > 0 {
            prop_assert!(tokens >= litellm(width, height, detail));
        } else {
            prop_assert_eq!(tokens, image_tokens(None, detail, family));
        }
    }

    #[test]
    fn patches_never_fall_as_an_image_grows(
        width in 1..9000_u32, height in 1..9000_u32, more in 0..9000_u32, detail in any_of(&[Detail::Low, Detail::Auto]),
        family in any_of(&[Family::Claude, Family::ClaudeLarge, Family::Gpt5Mini, Family::Gpt54, Family::Gpt56]),
    ) {
        let (less, more) = ((width, height), (width + more, height));
        prop_assert!(image_tokens(Some(less), detail, family) <= image_tokens(Some(more), detail, family));
    }

    #[test]
    fn openai_tiles_cover_every_way_of_rounding(width in 1..9000_u32, height in 1..9000_u32) {
        let bound = image_tokens(Some((width, height)), Detail::High, Family::Gpt4o);
        for round in [f64::floor, f64::ceil, f64::round, |side| side] {
            let (mut w, mut h) = (f64::from(width), f64::from(height));
            let fit = (2048.0 / w.max(h)).min(1.0);
            (w, h) = (round(w * fit), round(h * fit));
            let shrink = (768.0 / w.min(h)).min(1.0);
            (w, h) = (round(w * shrink), round(h * shrink));
            // Floats add less than a pixel.
            let tiles = |side: f64| ((side - 1e-6) / 512.0).ceil() as u64;
            prop_assert!(85 + 170 * tiles(w) * tiles(h) <= bound);
        }
    }

    #[test]
    fn a_random_head_is_read_without_panic(
        start in any_of(&STARTS),
        rest in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(b'!')], 0..600),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = [start, &rest].concat();
        let text = base64(&bytes);
        let cut = &text[..cut.index(text.len() + 1)];
        let sure = dimensions(cut.as_bytes());
        prop_assert!(sure.is_none() || sure == dimensions(text.as_bytes()));
        let _ = dimensions(&bytes);
    }

    #[test]
    fn any_name_has_a_family(names in prop::collection::vec(".{0,20}(gpt-|claude|gemini|o3|)[-0-9.a-zé]{0,20}", 0..3)) {
        let _ = Family::of(names.iter().map(String::as_str));
    }
}
