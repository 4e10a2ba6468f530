//! What a call may cost at most: a price file in the shape of LiteLLM's `/model/info`.
//!
//! Pure but for reading the file. Prices are kept as femto-USD per token (10^-15), since a token may cost
//! less than a nano-USD.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_contract::Usd;
use sluice_contract::record::Usage;

/// Output tokens to expect of a call that names no bound, of a model whose bound is not known.
pub const ASSUMED_OUTPUT: u64 = 4096;

const FEMTOS_PER_NANO: i128 = 1_000_000;

/// What one model costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    input: i128,
    output: i128,
    /// The most that the model writes in one answer.
    pub max_output: Option<u64>,
}

/// The prices of the models that this run may use.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    models: HashMap<String, Price>,
    /// For a model that the file does not name: the dearest rates in it.
    dearest: Price,
}

/// The file is no price list.
#[derive(Debug, thiserror::Error)]
pub enum PricesError {
    /// Not in the shape of `/model/info`.
    #[error(
        "want the JSON of LiteLLM's GET /model/info: {{\"data\":[{{\"model_name\":…,\"model_info\":{{\"input_cost_per_token\":…}}}}]}}"
    )]
    Shape(#[source] serde_json::Error),
    /// Nothing in it has a price.
    #[error("no model in it has an input_cost_per_token and an output_cost_per_token")]
    Empty,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    data: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    model_name: String,
    #[serde(borrow)]
    model_info: Info<'a>,
}

#[derive(Deserialize)]
struct Info<'a> {
    // As text: a float would already have lost the digits.
    #[serde(borrow)]
    input_cost_per_token: Option<&'a RawValue>,
    #[serde(borrow)]
    output_cost_per_token: Option<&'a RawValue>,
    max_output_tokens: Option<u64>,
}

impl Prices {
    /// Reads the file's text.
    ///
    /// # Errors
    /// [`PricesError`]
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let file: File<'_> = serde_json::from_str(text).map_err(PricesError::Shape)?;
        let mut prices = Self::default();
        for Entry { model_name, model_info: info } in file.data {
            let (Some(input), output) = (femtos(info.input_cost_per_token), femtos(info.output_cost_per_token)) else {
                continue;
            };
            // An embedding model has no output price, and no output.
            let price = Price { input, output: output.unwrap_or(0), max_output: info.max_output_tokens };
            // Deployments of one name may differ: the dearer one is what a call may cost.
            let known = prices.models.entry(model_name).or_default();
            *known = dearer(*known, price);
            prices.dearest = dearer(prices.dearest, price);
        }
        if prices.models.is_empty() { Err(PricesError::Empty) } else { Ok(prices) }
    }

    /// The price of a model, or the dearest known.
    #[must_use]
    pub fn of(&self, model: &str) -> Price {
        self.models.get(model).copied().unwrap_or(self.dearest)
    }
}

impl Price {
    /// Nano-USD for so many tokens, rounded up.
    #[must_use]
    pub fn cost(&self, input: u64, output: u64) -> i64 {
        let femtos = self.input * i128::from(input) + self.output * i128::from(output);
        i64::try_from((femtos + FEMTOS_PER_NANO - 1) / FEMTOS_PER_NANO).unwrap_or(i64::MAX)
    }

    /// Nano-USD for what the provider counted. Cached tokens at the full rate: this guards a cap, it is no bill.
    #[must_use]
    pub fn of_usage(&self, usage: &Usage) -> i64 {
        let output = usage.output.unwrap_or(0);
        self.cost(usage.all().saturating_sub(output), output)
    }
}

fn femtos(price: Option<&RawValue>) -> Option<i128> {
    Usd::parse(price?.get()).ok().map(|usd| usd.scaled(15))
}

fn dearer(a: Price, b: Price) -> Price {
    Price { input: a.input.max(b.input), output: a.output.max(b.output), max_output: a.max_output.max(b.max_output) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"data":[
        {"model_name":"mini","litellm_params":{"model":"openai/x"},"model_info":{"input_cost_per_token":1.5e-07,"output_cost_per_token":6e-07,"max_output_tokens":16384,"id":"x"}},
        {"model_name":"mini","model_info":{"input_cost_per_token":1e-07,"output_cost_per_token":7e-07}},
        {"model_name":"embed","model_info":{"input_cost_per_token":2e-08}},
        {"model_name":"unpriced","model_info":{"input_cost_per_token":null,"output_cost_per_token":null}}]}"#;

    #[test]
    fn a_call_is_priced_without_floats_and_rounded_up() {
        let prices = Prices::parse(FILE).expect("prices");
        assert_eq!(prices.of("mini").cost(10, 5), 1500 + 3500);
        assert_eq!(prices.of("embed").cost(1, 0), 20);
        assert_eq!(Price { input: 1, ..Price::default() }.cost(1, 0), 1);
        assert_eq!(prices.of("mini").max_output, Some(16384));
    }

    #[test]
    fn an_unknown_model_costs_as_much_as_the_dearest() {
        let prices = Prices::parse(FILE).expect("prices");
        assert_eq!(prices.of("unpriced"), prices.of("mini"));
        assert_eq!(prices.of("other"), prices.of("mini"));
    }

    #[test]
    fn what_is_no_price_list_is_said_to_be_none() {
        assert!(matches!(Prices::parse("[]"), Err(PricesError::Shape(_))));
        assert!(matches!(Prices::parse(r#"{"data":[]}"#), Err(PricesError::Empty)));
        assert!(matches!(Prices::parse(r#"{"data":[{"model_name":"a","model_info":{}}]}"#), Err(PricesError::Empty)));
    }
}
