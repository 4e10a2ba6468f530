//! Upper bounds of what a call may use, as far as they are known before it is made.
//!
//! Pure. Where `strict` is true, the amounts are an upper bound: no tokenizer makes more tokens than there are bytes,
//! and each price is the dearest one that may apply.

use std::sync::Arc;

use crate::body::ParsedBody;
use crate::body::media::MediaKind;
use crate::caps::{CapRequest, OutputRequest};
use crate::media::{self, AudioForm, DocumentForm, Family, TokenEstimate};
use crate::policy::ApiFormat;
use crate::prices::{Price, PriceTable, RateFactors};
use crate::tokens::TokenBound;

/// Output tokens of a call that names no bound, for a model whose bound is not known. Nearly all models write that
/// many, and some refuse to be asked for more.
const ASSUMED_OUTPUT: u64 = 8192;
/// Tokens of each call beside the text of its body: the marks of roles and turns, which the body's braces outnumber.
const CALL_TOKENS: u64 = 16;
/// Tokens of a provider's instructions on calling tools, or on responding by a schema: up to some 700.
const INSTRUCTION_TOKENS: u64 = 1024;
/// Tokens of a provider's instructions on one tool that it knows by its type: up to some 1,300.
const TYPED_TOOL_TOKENS: u64 = 1536;
/// Smallest output bound: LiteLLM raises a smaller one to this wherever it asks a provider through the Responses API:
/// on the Responses route, on the Messages route for OpenAI, and on any route for models that only have that API.
const OUTPUT_MIN: u64 = 16;
/// Number of tries: LiteLLM's client for embeddings tries twice more, in spite of the settings of the request.
const EMBEDDING_TRIES: u64 = 3;

/// Estimate of the cost of one call.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Price of the model, if there are prices.
    pub price: Option<Arc<Price>>,
    /// Factors that decide which of the model's rates apply.
    pub factors: RateFactors,
    format: ApiFormat,
    /// Number of bytes that are read as text.
    text: u64,
    /// Tokens beside the text: media, and what a provider adds.
    beside: u64,
    /// True if there is no upper bound: the prompt has a document, sound or a stored file, or more than tokens is
    /// billed.
    unbounded: bool,
    output: Option<u64>,
    /// True if the client or the model bounds the response.
    is_bounded: bool,
    /// Smallest output bound that leaves tokens for required thinking; 0 without it.
    least_output: u64,
    is_claude: bool,
    choices: u64,
    prediction: u64,
}

impl Estimate {
    /// Estimates a call from its body.
    #[must_use]
    pub fn of(parsed: &ParsedBody, body_bytes: u64, prices: Option<&PriceTable>, format: ApiFormat) -> Self {
        let price = prices.zip(parsed.model.as_deref()).map(|(prices, model)| prices.of(model));
        let family = price.as_ref().and_then(|price| price.family).unwrap_or(Family::Unknown);
        let media = MediaTotals::of(parsed, family);
        let cost_factors = parsed.cost_factors;
        let stored_tokens = parsed.rare.as_ref().and_then(|rare| rare.stored_tokens);
        let added = if cost_factors.instructions { INSTRUCTION_TOKENS } else { 0 };
        // Claude reads arguments of tools unchanged; for other models LiteLLM writes each non-ASCII letter as six
        // characters, and blanks between numbers.
        let is_claude = matches!(family, Family::Claude | Family::ClaudeLarge);
        let is_called_claude = parsed.model.as_deref().is_some_and(|model| model.contains("claude"));
        let rewritten = if is_claude { 0 } else { cost_factors.rewritten_bytes.saturating_mul(2) };
        let beside = CALL_TOKENS
            .saturating_add(rewritten)
            .saturating_add(added)
            .saturating_add(cost_factors.typed_tools.saturating_mul(TYPED_TOOL_TOKENS))
            .saturating_add(cost_factors.expanded_bytes)
            .saturating_add(stored_tokens.unwrap_or(0))
            .saturating_add(media.tokens);
        let has_output =
            format.is_billed() && !matches!(format, ApiFormat::Embeddings | ApiFormat::Compact | ApiFormat::Other);
        let model_max = price.as_ref().and_then(|price| price.max_output);
        let wanted = parsed.max_output.or(model_max).unwrap_or(ASSUMED_OUTPUT);
        let beyond_tokens = price.as_ref().is_some_and(|price| price.beyond_tokens);
        Self {
            price,
            factors: RateFactors {
                input: 0,
                service_tier: cost_factors.service_tier,
                long_cache: cost_factors.long_cache,
                audio_input: media.audio,
                audio_output: cost_factors.audio_output,
            },
            format,
            text: body_bytes.saturating_sub(media.bytes),
            beside,
            unbounded: media.unbounded
                || beyond_tokens
                || stored_tokens.is_some()
                || matches!(format, ApiFormat::Compact | ApiFormat::Other),
            output: has_output.then(|| wanted.max(OUTPUT_MIN)),
            is_bounded: parsed.max_output.or(model_max).is_some(),
            least_output: parsed
                .rare
                .as_ref()
                .and_then(|rare| rare.thinking.least_output(is_claude || is_called_claude))
                .unwrap_or(0),
            is_claude: is_claude || is_called_claude,
            choices: parsed.choices,
            prediction: cost_factors.prediction_bytes,
        }
    }

