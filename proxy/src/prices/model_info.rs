//! One entry of LiteLLM's `/model/info`, read as the rates of a model.
//!
//! Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sluice_contract::Usd;

use super::rate::{Price, Rate, RateCondition, RateSide};
use crate::media::Family;

#[derive(Deserialize)]
pub(super) struct PriceFile<'a> {
    #[serde(borrow)]
    pub(super) data: Vec<PriceEntry<'a>>,
}

#[derive(Deserialize)]
pub(super) struct PriceEntry<'a> {
    pub(super) model_name: String,
    #[serde(default)]
    litellm_params: ModelParams,
    // Each value as text: a float would already have lost digits.
    #[serde(borrow)]
    model_info: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize, Default)]
struct ModelParams {
    #[serde(default)]
    model: Option<String>,
}

/// Prices inside other members.
type Nested = BTreeMap<String, Box<RawValue>>;

impl PriceEntry<'_> {
    /// Returns the price of the model; `None` without a price of input. An embedding model has no other price.
    pub(super) fn price(&self) -> Option<Price> {
        let mut rates: Vec<Rate> = self.model_info.iter().filter_map(|(name, value)| rate(name, value)).collect();
        // A member that cannot be read may hold any price.
        let mut beyond_tokens = self.bills_beyond_tokens();
        match (self.nested::<Vec<Nested>>("tiered_pricing"), self.nested::<Nested>("off_peak_pricing")) {
            (Ok(tiers), Ok(off_peak)) => {
                rates.extend(tiers.iter().flatten().flat_map(tier_rates));
                rates.extend(off_peak.iter().flatten().filter_map(|(name, value)| rate(name, value)));
            }
            _ => beyond_tokens = true,
        }
        let surcharge = self.surcharge();
        for rate in &mut rates {
            rate.femtos = rate.femtos.saturating_mul(surcharge).div_ceil(WHOLE);
        }
        let has_input = rates.iter().any(|rate| rate.side == RateSide::Input && rate.needs == RateCondition::Nothing);
        let number = |name: &str| self.model_info.get(name).and_then(|value| value.get().parse().ok());
        let text = |name: &str| -> Option<String> { serde_json::from_str(self.model_info.get(name)?.get()).ok() };
        let names = [self.litellm_params.model.clone(), text("key"), text("base_model")];
        // If the provider's name of the model is not known, the operator's name may tell the family.
        let given = names.iter().all(Option::is_none).then_some(self.model_name.as_str());
        let family = Family::of(names.iter().flatten().map(String::as_str).chain(given));
        has_input.then_some(Price {
            rates,
            max_output: number("max_output_tokens"),
            max_input: number("max_input_tokens"),
            family: Some(family),
            beyond_tokens: beyond_tokens || names.iter().flatten().any(|name| searches(name)),
        })
    }

    fn nested<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        self.model_info.get(name).map_or(Ok(None), |value| serde_json::from_str(value.get()))
    }

    /// Returns the largest factor on all prices, in parts of [`WHOLE`]. The region that serves the call decides which
    /// factor is billed, and the operator decides the region, at the provider or in the gateway's settings.
    fn surcharge(&self) -> u128 {
        let regional = self.model_info.iter().filter(|(name, _)| name.contains("_uplift_multiplier"));
        let regional = regional.filter_map(|(_, value)| scaled(value));
        let entry = self.nested::<Nested>("provider_specific_entry").ok().flatten();
        // `fast` is a speed that a client would ask for by a member that does not pass.
        let by_country =
            entry.iter().flatten().filter(|(name, _)| *name != "fast").filter_map(|(_, value)| scaled(value));
        regional.chain(by_country).max().unwrap_or(WHOLE).max(WHOLE)
    }

    /// Returns true if some price is not for a token: for a request, a second, an image, or a character.
    fn bills_beyond_tokens(&self) -> bool {
        const UNITS: [&str; 7] = [
            "input_cost_per_request", "input_cost_per_query", "input_cost_per_image", "input_cost_per_second",
            "output_cost_per_second", "cost_per_second", "citation_cost_per_token",
        ];
        let of_another_unit = |name: &str| UNITS.contains(&name) || name.contains("_cost_per_character");
        self.model_info
            .iter()
            .any(|(name, value)| of_another_unit(name) && femtos(value).is_some_and(|price| price > 0))
    }
}

