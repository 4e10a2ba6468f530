//! What a call may use at most, as far as that can be told before it is made.
//!
//! Pure. It guards caps and is no bill, so it errs on the side of too much.

use crate::body::Reading;
use crate::caps::Ask;
use crate::policy::Wire;
use crate::prices::{ASSUMED_OUTPUT, Price, Prices};

/// Bytes to a token, where only bytes are known: fewer than in any language that models are billed in.
const BYTES_PER_TOKEN: u64 = 3;

/// The price of the model asked for, when there are prices.
#[must_use]
pub fn price(prices: Option<&Prices>, reading: &Reading) -> Option<Price> {
    Some(prices?.of(reading.model.as_deref()?))
}

/// Tokens and dollars: the input by its bytes, the output by the client's bound, the model's, or a guess.
#[must_use]
pub fn ask(reading: &Reading, body_bytes: u64, price: Option<Price>, wire: Wire) -> Ask {
    if !wire.is_billed() {
        return Ask { declared: true, ..Ask::default() };
    }
    let input = body_bytes.saturating_sub(reading.media_bytes) / BYTES_PER_TOKEN + reading.media_tokens;
    let has_output = wire != Wire::Embeddings;
    let each = reading.max_output.or_else(|| price.and_then(|price| price.max_output)).unwrap_or(ASSUMED_OUTPUT);
    let output = if has_output { each.saturating_mul(reading.choices) } else { 0 };
    Ask {
        tokens: input.saturating_add(output),
        nanos: price.map_or(0, |price| price.cost(input, output)),
        declared: reading.max_output.is_some() || !has_output,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(max_output: Option<u64>, choices: u64) -> Reading {
        Reading { max_output, choices, media_bytes: 600, media_tokens: 50, ..Reading::default() }
    }

    #[test]
    fn a_bound_of_the_client_is_declared_and_a_guess_is_not() {
        let ask = |max, wire| ask(&reading(max, 2), 900, None, wire);
        assert_eq!(ask(Some(10), Wire::Chat), Ask { tokens: 100 + 50 + 20, nanos: 0, declared: true });
        assert_eq!(ask(None, Wire::Chat), Ask { tokens: 150 + 2 * ASSUMED_OUTPUT, nanos: 0, declared: false });
        assert_eq!(ask(None, Wire::Embeddings), Ask { tokens: 150, nanos: 0, declared: true });
        assert_eq!(ask(None, Wire::CountTokens), Ask { declared: true, ..Ask::default() });
    }
}