    /// Returns true if the longest response of the model is known.
    #[must_use]
    pub fn model_is_bounded(&self) -> bool {
        self.price.as_ref().is_some_and(|price| price.max_output.is_some())
    }

    /// Returns true if LiteLLM makes a thinking budget of a word for this model.
    #[must_use]
    pub fn is_claude(&self) -> bool {
        self.is_claude
    }

    /// Estimates with one token for each byte of the text.
    pub fn by_bytes(&mut self) -> CapRequest {
        self.request(self.text)
    }

    /// Estimates with the text itself, in pieces: known words are one token each. That takes longer, and gives a
    /// smaller bound.
    pub fn by_words<'a>(&mut self, parsed: &ParsedBody, pieces: impl Iterator<Item = &'a [u8]>) -> CapRequest {
        let mut bound = TokenBound::new();
        let mut skipped = parsed.media.media.iter().filter(|medium| medium.verified).map(|medium| medium.range);
        let (mut skip, mut at) = (skipped.next(), 0);
        for piece in pieces {
            let end = at + piece.len() as u64;
            let mut from = at;
            while let Some((start, stop)) = skip.filter(|(start, _)| *start < end) {
                if from < start {
                    bound.feed(&piece[(from - at) as usize..(start - at) as usize]);
                }
                from = from.max(stop.min(end));
                if stop > end {
                    break;
                }
                skip = skipped.next();
            }
            if from < end {
                bound.feed(&piece[(from - at) as usize..]);
            }
            at = end;
        }
        self.request(bound.finish())
    }

    fn request(&mut self, text_tokens: u64) -> CapRequest {
        if !self.format.is_billed() {
            return CapRequest { strict: true, ..CapRequest::default() };
        }
        let tries = if self.format == ApiFormat::Embeddings { EMBEDDING_TRIES } else { 1 };
        let input = text_tokens.saturating_add(self.beside);
        self.factors.input = input;
        let input = input.saturating_mul(tries);
        let rate =
            |rate: fn(&Price, &RateFactors) -> u128| self.price.as_ref().map_or(0, |price| rate(price, &self.factors));
        let output_rate = rate(Price::output);
        let guessed = if matches!(self.format, ApiFormat::Compact | ApiFormat::Other) { ASSUMED_OUTPUT } else { 0 };
        let fixed = self.prediction.saturating_mul(self.choices).saturating_add(guessed);
        let femtos = u128::from(input) * rate(Price::input) + u128::from(fixed) * output_rate;
        CapRequest {
            tokens: input.saturating_add(fixed),
            femtos,
            output: self.output.map(|wanted| OutputRequest {
                wanted,
                choices: self.choices,
                femtos: output_rate,
                least: self.least_output,
                is_bounded: self.is_bounded,
            }),
            strict: !self.unbounded,
        }
    }
}

/// Totals of the media of a body.
#[derive(Debug, Default)]
struct MediaTotals {
    tokens: u64,
    /// Number of bytes of the body that are not text.
    bytes: u64,
    unbounded: bool,
    audio: bool,
}

