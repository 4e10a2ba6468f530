use sluice_contract::record::Usage;

use super::*;

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in\n{text}"))
}

fn called(model: &str) -> Called {
    Called {
        model: Some(model.to_owned()),
        result: Some("ok".to_owned()),
        usage: Usage { input: Some(10), output: Some(5), ..Usage::default() },
        nano_usd: 7,
        first_byte: Some(0.2),
    }
}

#[test]
fn a_call_is_in_all_its_series() {
    let mut instruments = Instruments::new("1.2.3");
    instruments.count(&Measurement::Called(called("small")));
    instruments.count(&Measurement::Called(called("small")));
    instruments.count(&Measurement::Called(Called::default()));
    let text = instruments.text(&Gauges::default()).expect("there is room");
    for expected in [
        r#"sluice_build_info{version="1.2.3"} 1"#,
        r#"sluice_llm_calls_total{model="small",result="ok"} 2"#,
        r#"sluice_llm_calls_total{model="none",result="lost"} 1"#,
        r#"sluice_llm_tokens_total{model="small",kind="input"} 20"#,
        r#"sluice_llm_cost_nanousd_total{model="small"} 14"#,
        "sluice_llm_first_byte_seconds_count 2",
    ] {
        assert_eq!(line(&text, expected), expected);
    }
    assert!(text.ends_with("# EOF\n"));
}

/// The names of metrics in a text.
fn names(text: &str) -> std::collections::BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("sluice_")).collect()
}

#[test]
fn dashboard_and_alerts_name_only_real_metrics() {
    let mut instruments = Instruments::new("1");
    instruments.count(&Measurement::Called(called("small")));
    instruments.count(&Measurement::Ended { outcome: "failed".to_owned(), failure_code: None, took: Some(1.0) });
    instruments.count_refusal("route_not_allowed");
    instruments.count_findings("not_yet", 1);
    instruments.count_spans("collector", "sent", 1);
    instruments.count(&Measurement::Decided { decision: "approve", waited: 1.0 });
    instruments.count(&Measurement::ImplausibleCost);
    let gauges = Gauges { runs: vec![("PENDING", 1)], ..Gauges::default() };
    let text = instruments.text(&gauges).expect("there is room");
    let known = names(&text);
    for (file, minimum) in [
        (include_str!("../../../../../deploy/grafana/sluice.json"), 15),
        (include_str!("../../../../../deploy/prometheus/sluice.rules.yml"), 6),
        (include_str!("../../../../../docs/guide/serve.md"), 15),
    ] {
        let used = names(file);
        let unknown: Vec<_> = used.difference(&known).filter(|name| !name.ends_with("_sock")).collect();
        assert!(unknown.is_empty() && used.len() >= minimum, "{unknown:?} of {used:?}");
    }
}

#[test]
fn waits_and_false_costs_are_in_their_series() {
    let mut instruments = Instruments::new("1");
    instruments.count(&Measurement::Decided { decision: "deny", waited: 90.0 });
    instruments.count(&Measurement::ImplausibleCost);
    let text = instruments.text(&Gauges { held_calls: 2, ..Gauges::default() }).expect("there is room");
    for expected in [
        "sluice_held_calls 2",
        "sluice_implausible_costs_total 1",
        r#"sluice_approval_wait_seconds_sum{decision="deny"} 90.0"#,
        r#"sluice_approval_wait_seconds_bucket{le="60.0",decision="deny"} 0"#,
        r#"sluice_approval_wait_seconds_bucket{le="300.0",decision="deny"} 1"#,
    ] {
        assert_eq!(line(&text, expected), expected);
    }
}

#[test]
fn findings_are_counted_by_class() {
    let mut instruments = Instruments::new("1");
    instruments.count_findings("not_yet", 2);
    instruments.count_findings("not_yet", 1);
    instruments.count_findings("duplicate", 0);
    let text = instruments.text(&Gauges::default()).expect("there is room");
    for expected in [
        r#"sluice_reconcile_findings_total{class="not_yet"} 3"#,
        r#"sluice_reconcile_findings_total{class="duplicate"} 0"#,
    ] {
        assert_eq!(line(&text, expected), expected);
    }
}

#[test]
fn an_end_is_in_all_its_series() {
    let mut instruments = Instruments::new("1");
    instruments.count(&Measurement::Claimed { waited: 2.0 });
    let code = Some("audit_failed".to_owned());
    instruments.count(&Measurement::Ended { outcome: "failed".to_owned(), failure_code: code, took: Some(30.0) });
    instruments.count(&Measurement::Ended { outcome: "success".to_owned(), failure_code: None, took: None });
    let gauges = Gauges { runs: vec![("RUNNING", 3)], event_lag: 0.5, open_receipts: 4, ..Gauges::default() };
    let text = instruments.text(&gauges).expect("there is room");
    for expected in [
        r#"sluice_run_ends_total{outcome="failed",failure_code="audit_failed"} 1"#,
        r#"sluice_run_ends_total{outcome="success",failure_code="none"} 1"#,
        "sluice_run_duration_seconds_count 1",
        "sluice_queue_wait_seconds_sum 2.0",
        "sluice_audit_errors_total 1",
        r#"sluice_runs{state="RUNNING"} 3"#,
        "sluice_receipts_open 4",
        "sluice_event_lag_seconds 0.5",
    ] {
        assert_eq!(line(&text, expected), expected);
    }
}

#[test]
fn hostile_models_add_no_lines_and_few_series() {
    let mut instruments = Instruments::new("1");
    instruments.count(&Measurement::Called(called("a\"} 1\nsluice_runs{state=\"X")));
    for number in 0..1000 {
        instruments.count(&Measurement::Called(called(&format!("model-{number}"))));
        instruments.count_refusal(&format!("reason-{number}"));
    }
    let text = instruments.text(&Gauges::default()).expect("there is room");
    let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("sluice_llm_calls_total"), 101);
    assert_eq!(series("sluice_refusals_total"), 101);
    assert_eq!(series("sluice_runs{"), 0, "{text}");
    let other = r#"sluice_llm_calls_total{model="other",result="ok"} 901"#;
    assert_eq!(line(&text, other), other);
}
