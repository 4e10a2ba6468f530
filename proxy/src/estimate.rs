//! What a call may use at most, as far as that can be told before it is made.
//!
//! Pure. Where it says so, the amounts are an upper bound: no tokenizer makes more tokens than there are
//! bytes, and every price is the dearest that the call can come to.

use std::sync::Arc;

use crate::body::Reading;
use crate::body::media::Kind;
use crate::caps::{Ask, Output};
use crate::media::{self, Audio, Document, Family, Tokens};
use crate::policy::Wire;
use crate::prices::{Price, Prices, Terms};
use crate::tokens::TokenBound;

/// Output tokens of a call that names no bound, of a model whose bound is not known. Nearly all models write as many, and
/// some refuse to be asked for more.
const ASSUMED_OUTPUT: u64 = 8192;
/// What every call has beside the text of its body: the marks of roles and turns, which the body's braces outnumber.
const CALL_TOKENS: u64 = 16;
/// What providers tell a model of how to call tools, or to answer by a schema: up to some 700 tokens.
const INSTRUCTION_TOKENS: u64 = 1024;
/// What they tell it of one tool that they know by its type: up to some 1,300 tokens.
const TYPED_TOOL_TOKENS: u64 = 1536;
/// LiteLLM raises a smaller bound to this wherever it asks a provider through the Responses API: on the Responses
/// route, on the Messages route for OpenAI, and on any route for models that only have that API.
const OUTPUT_MIN: u64 = 16;
/// LiteLLM's client for embeddings tries twice more, whatever the request says.
const EMBEDDING_TRIES: u64 = 3;

/// What one call may cost.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// The price of its model, when there are prices.
    pub price: Option<Arc<Price>>,
    /// Which of the model's rates hold.
    pub terms: Terms,
    wire: Wire,
    /// Bytes that are read as text.
    text: u64,
    /// Tokens beside the text: media, and what a provider adds.
    beside: u64,
    /// There is no bound: the prompt has a document, sound, or a stored file, or more than tokens is billed.
    unbounded: bool,
    output: Option<u64>,
    /// Thinking needs as much.
    least_output: u64,
    is_claude: bool,
    choices: u64,
    prediction: u64,
}

impl Estimate {
    /// Of a body that was read.
    #[must_use]
    pub fn of(reading: &Reading, body_bytes: u64, prices: Option<&Prices>, wire: Wire) -> Self {
        let price = prices.zip(reading.model.as_deref()).map(|(prices, model)| prices.of(model));
        let family = price.as_ref().and_then(|price| price.family).unwrap_or(Family::Unknown);
        let media = Media::of(reading, family);
        let extras = reading.extras;
        let stored_tokens = reading.special.as_ref().and_then(|special| special.stored_tokens);
        let added = if extras.instructions { INSTRUCTION_TOKENS } else { 0 };
        // Claude reads them as they are; for others LiteLLM writes each foreign letter as six, and blanks between numbers.
        let is_claude = matches!(family, Family::Claude | Family::ClaudeLarge);
        let is_called_claude = reading.model.as_deref().is_some_and(|model| model.contains("claude"));
        let rewritten = if is_claude { 0 } else { extras.rewritten_bytes.saturating_mul(2) };
        let beside = CALL_TOKENS
            .saturating_add(rewritten)
            .saturating_add(added)
            .saturating_add(extras.typed_tools.saturating_mul(TYPED_TOOL_TOKENS))
            .saturating_add(extras.unfolded_bytes)
            .saturating_add(stored_tokens.unwrap_or(0))
            .saturating_add(media.tokens);
        let has_output = wire.is_billed() && !matches!(wire, Wire::Embeddings | Wire::Compact | Wire::Other);
        let model_max = price.as_ref().and_then(|price| price.max_output);
        let wanted = reading.max_output.or(model_max).unwrap_or(ASSUMED_OUTPUT);
        let beyond_tokens = price.as_ref().is_some_and(|price| price.beyond_tokens);
        Self {
            price,
            terms: Terms {
                input: 0,
                service_tier: extras.service_tier,
                long_cache: extras.long_cache,
                audio_input: media.audio,
                audio_output: extras.audio_output,
            },
            wire,
            text: body_bytes.saturating_sub(media.bytes),
            beside,
            unbounded: media.unbounded
                || beyond_tokens
                || stored_tokens.is_some()
                || matches!(wire, Wire::Compact | Wire::Other),
            output: has_output.then(|| wanted.max(OUTPUT_MIN)),
            least_output: reading
                .special
                .as_ref()
                .and_then(|special| special.thinking.least_output(is_claude || is_called_claude))
                .unwrap_or(0),
            is_claude: is_claude || is_called_claude,
            choices: reading.choices,
            prediction: extras.prediction_bytes,
        }
    }

