//! Extracts the prices that a sidecar needs from LiteLLM's `GET /model/info`.
//!
//! Pure. The answer also names hosts, key ids and teams, which are left out. Numbers keep their digits: a float would
//! lose some.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Maximum size of a text or nested value in bytes. LiteLLM's longest list of tiers has 658.
const VALUE_MAX: usize = 4096;
/// Maximum size of an entry in bytes. LiteLLM's longest has 43 prices, which is less than 3 KiB.
const ENTRY_MAX: usize = 16 * 1024;
/// Maximum size of a list in bytes: each sidecar of a run with a cap in dollars reads it.
const LIST_MAX: usize = 8 * 1024 * 1024;

/// Members with prices, or factors of prices, that have no `cost` in their names.
const PRICES: [&str; 6] = [
    "off_peak_pricing",
    "provider_specific_entry",
    "regional_endpoint_uplift_multiplier",
    "regional_processing_uplift_multiplier_eu",
    "regional_processing_uplift_multiplier_us",
    "tiered_pricing",
];
/// Members with a number of tokens.
const COUNTS: [&str; 3] = ["max_input_tokens", "max_output_tokens", "max_tokens"];
/// Members with a text.
const TEXTS: [&str; 3] = ["key", "litellm_provider", "mode"];

/// An answer that cannot serve as a price list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusablePrices {
    /// The answer has another shape.
    #[error("gives no list of models")]
    Shape,
    /// No model in the list has a price.
    #[error("names no model with a price")]
    Unpriced,
    /// The list would be longer than the maximum length.
    #[error("gives more than 8 MiB of prices")]
    TooLong,
}

#[derive(Deserialize)]
struct ModelInfoAnswer<'a> {
    #[serde(borrow)]
    data: Vec<ListedModel<'a>>,
}

#[derive(Deserialize)]
struct ListedModel<'a> {
    model_name: String,
    #[serde(borrow)]
    litellm_params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model_info: PriceFields<'a>,
}

#[derive(Serialize)]
struct PricedModel<'a> {
    model_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    litellm_params: Option<LitellmParams<'a>>,
    model_info: PriceFields<'a>,
}

/// The name by which LiteLLM prices the deployment. The other members describe how to reach the provider.
#[derive(Serialize, Deserialize)]
struct LitellmParams<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
}

/// The members that are kept, in their order.
#[derive(Default)]
struct PriceFields<'a>(Vec<(String, &'a RawValue)>);

/// Extracts the price list from an answer.
///
/// A model without a usable `input_cost_per_token` is left out: a sidecar assumes the price of the most expensive model in
/// the list for it. An entry, or a nested price, that is too long is left out, since a part of it could be cheaper.
///
/// # Errors
/// [`UnusablePrices`]
pub(super) fn extract_prices(answer: &[u8]) -> Result<String, UnusablePrices> {
    let answer: ModelInfoAnswer<'_> = serde_json::from_slice(answer).map_err(|_| UnusablePrices::Shape)?;
    let mut list = String::new();
    for ListedModel { model_name, litellm_params, model_info } in answer.data {
        if !model_info.is_priced() {
            continue;
        }
        let params = litellm_params.and_then(|params| serde_json::from_str::<LitellmParams<'_>>(params.get()).ok());
        let litellm_params = params.filter(|params| is_text(params.model));
        let entry = serde_json::to_string(&PricedModel { model_name, litellm_params, model_info }).expect("plain data");
        if entry.len() > ENTRY_MAX {
            continue;
        }
        if list.len() + entry.len() > LIST_MAX {
            return Err(UnusablePrices::TooLong);
        }
        let separator = if list.is_empty() { "" } else { "," };
        list += separator;
        list += &entry;
    }
    if list.is_empty() { Err(UnusablePrices::Unpriced) } else { Ok(format!("{{\"data\":[{list}]}}")) }
}

impl PriceFields<'_> {
    fn is_priced(&self) -> bool {
        let is_too_long = |value: &RawValue| is_nested(value) && value.get().len() > VALUE_MAX;
        self.0.iter().any(|(name, _)| name == "input_cost_per_token")
            && !self.0.iter().any(|(_, value)| is_too_long(value))
    }
}

/// Returns whether a member of `model_info` concerns prices, by its name.
fn is_kept(name: &str) -> bool {
    [&PRICES[..], &COUNTS, &TEXTS].concat().contains(&name) || name.contains("cost")
}

