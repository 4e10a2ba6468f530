use serde_json::value::RawValue;

use super::model_info::rate;
use super::rate::{RateCondition, RateSide};
use super::*;
use crate::media::Family;
use sluice_contract::record::Usage;

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

fn factors(input: u64) -> RateFactors {
    RateFactors { input, ..RateFactors::default() }
}

const PER_MILLION: u128 = 1_000_000_000;

#[test]
fn a_model_costs_as_much_as_its_dearest_deployment() {
    assert_eq!((price("mini").input(&factors(1)), price("mini").output(&factors(1))), (150_000_000, 700_000_000));
    assert_eq!(price("mini").max_output, None, "one of its deployments may write more than the other");
    assert_eq!((price("embed").input(&factors(1)), price("embed").output(&factors(1))), (20_000_000, 0));
    assert_eq!((nanos(1), nanos(1_000_000), nanos(1_000_001)), (1, 1, 2));
}

#[test]
fn the_dearest_possible_rate_is_taken() {
    let claude = price("claude");
    assert_eq!(claude.input(&factors(199_999)), 3750 * PER_MILLION / 1000, "a cache is written unasked");
    assert_eq!(claude.input(&factors(200_000)), 6 * PER_MILLION);
    assert_eq!(claude.output(&factors(200_000)), 22_500 * PER_MILLION / 1000);
    assert_eq!(claude.input(&RateFactors { long_cache: true, ..factors(10) }), 6 * PER_MILLION);
    let omni = price("omni");
    assert_eq!((omni.input(&factors(1)), omni.output(&factors(1))), (PER_MILLION, 3 * PER_MILLION));
    assert_eq!(omni.input(&RateFactors { service_tier: true, ..factors(10) }), 2 * PER_MILLION);
    assert_eq!(omni.output(&RateFactors { audio_output: true, ..factors(10) }), 80 * PER_MILLION);
    assert_eq!(omni.input(&RateFactors { audio_input: true, ..factors(1) }), 40 * PER_MILLION);
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
    let at = |input| (tiered.input(&factors(input)), tiered.output(&factors(input)));
    assert_eq!(at(10), (2 * PER_MILLION, PER_MILLION));
    assert_eq!(at(256_000), (5 * PER_MILLION, 7 * PER_MILLION));
    let off_peak = with(r#","off_peak_pricing":{"output_cost_per_token":3e-06,"hours_utc":"00:00-01:00"}"#);
    assert_eq!(off_peak.output(&factors(1)), 3 * PER_MILLION);
    assert!(with(r#","tiered_pricing":{"a":1}"#).beyond_tokens, "it cannot be read");
    assert!(!with(r#","tiered_pricing":null,"off_peak_pricing":null,"provider_specific_entry":null"#).beyond_tokens);
}

#[test]
fn the_dearest_region_is_reserved() {
    for info in [
        r#","regional_processing_uplift_multiplier_eu":1.1"#,
        r#","regional_endpoint_uplift_multiplier":1.10"#,
        r#","provider_specific_entry":{"us":1.1,"fast":6}"#,
    ] {
        assert_eq!(with(info).input(&factors(1)), 11 * PER_MILLION / 10, "{info}");
    }
    assert_eq!(with(r#","provider_specific_entry":{"fast":6}"#).input(&factors(1)), PER_MILLION);
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
    assert_eq!(with(r#","input_cost_per_image_token":"5e-6""#).input(&factors(1)), 5 * PER_MILLION, "as a text");
    assert_eq!(with(r#","output_cost_per_reasoning_token":1.0000000001e-06"#).output(&factors(1)), PER_MILLION + 1);
}

#[test]
fn usage_is_priced_class_by_class() {
    let usage = Usage {
        input: Some(1000),
        output: Some(100),
        cached_input: Some(10_000),
        cache_write: Some(400),
        ..Usage::default()
    };
    // 1000 x 3, 10,000 x 0.3, 400 x 3.75 and 100 x 15 micro-dollars.
    assert_eq!(price("claude").of_usage(&usage, &factors(0)), 3_000_000 + 3_000_000 + 1_500_000 + 1_500_000);
    let within =
        Usage { input: Some(1000), output: Some(0), cached_input: Some(600), total: Some(1000), ..Usage::default() };
    assert_eq!(price("mini").of_usage(&within, &factors(0)), 150_000, "no price of its own: as any input");
}

#[test]
fn an_unknown_model_costs_as_much_as_the_dearest() {
    for model in ["unpriced", "other"] {
        assert_eq!(price(model).input(&factors(0)), 3750 * PER_MILLION / 1000);
        assert_eq!((price(model).max_output, price(model).family), (None, Some(Family::Unknown)));
    }
}

#[test]
fn a_file_without_prices_is_refused() {
    assert!(matches!(PriceTable::parse("[]"), Err(PriceTableError::Shape(_))));
    assert!(matches!(PriceTable::parse(r#"{"data":[]}"#), Err(PriceTableError::Empty)));
    assert!(matches!(
        PriceTable::parse(r#"{"data":[{"model_name":"a","model_info":{}}]}"#),
        Err(PriceTableError::Empty)
    ));
}
