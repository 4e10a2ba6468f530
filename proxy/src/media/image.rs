//! Upper bounds of an image's input tokens.

use super::Family;

/// The `detail` that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detail {
    /// `low`.
    Low,
    /// `high`.
    High,
    /// `auto`, or none: the model's default.
    Auto,
    /// `original`, and unknown values such as LiteLLM's `ultra_high` for Gemini: the dearest.
    Original,
}

impl Detail {
    /// Every detail.
    pub const ALL: [Self; 4] = [Self::Low, Self::High, Self::Auto, Self::Original];

    /// Returns the detail of this name; an unknown name is the dearest.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "low" => Self::Low,
            "high" => Self::High,
            "auto" => Self::Auto,
            _ => Self::Original,
        }
    }
}

/// Rule by which a family counts.
#[derive(Debug, Clone, Copy)]
enum ImageRate {
    Claude { patches: u64, area: u64 },
    Tiles { base: u64, tile: u64 },
    Patches { low: u64, high: u64, auto: u64, original: u64, percent: u64 },
    GeminiTiles,
    GeminiResolution,
}

/// Claude counts patches of 28 x 28 pixels, at most 1,568 of them, 4,784 with the larger limit (Anthropic's page on
/// vision, 2026-10). Until 2026 the page said pixels / 750 for images scaled to 1,568 pixels and some 1,600 tokens; its
/// largest example, 784 x 1568, is 1,640. 4,784 patches by that rule are 5,001. The larger count is taken.
const CLAUDE: ImageRate = ImageRate::Claude { patches: 1568, area: 1640 };
const CLAUDE_LARGE: ImageRate = ImageRate::Claude { patches: 4784, area: CLAUDE_LARGE_MAX };
pub(super) const CLAUDE_LARGE_MAX: u64 = 5001;
const CLAUDE_PATCH: u64 = 28;
const CLAUDE_PIXELS: u64 = 750;

/// Patches that OpenAI takes for an image; it refuses one with more (its page on images and vision, autumn 2026).
const PATCHES_MAX: u64 = 30_000;
/// Patches that an image of 512 x 512 pixels has.
const PATCHES_LOW: u64 = 256;
/// The floats of OpenAI's count may differ by one (the same page).
const PATCH_ROUNDING: u64 = 1;

/// OpenAI's page on images and vision: details, budgets and multipliers, from a copy of autumn 2026 that names
/// gpt-6-astra. Where a copy of spring 2026, which ends at gpt-5.4, differs, the larger figure is taken: multipliers of
/// 1.62 for gpt-5-mini (now 1.2), 2.46 for gpt-5-nano (now 1.5); third-party copies have the same two for gpt-5.4-mini
/// and -nano (now 1.2). The budget of the older models was 1,536 patches and is 6,144. The documented default is `high`
/// for gpt-5.4 and `original` for gpt-5.5; `original` is taken for both.
fn bill(family: Family) -> Option<ImageRate> {
    let older = |percent| ImageRate::Patches { low: 6144, high: 6144, auto: 6144, original: 6144, percent };
    let gpt54 = |percent| ImageRate::Patches { low: 6144, high: 2500, auto: 10_000, original: 10_000, percent };
    let newest = |most| ImageRate::Patches { low: PATCHES_LOW, high: 2500, auto: most, original: most, percent: 120 };
    Some(match family {
        Family::Claude => CLAUDE,
        Family::ClaudeLarge => CLAUDE_LARGE,
        Family::Gpt4o => ImageRate::Tiles { base: 85, tile: 170 },
        Family::Gpt4oMini => ImageRate::Tiles { base: 2833, tile: 5667 },
        Family::Gpt5 => ImageRate::Tiles { base: 70, tile: 140 },
        Family::O3 => ImageRate::Tiles { base: 75, tile: 150 },
        Family::ComputerUse => ImageRate::Tiles { base: 65, tile: 129 },
        Family::Gpt5Mini => older(162),
        Family::Gpt5Nano => older(246),
        Family::O4Mini => older(172),
        Family::Gpt52 => older(120),
        Family::Gpt54 => gpt54(120),
        Family::Gpt54Mini => gpt54(162),
        Family::Gpt54Nano => gpt54(246),
        Family::Gpt55 => newest(10_000),
        Family::Gpt56 => newest(PATCHES_MAX),
        Family::Gemini2 => ImageRate::GeminiTiles,
        Family::Gemini3 => ImageRate::GeminiResolution,
        Family::Unknown => return None,
    })
}

/// Returns the tokens that an image of this size is billed at most, or any image if its size is not known.
///
/// It covers the provider's count and LiteLLM's own, by which LiteLLM bills when the provider names no usage.
#[must_use]
pub fn image_tokens(dimensions: Option<(u32, u32)>, detail: Detail, family: Family) -> u64 {
    let size = dimensions
        .map(|(width, height)| (u64::from(width.min(height)), u64::from(width.max(height))))
        .filter(|(short, _)| *short > 0);
    let by_provider = match bill(family) {
        Some(bill) => bill.tokens(size, detail),
        None => {
            let bills = Family::ALL.into_iter().filter_map(bill);
            bills.map(|bill| bill.tokens(size, detail)).max().unwrap_or(u64::MAX)
        }
    };
    by_provider.max(by_litellm(size, detail))
}