impl MediaTotals {
    fn of(parsed: &ParsedBody, family: Family) -> Self {
        let mut all = Self::default();
        for medium in &parsed.media.media {
            let bytes = medium.range.1 - medium.range.0;
            if medium.verified {
                all.bytes = all.bytes.saturating_add(bytes);
            }
            // Base64: three bytes in four characters.
            let decoded = bytes / 4 * 3;
            let tokens = match medium.kind {
                MediaKind::Image(dimensions, detail) => {
                    TokenEstimate::Bound(media::image_tokens(dimensions, detail, family))
                }
                MediaKind::Document => media::document_tokens(decoded, DocumentForm::Packed),
                MediaKind::Audio => media::audio_tokens(decoded, AudioForm::Encoded),
                // Its size is not known here.
                MediaKind::Stored => media::document_tokens(1 << 20, DocumentForm::Packed),
            };
            all.audio |= medium.kind == MediaKind::Audio;
            all.unbounded |= matches!(tokens, TokenEstimate::Unbounded { .. });
            let (TokenEstimate::Bound(tokens) | TokenEstimate::Unbounded { guess: tokens }) = tokens;
            all.tokens = all.tokens.saturating_add(tokens);
        }
        if parsed.media.more > 0 {
            let dearest = media::image_tokens(None, media::Detail::Original, family);
            all.tokens = all.tokens.saturating_add(parsed.media.more.saturating_mul(dearest));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::media::{MediaItem, MediaList};
    use crate::media::Detail;

    const PRICES: &str = r#"{"data":[{"model_name":"m","litellm_params":{"model":"openai/gpt-4o"},"model_info":{
        "input_cost_per_token":0.001,"output_cost_per_token":0.01,"max_output_tokens":500}}]}"#;
    const MILLI: u128 = 1_000_000_000_000;

    fn parsed(max_output: Option<u64>, choices: u64) -> ParsedBody {
        ParsedBody { model: Some("m".to_owned()), max_output, choices, ..ParsedBody::default() }
    }

    fn request(parsed: &ParsedBody, format: ApiFormat) -> CapRequest {
        Estimate::of(parsed, 900, Some(&PriceTable::parse(PRICES).expect("prices")), format).by_bytes()
    }

    #[test]
    fn a_byte_is_a_token_by_default() {
        let output =
            |wanted, choices| Some(OutputRequest { wanted, choices, femtos: 10 * MILLI, least: 0, is_bounded: true });
        let input = CapRequest { tokens: 916, femtos: 916 * MILLI, output: None, strict: true };
        assert_eq!(request(&parsed(Some(20), 2), ApiFormat::Chat), CapRequest { output: output(20, 2), ..input });
        assert_eq!(
            request(&parsed(None, 1), ApiFormat::Chat),
            CapRequest { output: output(500, 1), ..input },
            "the model's own bound"
        );
        for format in [ApiFormat::Chat, ApiFormat::Completions, ApiFormat::Responses, ApiFormat::Messages] {
            assert_eq!(request(&parsed(Some(1), 1), format), CapRequest { output: output(16, 1), ..input });
        }
        assert_eq!(
            request(&parsed(None, 1), ApiFormat::CountTokens),
            CapRequest { strict: true, ..CapRequest::default() }
        );
        let tries = CapRequest { tokens: 3 * 916, femtos: 3 * 916 * MILLI, output: None, strict: true };
        assert_eq!(request(&parsed(None, 1), ApiFormat::Embeddings), tries);
        assert!(!request(&parsed(None, 1), ApiFormat::Other).strict);
    }

    #[test]
    fn tokens_outside_the_body_are_added() {
        let with = |cost_factors| ParsedBody { cost_factors, ..parsed(Some(1), 1) };
        let cost_factors = crate::body::CostFactors {
            instructions: true,
            typed_tools: 2,
            expanded_bytes: 7,
            prediction_bytes: 30,
            ..Default::default()
        };
        let more = request(&with(cost_factors), ApiFormat::Chat);
        let input = 916 + 1024 + 2 * 1536 + 7;
        assert_eq!((more.tokens, more.femtos), (input + 30, u128::from(input) * MILLI + 300 * MILLI));
    }

    #[test]
    fn an_image_has_a_bound_and_a_document_none() {
        let with = |kind, verified| {
            let media = vec![MediaItem { kind, range: (100, 700), verified }];
            ParsedBody { media: MediaList { media, more: 0 }, ..parsed(Some(1), 1) }
        };
        let image =
            |verified| request(&with(MediaKind::Image(Some((512, 512)), Detail::High), verified), ApiFormat::Chat);
        assert_eq!((image(true).tokens, image(true).strict), (316 + 255, true));
        assert_eq!((image(false).tokens, image(false).strict), (916 + 255, true), "it may be read as text");
        assert!(!request(&with(MediaKind::Document, true), ApiFormat::Chat).strict);
        assert!(!request(&with(MediaKind::Stored, false), ApiFormat::Chat).strict);
    }

    #[test]
    fn a_split_does_not_change_the_word_count() {
        let body = br#"{"messages":[{"content":"hello there, this is a text"},{"image":"AAAAAAAAAAAA"}]}"#;
        let at = body.windows(14).position(|it| it.starts_with(b"\"AAAA")).expect("the image") as u64;
        let image =
            MediaItem { kind: MediaKind::Image(Some((1, 1)), Detail::Low), range: (at, at + 14), verified: true };
        let mut parsed = parsed(Some(1), 1);
        parsed.media = MediaList { media: vec![image], more: 0 };
        let mut estimate = Estimate::of(&parsed, body.len() as u64, None, ApiFormat::Chat);
        let whole = estimate.by_words(&parsed, std::iter::once(&body[..]));
        assert!(whole.tokens < estimate.by_bytes().tokens);
        for size in 1..body.len() {
            assert_eq!(estimate.by_words(&parsed, body.chunks(size)), whole, "{size}");
        }
    }
}
