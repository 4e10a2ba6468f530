//! What a call may cost at most: a price file in the shape of LiteLLM's `/model/info`.
//!
//! Pure but for reading the file. Prices are kept as femto-USD per token (10^-15), since a token may cost
//! less than a nano-USD. A model has many: for long prompts, for cached ones, for speech, for a faster
//! service. A reservation takes the dearest that the call can come to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sluice_contract::Usd;
use sluice_contract::record::Usage;

use crate::media::Family;

/// Femto-USD in a nano-USD.
pub const FEMTOS_PER_NANO: u128 = 1_000_000;

/// What one model costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Price {
    rates: Vec<Rate>,
    /// The most that the model writes in one answer.
    pub max_output: Option<u64>,
    /// The most that the model reads.
    pub max_input: Option<u64>,
    /// How images are billed.
    pub family: Option<Family>,
    /// Something beside tokens is billed as well, such as a search of the model's own.
    pub beyond_tokens: bool,
}

/// One price of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    side: RateSide,
    /// It holds for prompts of more tokens than this.
    above: u64,
    needs: RateCondition,
    femtos: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateSide {
    Input,
    CacheRead,
    CacheWrite,
    Output,
}

/// What a call must have for a rate to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateCondition {
    Nothing,
    /// A tier of service that the call names.
    Tier,
    /// A cache that keeps longer than usual.
    LongCache,
    /// Sound in the prompt.
    AudioInput,
    /// Sound in the answer.
    AudioOutput,
}

/// What decides which rates hold for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateFactors {
    /// Tokens of the prompt, at most.
    pub input: u64,
    /// A tier of service is named.
    pub service_tier: bool,
    /// The prompt is to be cached for longer than usual.
    pub long_cache: bool,
    /// There is sound in the prompt.
    pub audio_input: bool,
    /// There may be sound in the answer.
    pub audio_output: bool,
}

/// The prices of the models that this run may use.
#[derive(Debug, Clone, Default)]
pub struct PriceTable {
    models: HashMap<String, Arc<Price>>,
    /// For a model that the file does not name: the dearest rates in it.
    dearest: Arc<Price>,
}

/// The file is no price list.
#[derive(Debug, thiserror::Error)]
pub enum PriceTableError {
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
struct PriceFile<'a> {
    #[serde(borrow)]
    data: Vec<PriceEntry<'a>>,
}

#[derive(Deserialize)]
struct PriceEntry<'a> {
    model_name: String,
    #[serde(default)]
    litellm_params: ModelParams,
    // Each as text: a float would already have lost the digits.
    #[serde(borrow)]
    model_info: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize, Default)]
struct ModelParams {
    #[serde(default)]
    model: Option<String>,
}

impl PriceTable {
    /// Reads the file's text.
    ///
    /// # Errors
    /// [`PriceTableError`]
    pub fn parse(text: &str) -> Result<Self, PriceTableError> {
        let file: PriceFile<'_> = serde_json::from_str(text).map_err(PriceTableError::Shape)?;
        let mut models: HashMap<String, Price> = HashMap::new();
        let mut dearest = None;
        for entry in file.data {
            let Some(price) = entry.price() else { continue };
            dearest = Some(either(dearest, &price));
            // Deployments of one name may differ: the dearer one is what a call may cost.
            let known = models.remove(&entry.model_name);
            models.insert(entry.model_name, either(known, &price));
        }
        let dearest = dearest.ok_or(PriceTableError::Empty)?;
        let models = models.into_iter().map(|(name, price)| (name, Arc::new(price))).collect();
        Ok(Self { models, dearest: Arc::new(dearest) })
    }

    /// The price of a model, or the dearest known.
    #[must_use]
    pub fn of(&self, model: &str) -> Arc<Price> {
        Arc::clone(self.models.get(model).unwrap_or(&self.dearest))
    }
}

/// Prices that stand inside of others.
type Nested = BTreeMap<String, Box<RawValue>>;