/// Returns whether the value is of the kind that its name promises. A price is a number that is not negative, or a nested
/// value; null is not a price.
fn is_usable(name: &str, value: &RawValue) -> bool {
    if TEXTS.contains(&name) {
        is_text(value)
    } else if COUNTS.contains(&name) {
        value.get().parse::<u64>().is_ok()
    } else if name == "input_cost_per_token" || name == "output_cost_per_token" {
        is_price(value)
    } else {
        is_price(value) || is_nested(value)
    }
}

fn is_price(value: &RawValue) -> bool {
    sluice_contract::Usd::parse(value.get()).is_ok()
}

fn is_nested(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"') && value.get().len() <= VALUE_MAX
}

impl<'de: 'a, 'a> Deserialize<'de> for PriceFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PriceFieldsVisitor;

        impl<'de> Visitor<'de> for PriceFieldsVisitor {
            type Value = PriceFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PriceFields<'de>, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if !is_kept(&name) {
                        continue;
                    }
                    // It is unknown which of two prices of the same name LiteLLM bills.
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom("a member occurs twice"));
                    }
                    if is_usable(&name, value) {
                        members.push((name, value));
                    }
                }
                Ok(PriceFields(members))
            }
        }

        deserializer.deserialize_map(PriceFieldsVisitor)
    }
}