impl ImageRate {
    /// Tokens of an image by its shorter and longer side.
    fn tokens(self, size: Option<(u64, u64)>, detail: Detail) -> u64 {
        match self {
            Self::Claude { patches, area } => size.map_or(patches.max(area), |(short, long)| {
                let by_patches = patches_of(short, long, CLAUDE_PATCH).min(patches);
                let by_area = short.saturating_mul(long).div_ceil(CLAUDE_PIXELS).min(area);
                by_patches.max(by_area)
            }),
            Self::Tiles { base, .. } if detail == Detail::Low => base,
            Self::Tiles { base, tile } => base.saturating_add(tile.saturating_mul(openai_tiles(size))),
            Self::Patches { low, high, auto, original, percent } => {
                let budget = match detail {
                    Detail::Low => low,
                    Detail::High => high,
                    Detail::Auto => auto,
                    Detail::Original => original.max(low).max(high),
                };
                let patches = size.map_or(budget, |(short, long)| patches_of(short, long, 32).min(budget));
                patches.saturating_mul(percent).div_ceil(100).saturating_add(PATCH_ROUNDING)
            }
            Self::GeminiTiles => gemini_tiles(size),
            // Google's page on media resolution (2026): 280, 560, 1,120 (the default) and 2,240. `low` is not taken at
            // its word: LiteLLM forwards the resolution on some of its routes only.
            Self::GeminiResolution if detail == Detail::Original => 2240,
            Self::GeminiResolution => 1120,
        }
    }
}

/// Squares of this side that cover an image. Scaling an image down never adds one.
fn patches_of(short: u64, long: u64, side: u64) -> u64 {
    short.div_ceil(side).saturating_mul(long.div_ceil(side))
}

/// Tiles of 512 pixels after OpenAI scaled the image down to fit 2048 x 2048 pixels, and its shorter side to 768 (its
/// page on images and vision; the copy of autumn 2026 says that smaller images are not enlarged).
///
/// How the first step rounds is not documented: the shorter side is rounded both ways, whichever gives more tiles.
fn openai_tiles(size: Option<(u64, u64)>) -> u64 {
    const FIT: u64 = 2048;
    const SHORT: u64 = 768;
    const TILE: u64 = 512;
    let Some((short, long)) = size else {
        return FIT.div_ceil(TILE) * SHORT.div_ceil(TILE);
    };
    let (least, most, long) =
        if long > FIT { (short * FIT / long, (short * FIT).div_ceil(long), FIT) } else { (short, short, long) };
    let long = (long * SHORT).div_ceil(least.max(SHORT));
    long.div_ceil(TILE) * most.min(SHORT).div_ceil(TILE)
}

/// Gemini before 3. Google's page on image understanding (2026): 258 tokens up to 384 pixels a side, and else 258 for
/// each tile, whose side is about the shorter one / 1.5; older copies clamp it to 256 to 768 pixels. Google's page on
/// media resolution says some 256 + 2,048 at most. One of both plus a tile for the whole image is taken: a report on
/// Google's forum has 7 tiles for 1980 x 1380. `detail` is left out: LiteLLM asks for the highest of the request.
fn gemini_tiles(size: Option<(u64, u64)>) -> u64 {
    const TOKENS: u64 = 258;
    const FLOOR: u64 = 256 + 2048;
    /// Images are scaled to 3072 pixels (Google's documents of 2025): 12 x 2 tiles of 256 pixels. Not verified for
    /// very long images.
    const TILES: u64 = 24;
    if size.is_some_and(|(_, long)| long <= 384) {
        return TOKENS;
    }
    let tiles = size.map_or(TILES, |(short, long)| {
        let unit = short.saturating_mul(2) / 3;
        let clamped = patches_of(short, long, unit.clamp(256, 768));
        patches_of(short, long, unit.max(1)).max(clamped).min(TILES)
    });
    FLOOR.max(TOKENS.saturating_mul(tiles.saturating_add(1)))
}

/// LiteLLM's `calculate_img_tokens` (1.106.2, `litellm_core_utils/token_counter.py`, with the defaults of its
/// environment variables): 85, and 170 for each tile when `detail` is `high`.
///
/// It enlarges small images, and its floats round down: the shorter side is taken one pixel larger. An image that it
/// cannot read counts as 300 x 300.
fn by_litellm(size: Option<(u64, u64)>, detail: Detail) -> u64 {
    const SHORT: u64 = 768;
    const LONG: u64 = 2000;
    const TILE: u64 = 512;
    let tiles = match (detail, size) {
        (Detail::Low | Detail::Auto, _) => 0,
        (_, None) => LONG.div_ceil(TILE) * SHORT.div_ceil(TILE),
        (_, Some((_, long))) if long <= SHORT => {
            long.div_ceil(TILE) * size.map_or(2, |(short, _)| short.div_ceil(TILE))
        }
        (_, Some((short, long))) => {
            let scaled = (SHORT * long).div_ceil(short);
            if scaled > LONG {
                LONG.div_ceil(TILE) * (LONG * short / long + 1).div_ceil(TILE)
            } else {
                scaled.div_ceil(TILE) * SHORT.div_ceil(TILE)
            }
        }
    };
    // 300 x 300 pixels are one tile.
    let tiles = if matches!(detail, Detail::Low | Detail::Auto) { tiles } else { tiles.max(1) };
    85 + 170 * tiles
}
