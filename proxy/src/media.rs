//! Upper bounds of the input tokens that providers bill for inline images, audio and documents.
//!
//! Pure: no clock, no I/O, and no state. The sender chooses every byte of a medium, so a bound holds for any bytes.
//! The operator chooses the model names, and the sender only picks one of them.
//!
//! [`dimensions`] reads an image's width and height, [`Family::of`] finds how a model bills images, and
//! [`image_tokens`] combines both. [`document_tokens`] and [`audio_tokens`] tell where bytes give no bound at all. A
//! bound covers only the medium: the JSON around it is text, and the caller counts it as text.
//!
//! Every figure has its source and the date of the copy that was read. The stored copies were read in November 2026.

mod family;
mod head;
mod image;
#[cfg(test)]
mod tests;

pub use family::Family;
pub use head::dimensions;
pub use image::{Detail, image_tokens};

/// Estimate of the tokens of a medium whose size in bytes is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenEstimate {
    /// The provider bills at most this.
    Bound(u64),
    /// The bytes give no upper bound. A caller that must not pass a cap reserves the model's whole input window.
    Unbounded {
        /// A high estimate for an honest sender.
        guess: u64,
    },
}

/// Form in which the provider reads the bytes of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentForm {
    /// The provider reads the bytes as text. The caller must know this from the API, not from the sender.
    PlainText,
    /// PDF, an office file, or an unknown form: the pages may be compressed.
    Packed,
}

/// Form in which the provider reads the bytes of an audio part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioForm {
    /// 16-bit mono samples at 24 kHz without a header, as OpenAI's format `pcm16`. The sender cannot change the rate.
    Pcm16,
    /// Any file with a header, WAV included, and any raw audio whose rate the sender names.
    Encoded,
}

/// Pages that a provider takes in one file. Google's page on document understanding (2026) says 3,000 for the newest
/// Gemini models, 1,000 for Gemini 2.5; Anthropic's page on PDF support (2026-10) 600; OpenAI names only a size.
const PAGES_MAX: u64 = 3000;
/// Estimated bytes of a page: a page of dense text deflates to some 4 KiB. A page that repeats another one needs some
/// 100 bytes.
const PAGE_BYTES: u64 = 4096;
/// The image of a page at the larger Claude limit, and its text: 1,500 to 3,000 tokens (Anthropic's page on PDF
/// support, 2026-10), 30% more with the tokenizer of Claude 4.7 and later (its page on token counting, as quoted in a
/// third-party document of 2026-10). Gemini 3 bills at most 1,120 for a page, and its text. Text has no limit per page.
const PAGE_TOKENS: u64 = image::CLAUDE_LARGE_MAX + 3900;

/// Tokens of a document of this many decoded bytes.
///
/// There is no bound for a packed document: a compressed stream may hold any amount of text, and pages may share it.
/// LiteLLM's own counter also reads every page of a PDF.
#[must_use]
pub fn document_tokens(bytes: u64, document: DocumentForm) -> TokenEstimate {
    match document {
        // Tokenizers work on bytes, and no token is shorter than one.
        DocumentForm::PlainText => TokenEstimate::Bound(bytes),
        DocumentForm::Packed => {
            let pages = bytes.div_ceil(PAGE_BYTES).clamp(1, PAGES_MAX);
            TokenEstimate::Unbounded { guess: pages.saturating_mul(PAGE_TOKENS) }
        }
    }
}

/// Tokens of a second of audio. Gemini 2.x bills 32, Gemini 3 bills 25 (Google's pages on tokens and on media
/// resolution, 2026), OpenAI one for 100 ms (its page on realtime costs, as quoted in a third-party document of
/// 2026-08).
const AUDIO_TOKENS_PER_SECOND: u64 = 32;
/// 24,000 samples of 2 bytes. From memory of OpenAI's reference; not looked up.
const PCM16_BYTES_PER_SECOND: u64 = 48_000;
/// The lowest bit rate in the tables of MPEG-2 layer III is 8 kbit/s. From memory of ISO/IEC 13818-3; a guess needs no
/// more.
const ENCODED_BYTES_PER_SECOND: u64 = 1000;
/// Tokens beside the samples: markers around the audio, which OpenAI's page on realtime costs mentions without a
/// figure.
const AUDIO_EXTRA: u64 = 16;

/// Tokens of an audio part of this many decoded bytes.
///
/// There is no bound for encoded audio: a WAV header may name one sample a second, and FLAC, Opus and free-format MP3
/// store hours of silence in a few kilobytes.
#[must_use]
pub fn audio_tokens(bytes: u64, audio: AudioForm) -> TokenEstimate {
    let at = |rate: u64| {
        let tokens = (u128::from(bytes) * u128::from(AUDIO_TOKENS_PER_SECOND)).div_ceil(u128::from(rate));
        u64::try_from(tokens).unwrap_or(u64::MAX).saturating_add(AUDIO_EXTRA)
    };
    match audio {
        AudioForm::Pcm16 => TokenEstimate::Bound(at(PCM16_BYTES_PER_SECOND)),
        AudioForm::Encoded => TokenEstimate::Unbounded { guess: at(ENCODED_BYTES_PER_SECOND) },
    }
}