/// Returns true for a model that searches the web without a tool for it, and bills each search.
fn searches(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["sonar", "-search", "deep-research"].iter().any(|word| name.contains(word))
}

/// Returns the rates of one tier, for prompts of more tokens than the lower end of its range.
fn tier_rates(tier: &Nested) -> Vec<Rate> {
    let range = tier.get("range").and_then(|range| serde_json::from_str::<Vec<f64>>(range.get()).ok());
    let above = range.and_then(|range| range.first().copied()).unwrap_or(0.0) as u64;
    let rates = tier.iter().filter_map(|(name, value)| rate(name, value));
    rates.map(|rate| Rate { above: rate.above.max(above), ..rate }).collect()
}

/// Names of token prices, with their meaning; a longer name comes before its beginning.
const RATES: &[(&str, RateSide, RateCondition)] = &[
    ("input_cost_per_token_cache_hit", RateSide::CacheRead, RateCondition::Nothing),
    ("input_cost_per_token", RateSide::Input, RateCondition::Nothing),
    ("input_cost_per_image_token", RateSide::Input, RateCondition::Nothing),
    ("input_cost_per_video_token", RateSide::Input, RateCondition::Nothing),
    ("input_cost_per_audio_token", RateSide::Input, RateCondition::AudioInput),
    ("cache_read_input_token_cost_per_audio_token", RateSide::CacheRead, RateCondition::AudioInput),
    ("cache_read_input_audio_token_cost", RateSide::CacheRead, RateCondition::AudioInput),
    ("cache_read_input_token_cost", RateSide::CacheRead, RateCondition::Nothing),
    ("cache_creation_input_audio_token_cost", RateSide::CacheWrite, RateCondition::AudioInput),
    ("cache_creation_input_token_cost", RateSide::CacheWrite, RateCondition::Nothing),
    ("output_cost_per_reasoning_token", RateSide::Output, RateCondition::Nothing),
    ("output_cost_per_image_token", RateSide::Output, RateCondition::Nothing),
    ("output_cost_per_video_token", RateSide::Output, RateCondition::Nothing),
    ("output_cost_per_audio_token", RateSide::Output, RateCondition::AudioOutput),
    ("output_cost_per_token", RateSide::Output, RateCondition::Nothing),
];

/// Words in the name of a price that name a tier of service.
const TIERS: [&str; 7] = ["priority", "flex", "batches", "ultrafast", "fast", "balanced", "standard"];

/// Returns the rate in a member of `model_info`; `None` if the member is not a price for a token.
///
/// The text after a known name tells when the rate holds: `_above_200k_tokens`, `_above_1hr`, `_priority`. An unknown
/// text makes a rate that always holds: a reservation must not be too small for a future price list.
pub(super) fn rate(name: &str, value: &RawValue) -> Option<Rate> {
    let femtos = femtos(value)?;
    let (known, side, needs) = RATES.iter().find(|(known, ..)| name.starts_with(known))?;
    let behind = &name[known.len()..];
    if !behind.is_empty() && !behind.starts_with('_') {
        return None;
    }
    let mut rate = Rate { side: *side, above: 0, needs: *needs, femtos };
    for word in behind.split('_') {
        if let Some(thousands) = word.strip_suffix('k').and_then(|digits| digits.parse::<u64>().ok()) {
            rate.above = thousands.saturating_mul(1000);
        } else if word == "1hr" {
            rate.needs = RateCondition::LongCache;
        }
    }
    // A tier that a call does not name is not billed.
    if behind.split('_').any(|word| TIERS.contains(&word)) {
        rate.needs = RateCondition::Tier;
    }
    Some(rate)
}

/// Returns femto-USD, rounded up.
fn femtos(price: &RawValue) -> Option<u128> {
    // An operator's `3e-7` is a text in YAML, and a price to LiteLLM.
    let text = price.get().trim_matches('"');
    Some(u128::try_from(Usd::parse(text).ok()?.scaled(18)).ok()?.div_ceil(1000))
}

/// The factor 1 in [`scaled`].
const WHOLE: u128 = 1_000_000;

/// Returns a factor in millionths.
fn scaled(factor: &RawValue) -> Option<u128> {
    u128::try_from(Usd::parse(factor.get()).ok()?.scaled(6)).ok()
}