    /// The model's own longest answer is known.
    #[must_use]
    pub fn model_is_bounded(&self) -> bool {
        self.price.as_ref().is_some_and(|price| price.max_output.is_some())
    }

    /// LiteLLM makes a budget for thinking of a word for this model.
    #[must_use]
    pub fn is_claude(&self) -> bool {
        self.is_claude
    }

    /// With a token for each byte of the text.
    pub fn by_bytes(&mut self) -> Ask {
        self.ask(self.text)
    }

    /// With the text itself, in pieces: known words are one token each. It takes longer, and says less.
    pub fn by_words<'a>(&mut self, reading: &Reading, pieces: impl Iterator<Item = &'a [u8]>) -> Ask {
        let mut bound = TokenBound::new();
        let mut skipped = reading.media.media.iter().filter(|medium| medium.verified).map(|medium| medium.range);
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
        self.ask(bound.finish())
    }

    fn ask(&mut self, text_tokens: u64) -> Ask {
        if !self.wire.is_billed() {
            return Ask { strict: true, ..Ask::default() };
        }
        let tries = if self.wire == Wire::Embeddings { EMBEDDING_TRIES } else { 1 };
        let input = text_tokens.saturating_add(self.beside);
        self.terms.input = input;
        let input = input.saturating_mul(tries);
        let rate = |rate: fn(&Price, &Terms) -> u128| self.price.as_ref().map_or(0, |price| rate(price, &self.terms));
        let output_rate = rate(Price::output);
        let guessed = if matches!(self.wire, Wire::Compact | Wire::Other) { ASSUMED_OUTPUT } else { 0 };
        let fixed = self.prediction.saturating_mul(self.choices).saturating_add(guessed);
        let femtos = u128::from(input) * rate(Price::input) + u128::from(fixed) * output_rate;
        Ask {
            tokens: input.saturating_add(fixed),
            femtos,
            output: self.output.map(|wanted| Output {
                wanted,
                choices: self.choices,
                femtos: output_rate,
                least: self.least_output,
            }),
            strict: !self.unbounded,
        }
    }
}

/// What the media of a body come to.
#[derive(Debug, Default)]
struct Media {
    tokens: u64,
    /// Bytes of the body that are no text.
    bytes: u64,
    unbounded: bool,
    audio: bool,
}