impl PriceEntry<'_> {
    /// `None` without a price of input; an embedding model has no other.
    fn price(&self) -> Option<Price> {
        let mut rates: Vec<Rate> = self.model_info.iter().filter_map(|(name, value)| rate(name, value)).collect();
        // What cannot be read may hold any price.
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
        // Where the provider's name for the model is not known, the operator's may tell.
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

    /// The largest factor on all prices, in parts of [`WHOLE`]. The region that a call is served from decides which one is
    /// billed, and the operator decides the region, at the provider or in the gateway's settings.
    fn surcharge(&self) -> u128 {
        let regional = self.model_info.iter().filter(|(name, _)| name.contains("_uplift_multiplier"));
        let regional = regional.filter_map(|(_, value)| scaled(value));
        let entry = self.nested::<Nested>("provider_specific_entry").ok().flatten();
        // `fast` is a speed that a client would have to ask for, by a member that does not pass.
        let by_country =
            entry.iter().flatten().filter(|(name, _)| *name != "fast").filter_map(|(_, value)| scaled(value));
        regional.chain(by_country).max().unwrap_or(WHOLE).max(WHOLE)
    }

    /// Some price is not of a token: of a request, a second, an image, or a character.
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

/// A model that searches the web although no tool says so, and bills each search.
fn searches(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["sonar", "-search", "deep-research"].iter().any(|word| name.contains(word))
}

/// The rates of one tier: for prompts of more tokens than its range begins with.
fn tier_rates(tier: &Nested) -> Vec<Rate> {
    let range = tier.get("range").and_then(|range| serde_json::from_str::<Vec<f64>>(range.get()).ok());
    let above = range.and_then(|range| range.first().copied()).unwrap_or(0.0) as u64;
    let rates = tier.iter().filter_map(|(name, value)| rate(name, value));
    rates.map(|rate| Rate { above: rate.above.max(above), ..rate }).collect()
}

impl Price {
    /// Femto-USD of a token of the prompt, at most.
    #[must_use]
    pub fn input(&self, terms: &RateFactors) -> u128 {
        self.most(terms, &[RateSide::Input, RateSide::CacheRead, RateSide::CacheWrite])
    }

    /// Femto-USD of a token of the answer, at most.
    #[must_use]
    pub fn output(&self, terms: &RateFactors) -> u128 {
        self.most(terms, &[RateSide::Output])
    }

    fn most(&self, terms: &RateFactors, sides: &[RateSide]) -> u128 {
        let rates = self.rates.iter().filter(|rate| sides.contains(&rate.side) && rate.holds(terms));
        rates.map(|rate| rate.femtos).max().unwrap_or(0)
    }

    /// Nano-USD for what the provider counted, rounded up: each class of tokens at the dearest rate that holds for it.
    #[must_use]
    pub fn of_usage(&self, usage: &Usage, terms: &RateFactors) -> i64 {
        let output = usage.output.unwrap_or(0);
        let all = usage.all().saturating_sub(output);
        let terms = RateFactors { input: all, ..*terms };
        let read = usage.cached_input.unwrap_or(0).min(all);
        let written = usage.cache_write.unwrap_or(0).min(all - read);
        let fresh = all - read - written;
        let plain = self.most(&terms, &[RateSide::Input]);
        let or_plain = |side| match self.most(&terms, &[side]) {
            0 => plain,
            rate => rate,
        };
        let femtos = u128::from(fresh) * plain
            + u128::from(read) * or_plain(RateSide::CacheRead)
            + u128::from(written) * or_plain(RateSide::CacheWrite)
            + u128::from(output) * self.output(&terms);
        nanos(femtos)
    }
}

impl Rate {
    fn holds(&self, terms: &RateFactors) -> bool {
        let has_needs = match self.needs {
            RateCondition::Nothing => true,
            RateCondition::Tier => terms.service_tier,
            RateCondition::LongCache => terms.long_cache,
            RateCondition::AudioInput => terms.audio_input,
            RateCondition::AudioOutput => terms.audio_output,
        };
        // Some providers take the dearer rate from the threshold on.
        has_needs && terms.input >= self.above
    }
}

/// Femto-USD as nano-USD, rounded up.
#[must_use]
pub fn nanos(femtos: u128) -> i64 {
    // Without prices, and dividing wide numbers is slow.
    if femtos == 0 {
        return 0;
    }
    i64::try_from(femtos.div_ceil(FEMTOS_PER_NANO)).unwrap_or(i64::MAX)
}

/// Names of prices of a token, and what they are for; a longer one stands before its beginning.
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

/// Words in a price's name that say for which tier of service it holds.
const TIERS: [&str; 7] = ["priority", "flex", "batches", "ultrafast", "fast", "balanced", "standard"];

/// The rate that a member of `model_info` is; `None` for what is no price of a token.
///
/// What stands behind a known name says when the rate holds: `_above_200k_tokens`, `_above_1hr`, `_priority`. What is not
/// known there makes a rate that always holds: a reservation must not be too small for a price list of tomorrow.
fn rate(name: &str, value: &RawValue) -> Option<Rate> {
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
    // Of a tier that a call does not name, nothing is billed.
    if behind.split('_').any(|word| TIERS.contains(&word)) {
        rate.needs = RateCondition::Tier;
    }
    Some(rate)
}

/// Femto-USD, rounded up.
fn femtos(price: &RawValue) -> Option<u128> {
    // An operator's `3e-7` is a text in YAML, and a price to LiteLLM.
    let text = price.get().trim_matches('"');
    Some(u128::try_from(Usd::parse(text).ok()?.scaled(18)).ok()?.div_ceil(1000))
}

/// A factor of 1 in [`scaled`].
const WHOLE: u128 = 1_000_000;

/// A factor in millionths.
fn scaled(factor: &RawValue) -> Option<u128> {
    u128::try_from(Usd::parse(factor.get()).ok()?.scaled(6)).ok()
}

/// Prices that are as dear as both.
fn either(known: Option<Price>, other: &Price) -> Price {
    let Some(mut known) = known else { return other.clone() };
    known.rates.extend(&other.rates);
    known.max_output = known.max_output.max(other.max_output);
    known.max_input = known.max_input.max(other.max_input);
    known.beyond_tokens |= other.beyond_tokens;
    if known.family != other.family {
        known.family = Some(Family::Unknown);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"data":[
        {"model_name":"mini","litellm_params":{"model":"openai/gpt-4o-mini"},"model_info":{"input_cost_per_token":1.5e-07,"output_cost_per_token":6e-07,"max_output_tokens":16384,"id":"x"}},
        {"model_name":"mini","model_info":{"input_cost_per_token":1e-07,"output_cost_per_token":7e-07}},
        {"model_name":"embed","model_info":{"input_cost_per_token":2e-08}},
        {"model_name":"claude","litellm_params":{"model":"anthropic/claude-sonnet-4-5"},"model_info":{
            "input_cost_per_token":3e-06,"input_cost_per_token_above_200k_tokens":6e-06,"output_cost_per_token":1.5e-05,
            "output_cost_per_token_above_200k_tokens":2.25e-05,"cache_creation_input_token_cost":3.75e-06,
            "cache_creation_input_token_cost_above_1hr":6e-06,"cache_read_input_token_cost":3e-07,
            "search_context_cost_per_query":{"a":1},"max_input_tokens":1000000}},
        {"model_name":"omni","model_info":{"input_cost_per_token":1e-06,"input_cost_per_token_priority":2e-06,
            "output_cost_per_token":1e-06,"input_cost_per_audio_token":4e-05,"output_cost_per_audio_token":8e-05,
            "output_cost_per_reasoning_token":3e-06}},
        {"model_name":"unpriced","model_info":{"input_cost_per_token":null,"output_cost_per_token":null}}]}"#;

    fn price(model: &str) -> Arc<Price> {
        PriceTable::parse(FILE).expect("prices").of(model)
    }

    fn terms(input: u64) -> RateFactors {
        RateFactors { input, ..RateFactors::default() }
    }

    const PER_MILLION: u128 = 1_000_000_000;

    #[test]
    fn deployments_of_one_name_cost_what_the_dearer_one_does() {
        assert_eq!((price("mini").input(&terms(1)), price("mini").output(&terms(1))), (150_000_000, 700_000_000));
        assert_eq!(price("mini").max_output, Some(16384));
        assert_eq!((price("embed").input(&terms(1)), price("embed").output(&terms(1))), (20_000_000, 0));
        assert_eq!((nanos(1), nanos(1_000_000), nanos(1_000_001)), (1, 1, 2));
    }

    #[test]
    fn the_dearest_rate_that_a_call_can_come_to_is_taken() {
        let claude = price("claude");
        assert_eq!(claude.input(&terms(199_999)), 3750 * PER_MILLION / 1000, "a cache is written unasked");
        assert_eq!(claude.input(&terms(200_000)), 6 * PER_MILLION);
        assert_eq!(claude.output(&terms(200_000)), 22_500 * PER_MILLION / 1000);
        assert_eq!(claude.input(&RateFactors { long_cache: true, ..terms(10) }), 6 * PER_MILLION);
        let omni = price("omni");
        assert_eq!((omni.input(&terms(1)), omni.output(&terms(1))), (PER_MILLION, 3 * PER_MILLION));
        assert_eq!(omni.input(&RateFactors { service_tier: true, ..terms(10) }), 2 * PER_MILLION);
        assert_eq!(omni.output(&RateFactors { audio_output: true, ..terms(10) }), 80 * PER_MILLION);
        assert_eq!(omni.input(&RateFactors { audio_input: true, ..terms(1) }), 40 * PER_MILLION);
    }

    #[test]
    fn the_name_of_a_price_says_when_it_holds() {
        let value: Box<RawValue> = serde_json::from_str("1e-15").expect("a number");
        let of = |name: &str| rate(name, &value).map(|rate| (rate.side, rate.above, rate.needs));
        for (name, want) in [
            ("input_cost_per_token", Some((RateSide::Input, 0, RateCondition::Nothing))),
            ("input_cost_per_token_above_272k_tokens_priority", Some((RateSide::Input, 272_000, RateCondition::Tier))),
            ("input_cost_per_token_ultrafast_above_272k_tokens", Some((RateSide::Input, 272_000, RateCondition::Tier))),
            (
                "cache_creation_input_token_cost_above_1hr_above_200k_tokens",
                Some((RateSide::CacheWrite, 200_000, RateCondition::LongCache)),
            ),
            ("output_cost_per_token_new", Some((RateSide::Output, 0, RateCondition::Nothing))),
            ("output_cost_per_tokens", None),
            ("search_context_cost_per_query", None),
            ("input_cost_per_second", None),
        ] {
            assert_eq!(of(name), want, "{name}");
        }
    }

    /// The price of a model whose `model_info` has these members beside a price of 1e-06 each way.
    fn with(info: &str) -> Price {
        let file = format!(
            r#"{{"data":[{{"model_name":"m","litellm_params":{{"model":"x/m"}},"model_info":{{
                "input_cost_per_token":1e-06,"output_cost_per_token":1e-06{info}}}}}]}}"#
        );
        Price::clone(&PriceTable::parse(&file).expect("prices").of("m"))
    }

    #[test]
    fn prices_inside_of_others_hold_too() {
        let tiers = r#"[{"range":[0,256000.0],"input_cost_per_token":2e-06},
            {"range":[256000.0,1e6],"input_cost_per_token":5e-06,"output_cost_per_token":7e-06}]"#;
        let tiered = with(&format!(r#","tiered_pricing":{tiers}"#));
        let at = |input| (tiered.input(&terms(input)), tiered.output(&terms(input)));
        assert_eq!(at(10), (2 * PER_MILLION, PER_MILLION));
        assert_eq!(at(256_000), (5 * PER_MILLION, 7 * PER_MILLION));
        let off_peak = with(r#","off_peak_pricing":{"output_cost_per_token":3e-06,"hours_utc":"00:00-01:00"}"#);
        assert_eq!(off_peak.output(&terms(1)), 3 * PER_MILLION);
        assert!(with(r#","tiered_pricing":{"a":1}"#).beyond_tokens, "it cannot be read");
        assert!(
            !with(r#","tiered_pricing":null,"off_peak_pricing":null,"provider_specific_entry":null"#).beyond_tokens
        );
    }

    #[test]
    fn the_dearest_region_is_reserved() {
        for info in [
            r#","regional_processing_uplift_multiplier_eu":1.1"#,
            r#","regional_endpoint_uplift_multiplier":1.10"#,
            r#","provider_specific_entry":{"us":1.1,"fast":6}"#,
        ] {
            assert_eq!(with(info).input(&terms(1)), 11 * PER_MILLION / 10, "{info}");
        }
        assert_eq!(with(r#","provider_specific_entry":{"fast":6}"#).input(&terms(1)), PER_MILLION);
    }

    #[test]
    fn a_price_of_another_unit_leaves_no_bound() {
        for (info, want) in [
            (r#","input_cost_per_request":0.005"#, true),
            (r#","input_cost_per_request":0"#, false),
            (r#","input_cost_per_character":2.5e-08"#, true),
            (r#","input_cost_per_image":null"#, false),
            (r#","key":"perplexity/sonar""#, true),
            (r#","key":"gpt-4o-search-preview""#, true),
            (r#","search_context_cost_per_query":{"search_context_size_low":0.01}"#, false),
        ] {
            assert_eq!(with(info).beyond_tokens, want, "{info}");
        }
    }

    #[test]
    fn a_price_is_never_rounded_down() {
        assert_eq!(with(r#","input_cost_per_image_token":"5e-6""#).input(&terms(1)), 5 * PER_MILLION, "as a text");
        assert_eq!(with(r#","output_cost_per_reasoning_token":1.0000000001e-06"#).output(&terms(1)), PER_MILLION + 1);
    }

    #[test]
    fn what_was_used_is_priced_class_by_class() {
        let usage = Usage {
            input: Some(1000),
            output: Some(100),
            cached_input: Some(10_000),
            cache_write: Some(400),
            ..Usage::default()
        };
        // 1000 x 3, 10,000 x 0.3, 400 x 3.75 and 100 x 15 micro-dollars.
        assert_eq!(price("claude").of_usage(&usage, &terms(0)), 3_000_000 + 3_000_000 + 1_500_000 + 1_500_000);
        let within = Usage {
            input: Some(1000),
            output: Some(0),
            cached_input: Some(600),
            total: Some(1000),
            ..Usage::default()
        };
        assert_eq!(price("mini").of_usage(&within, &terms(0)), 150_000, "no price of its own: as any input");
    }

    #[test]
    fn an_unknown_model_costs_as_much_as_the_dearest() {
        for model in ["unpriced", "other"] {
            assert_eq!(price(model).input(&terms(0)), 3750 * PER_MILLION / 1000);
            assert_eq!((price(model).max_output, price(model).family), (Some(16384), Some(Family::Unknown)));
        }
    }

    #[test]
    fn what_is_no_price_list_is_said_to_be_none() {
        assert!(matches!(PriceTable::parse("[]"), Err(PriceTableError::Shape(_))));
        assert!(matches!(PriceTable::parse(r#"{"data":[]}"#), Err(PriceTableError::Empty)));
        assert!(matches!(
            PriceTable::parse(r#"{"data":[{"model_name":"a","model_info":{}}]}"#),
            Err(PriceTableError::Empty)
        ));
    }
}