impl Serialize for PriceFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_keep_their_digits_and_nothing_else() {
        let answer = br#"{"data":[
            {"model_name":"mini","litellm_params":{"model":"openai/x","api_base":"http://inside","api_key":"sk-1"},
             "model_info":{"id":"secret-id","input_cost_per_token":1.50000000000000000001e-07,
                           "output_cost_per_token":6e-07,"max_output_tokens":16384}},
            {"model_name":"embed","model_info":{"input_cost_per_token":2e-08,"output_cost_per_token":null,
                                                "max_output_tokens":"many"}},
            {"model_name":"odd","model_info":{"input_cost_per_token":-1,"output_cost_per_token":[]}},
            {"model_name":"bare"}]}"#;
        assert_eq!(
            extract_prices(answer).expect("a list"),
            concat!(
                r#"{"data":[{"model_name":"mini","litellm_params":{"model":"openai/x"},"#,
                r#""model_info":{"input_cost_per_token":1.50000000000000000001e-07,"#,
                r#""output_cost_per_token":6e-07,"max_output_tokens":16384}},"#,
                r#"{"model_name":"embed","model_info":{"input_cost_per_token":2e-08}}]}"#
            )
        );
    }

    /// Returns the members of the only model's `model_info` that are kept.
    fn kept(info: &str) -> String {
        let answer = format!(r#"{{"data":[{{"model_name":"m","model_info":{{"input_cost_per_token":1{info}}}}}]}}"#);
        let list = extract_prices(answer.as_bytes()).expect("a list");
        let (_, info) = list.split_once(r#""input_cost_per_token":1"#).expect("it has a price");
        info.strip_suffix("}}]}").expect("one model").to_owned()
    }

    #[test]
    fn a_members_value_must_fit_its_name() {
        for member in [
            r#""output_cost_per_reasoning_token":0.10"#,
            r#""cache_creation_input_token_cost_above_1hr":1e-05"#,
            r#""input_cost_per_token_above_200k_tokens":0"#,
            r#""input_cost_per_token_priority":3E-7"#,
            r#""search_context_cost_per_query":{"search_context_size_low": 0.0250}"#,
            r#""tiered_pricing":[{"range":[0, 32e3],"input_cost_per_token":1e-06}]"#,
            r#""off_peak_pricing":{"output_cost_per_token":1}"#,
            r#""provider_specific_entry":{"us":1.1}"#,
            r#""regional_processing_uplift_multiplier_eu":1.10"#,
            r#""max_output_tokens":1"#,
            r#""max_input_tokens":9007199254740993"#,
            r#""max_tokens":0"#,
            r#""litellm_provider":"openai""#,
            r#""mode":"chat""#,
            r#""key":"gpt-\u0034o""#,
        ] {
            assert_eq!(kept(&format!(",{member}")), format!(",{member}"));
        }
        for member in [
            r#""id":"x""#,
            r#""api_base":"http://inside""#,
            r#""supports_vision":true"#,
            r#""created_by":"somebody""#,
            r#""pricing_overrides":["input_cost_per_token"]"#,
            r#""output_cost_per_image":null"#,
            r#""output_cost_per_image":-0.1"#,
            r#""output_cost_per_image":"0.1""#,
            r#""output_cost_per_image":true"#,
            r#""output_cost_per_token":{"a":1}"#,
            r#""max_tokens":1.5"#,
            r#""max_tokens":-1"#,
            r#""max_input_tokens":"many""#,
            r#""mode":null"#,
            r#""key":["gpt-4o"]"#,
        ] {
            assert_eq!(kept(&format!(",{member}")), "", "{member}");
        }
        assert_eq!(kept(&format!(r#","key":"{}""#, "x".repeat(VALUE_MAX))), "");
    }

    #[test]
    fn the_name_for_pricing_is_a_text() {
        for (params, kept) in [
            (r#"{"model":"openai/x","api_key":"sk-1"}"#, r#","litellm_params":{"model":"openai/x"}"#),
            (r#"{"model":["x"]}"#, ""),
            (r#"{"api_base":"x"}"#, ""),
            ("null", ""),
            ("7", ""),
            (r#"{"model":"a","model":"b"}"#, ""),
        ] {
            let info = r#""model_info":{"input_cost_per_token":1}"#;
            let answer = format!(r#"{{"data":[{{"model_name":"m","litellm_params":{params},{info}}}]}}"#);
            assert_eq!(
                extract_prices(answer.as_bytes()).as_deref(),
                Ok(&*format!(r#"{{"data":[{{"model_name":"m"{kept},{info}}}]}}"#)),
                "{params}"
            );
        }
    }

    #[test]
    fn a_list_with_a_duplicate_price_is_refused() {
        for member in ["input_cost_per_token", "cache_read_input_token_cost", "max_tokens", "tiered_pricing"] {
            let answer = format!(
                r#"{{"data":[{{"model_name":"m","model_info":{{"input_cost_per_token":1,"{member}":1,"{member}":2}}}}]}}"#
            );
            assert_eq!(extract_prices(answer.as_bytes()), Err(UnusablePrices::Shape), "{member}");
        }
        assert_eq!(kept(r#","id":1,"id":2"#), "");
    }

    #[test]
    fn a_model_that_is_too_long_is_left_out() {
        let tiers = |bytes: usize| format!(r#""tiered_pricing":[{}]"#, "1,".repeat(bytes / 2 - 2) + "1");
        let many: Vec<_> = (0..ENTRY_MAX / 16).map(|n| format!(r#""cost_{n:08}":0.1"#)).collect();
        for (info, is_kept) in [
            (tiers(VALUE_MAX - 100), true),
            (tiers(VALUE_MAX + 100), false),
            (many[..100].join(","), true),
            (many.join(","), false),
        ] {
            let answer = format!(
                r#"{{"data":[{{"model_name":"m","model_info":{{"input_cost_per_token":1,{info}}}}},
                             {{"model_name":"n","model_info":{{"input_cost_per_token":1}}}}]}}"#
            );
            let list = extract_prices(answer.as_bytes()).expect("n is in it");
            assert_eq!((list.contains(r#""m""#), list.contains(r#""n""#)), (is_kept, true));
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_refused() {
        let entry =
            format!(r#"{{"model_name":"{}","model_info":{{"input_cost_per_token":1}}}}"#, "m".repeat(ENTRY_MAX - 100));
        let list =
            |models: usize| extract_prices(format!(r#"{{"data":[{}]}}"#, vec![&*entry; models].join(",")).as_bytes());
        assert!(list(LIST_MAX / ENTRY_MAX).is_ok());
        assert_eq!(list(LIST_MAX / entry.len() + 1), Err(UnusablePrices::TooLong));
    }

    #[test]
    fn an_answer_without_a_price_is_refused() {
        for answer in ["", "[]", "{}", r#"{"data":[{"model_name":"m","model_info":7}]}"#] {
            assert_eq!(extract_prices(answer.as_bytes()), Err(UnusablePrices::Shape), "{answer}");
        }
        let image = r#"{"data":[{"model_name":"m","model_info":{"output_cost_per_image":1}}]}"#;
        for answer in [r#"{"data":[]}"#, r#"{"data":[{"model_name":"m","model_info":{}}]}"#, image] {
            assert_eq!(extract_prices(answer.as_bytes()), Err(UnusablePrices::Unpriced), "{answer}");
        }
    }
}