impl Media {
    fn of(reading: &Reading, family: Family) -> Self {
        let mut all = Self::default();
        for medium in &reading.media.media {
            let bytes = medium.range.1 - medium.range.0;
            if medium.verified {
                all.bytes = all.bytes.saturating_add(bytes);
            }
            // Base64: three bytes in four characters.
            let decoded = bytes / 4 * 3;
            let tokens = match medium.kind {
                Kind::Image(dimensions, detail) => Tokens::Bound(media::image_tokens(dimensions, detail, family)),
                Kind::Document => media::document_tokens(decoded, Document::Packed),
                Kind::Audio => media::audio_tokens(decoded, Audio::Encoded),
                // Its size is not known here.
                Kind::Stored => media::document_tokens(1 << 20, Document::Packed),
            };
            all.audio |= medium.kind == Kind::Audio;
            all.unbounded |= matches!(tokens, Tokens::Unbounded { .. });
            let (Tokens::Bound(tokens) | Tokens::Unbounded { guess: tokens }) = tokens;
            all.tokens = all.tokens.saturating_add(tokens);
        }
        if reading.media.more > 0 {
            let dearest = media::image_tokens(None, media::Detail::Original, family);
            all.tokens = all.tokens.saturating_add(reading.media.more.saturating_mul(dearest));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::media::{MediaFound, Medium};
    use crate::media::Detail;

    const PRICES: &str = r#"{"data":[{"model_name":"m","litellm_params":{"model":"openai/gpt-4o"},"model_info":{
        "input_cost_per_token":0.001,"output_cost_per_token":0.01,"max_output_tokens":500}}]}"#;
    const MILLI: u128 = 1_000_000_000_000;

    fn reading(max_output: Option<u64>, choices: u64) -> Reading {
        Reading { model: Some("m".to_owned()), max_output, choices, ..Reading::default() }
    }

    fn ask(reading: &Reading, wire: Wire) -> Ask {
        Estimate::of(reading, 900, Some(&Prices::parse(PRICES).expect("prices")), wire).by_bytes()
    }

    #[test]
    fn a_byte_is_a_token_and_an_answer_as_long_as_its_bound() {
        let output = |wanted, choices| Some(Output { wanted, choices, femtos: 10 * MILLI, least: 0 });
        let input = Ask { tokens: 916, femtos: 916 * MILLI, output: None, strict: true };
        assert_eq!(ask(&reading(Some(20), 2), Wire::Chat), Ask { output: output(20, 2), ..input });
        assert_eq!(
            ask(&reading(None, 1), Wire::Chat),
            Ask { output: output(500, 1), ..input },
            "the model's own bound"
        );
        for wire in [Wire::Chat, Wire::Completions, Wire::Responses, Wire::Messages] {
            assert_eq!(ask(&reading(Some(1), 1), wire), Ask { output: output(16, 1), ..input });
        }
        assert_eq!(ask(&reading(None, 1), Wire::CountTokens), Ask { strict: true, ..Ask::default() });
        let tries = Ask { tokens: 3 * 916, femtos: 3 * 916 * MILLI, output: None, strict: true };
        assert_eq!(ask(&reading(None, 1), Wire::Embeddings), tries);
        assert!(!ask(&reading(None, 1), Wire::Other).strict);
    }

    #[test]
    fn what_is_not_in_the_body_is_added() {
        let with = |extras| Reading { extras, ..reading(Some(1), 1) };
        let extras = crate::body::Extras {
            instructions: true,
            typed_tools: 2,
            unfolded_bytes: 7,
            prediction_bytes: 30,
            ..Default::default()
        };
        let more = ask(&with(extras), Wire::Chat);
        let input = 916 + 1024 + 2 * 1536 + 7;
        assert_eq!((more.tokens, more.femtos), (input + 30, u128::from(input) * MILLI + 300 * MILLI));
    }

    #[test]
    fn an_image_is_counted_by_its_size_and_a_document_has_no_bound() {
        let with = |kind, verified| {
            let media = vec![Medium { kind, range: (100, 700), verified }];
            Reading { media: MediaFound { media, more: 0 }, ..reading(Some(1), 1) }
        };
        let image = |verified| ask(&with(Kind::Image(Some((512, 512)), Detail::High), verified), Wire::Chat);
        assert_eq!((image(true).tokens, image(true).strict), (316 + 255, true));
        assert_eq!((image(false).tokens, image(false).strict), (916 + 255, true), "it may be read as text");
        assert!(!ask(&with(Kind::Document, true), Wire::Chat).strict);
        assert!(!ask(&with(Kind::Stored, false), Wire::Chat).strict);
    }

    #[test]
    fn words_are_counted_wherever_the_pieces_end_and_images_are_left_out() {
        let body = br#"{"messages":[{"content":"hello there, this is a text"},{"image":"AAAAAAAAAAAA"}]}"#;
        let at = body.windows(14).position(|it| it.starts_with(b"\"AAAA")).expect("the image") as u64;
        let image = Medium { kind: Kind::Image(Some((1, 1)), Detail::Low), range: (at, at + 14), verified: true };
        let mut reading = reading(Some(1), 1);
        reading.media = MediaFound { media: vec![image], more: 0 };
        let mut estimate = Estimate::of(&reading, body.len() as u64, None, Wire::Chat);
        let whole = estimate.by_words(&reading, std::iter::once(&body[..]));
        assert!(whole.tokens < estimate.by_bytes().tokens);
        for size in 1..body.len() {
            assert_eq!(estimate.by_words(&reading, body.chunks(size)), whole, "{size}");
        }
    }
}
