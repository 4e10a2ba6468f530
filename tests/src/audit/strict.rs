//! The rules that every audit file keeps. Pure.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest magnitude at which every JSON reader agrees on an integer.
const EXACT: u64 = 1 << 53;

/// Parses the lines and checks them against each other.
pub(super) fn lines(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no newline".to_owned());
    }
    let lines = text.split_terminator('\n').enumerate();
    let lines = lines.map(|(at, line)| canonical(line).map_err(|fault| format!("line {at}: {fault}")));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    for (at, line) in lines.iter().enumerate() {
        common(at, line, &lines[0]).map_err(|fault| format!("line {at}: {fault}"))?;
    }
    order(&lines)?;
    Ok(lines)
}

/// Reads one JSON object in canonical form: no space, sorted keys without duplicates at every depth, no
/// float, no integer that some readers would round.
pub fn canonical(line: &str) -> Result<Value, String> {
    let mut parser = serde_json::Deserializer::from_str(line);
    let value = Canonical.deserialize(&mut parser).map_err(|error| error.to_string())?;
    parser.end().map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("not an object".to_owned());
    }
    let form = value.to_string();
    if form != line {
        return Err(format!("not in canonical form, which is {form}"));
    }
    Ok(value)
}

fn common(at: usize, line: &Value, first: &Value) -> Result<(), String> {
    if line["v"] != 1 {
        return Err(format!("v is {}, not 1", line["v"]));
    }
    if line["seq"] != at {
        return Err(format!("seq is {}, not {at}", line["seq"]));
    }
    if !line["ts"].as_str().is_some_and(is_timestamp) {
        return Err(format!("ts is {}, not RFC 3339 in UTC with microseconds", line["ts"]));
    }
    let known = ["open", "intent", "outcome", "refused", "recovered", "epoch", "control", "held", "released", "close"];
    if !known.iter().any(|kind| line["kind"] == **kind) {
        return Err(format!("unknown kind {}", line["kind"]));
    }
    if !line["run_id"].is_string() || line["run_id"] != first["run_id"] {
        return Err(format!("run_id is {}, began as {}", line["run_id"], first["run_id"]));
    }
    if !line["attempt"].is_u64() || line["attempt"] != first["attempt"] {
        return Err(format!("attempt is {}, began as {}", line["attempt"], first["attempt"]));
    }
    match line["kind"].as_str() {
        Some("refused") => account(line, first).and_then(|()| names(line)),
        Some("outcome") => account(line, first).and_then(|()| cache_hit(line)).and_then(|()| no_connection(line)),
        _ => Ok(()),
    }
}

/// `account` is the one of `open`, or absent.
fn account(line: &Value, first: &Value) -> Result<(), String> {
    match line.get("account") {
        None => Ok(()),
        Some(account) if *account == first["billing_account_id"] => Ok(()),
        Some(account) => Err(format!("account is {account}, began as {}", first["billing_account_id"])),
    }
}

/// `connect_error` is one of its words, on a call that was not sent, and never without its detail.
fn no_connection(line: &Value) -> Result<(), String> {
    let (error, detail) = (line.get("connect_error"), line.get("connect_detail"));
    let is_word = |word: &str| ["dns", "refused", "timeout", "tls", "other"].contains(&word);
    let is_short = |text: &str| text.len() <= 200 && !text.chars().any(char::is_control);
    match (error.map(Value::as_str), detail.map(Value::as_str)) {
        (None, None) => Ok(()),
        (Some(Some(word)), Some(Some(text)))
            if is_word(word) && is_short(text) && line["null_reason"] == "not_sent" =>
        {
            Ok(())
        }
        _ => Err(format!("connect_error is {error:?} beside {detail:?} and {}", line["null_reason"])),
    }
}

/// `cache_hit` is true only for a free answer, and otherwise absent.
fn cache_hit(line: &Value) -> Result<(), String> {
    match line.get("cache_hit") {
        None => Ok(()),
        Some(Value::Bool(true)) if line["cost_usd"] == "0" && line["cost_source"] == "header" => Ok(()),
        Some(other) => Err(format!("cache_hit is {other} beside a cost of {}", line["cost_usd"])),
    }
}

/// Names in a refusal are short texts without control characters, or absent.
fn names(line: &Value) -> Result<(), String> {
    for name in ["model", "param", "tool"] {
        let Some(value) = line.get(name) else { continue };
        let fits = |text: &str| (1..=64).contains(&text.len()) && !text.chars().any(char::is_control);
        if !value.as_str().is_some_and(fits) {
            return Err(format!("{name} is {value}, not 1 to 64 bytes without control characters"));
        }
    }
    Ok(())
}

/// `open` is first, nothing follows `close`, and each outcome has one earlier intent.
fn order(lines: &[Value]) -> Result<(), String> {
    let mut calls: HashMap<&str, &Value> = HashMap::new();
    let mut settled: HashSet<&str> = HashSet::new();
    let mut closed = false;
    for (at, line) in lines.iter().enumerate() {
        let kind = line["kind"].as_str().unwrap_or_default();
        if (at == 0) != (kind == "open") {
            return Err(format!("line {at}: {kind}, but open is the first line and only that"));
        }
        if closed {
            return Err(format!("line {at}: {kind} after close"));
        }
        closed = kind == "close";
        if kind != "intent" && kind != "outcome" {
            continue;
        }
        let id = line["call_id"].as_str().ok_or_else(|| format!("line {at}: {kind} without call_id"))?;
        let fault = match kind {
            "intent" => calls.insert(id, &line["call"]).map(|_| "a second intent"),
            _ if !calls.contains_key(id) => Some("an outcome without an earlier intent"),
            _ if calls[id] != &line["call"] => Some("an outcome with another call number than its intent"),
            _ => (!settled.insert(id)).then_some("a second outcome"),
        };
        if let Some(fault) = fault {
            return Err(format!("line {at}: {fault} for call {id}"));
        }
    }
    Ok(())
}

/// `2026-03-01T10:20:30.123456Z`.
fn is_timestamp(text: &str) -> bool {
    let pattern = b"dddd-dd-ddTdd:dd:dd.ddddddZ";
    let fits = |(byte, want): (u8, &u8)| {
        if *want == b'd' { byte.is_ascii_digit() } else { byte == *want }
    };
    let in_range = |at: usize, range: std::ops::RangeInclusive<u8>| {
        text.get(at..at + 2).and_then(|text| text.parse().ok()).is_some_and(|number| range.contains(&number))
    };
    text.len() == pattern.len()
        && text.bytes().zip(pattern).all(fits)
        && in_range(5, 1..=12)
        && in_range(8, 1..=31)
        && in_range(11, 0..=23)
        && in_range(14, 0..=59)
        && in_range(17, 0..=60)
}

/// Reads a value and refuses everything outside the canonical form. `Value` itself would sort the keys.
struct Canonical;

impl<'de> DeserializeSeed<'de> for Canonical {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Canonical {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("canonical JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        integer(value, Number::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        integer(value.unsigned_abs(), Number::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Err(E::custom(format!("float {value}")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Canonical)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (mut map, mut last) = (Map::new(), None::<String>);
        while let Some(key) = members.next_key::<String>()? {
            // RFC 8785 sorts by UTF-16 code units.
            if let Some(last) = &last
                && !last.encode_utf16().lt(key.encode_utf16())
            {
                return Err(A::Error::custom(format!("key {key:?} after {last:?}")));
            }
            map.insert(key.clone(), members.next_value_seed(Canonical)?);
            last = Some(key);
        }
        Ok(Value::Object(map))
    }
}

fn integer<E: Error>(magnitude: u64, number: Number) -> Result<Value, E> {
    if magnitude < EXACT {
        Ok(Value::Number(number))
    } else {
        Err(E::custom(format!("integer {number} is not below 2^53")))
    }
}

#[cfg(test)]
mod tests {
    use super::{canonical, is_timestamp, lines};

    const OPEN: &str = r#""kind":"open""#;

    fn line(seq: usize, kind: &str) -> String {
        let (before, after) = if kind == OPEN { ("", "") } else { (r#""call":1,"call_id":"c1","#, "") };
        format!(
            "{{\"attempt\":0,{before}{kind},\"run_id\":\"r1\",\"seq\":{seq},\"ts\":\"2026-03-01T10:20:30.123456Z\",\"v\":1{after}}}\n"
        )
    }

    fn file() -> Vec<String> {
        let kinds = [OPEN, r#""kind":"intent""#, r#""kind":"refused""#, r#""kind":"outcome""#, r#""kind":"close""#];
        kinds.iter().enumerate().map(|(seq, kind)| line(seq, kind)).collect()
    }

    /// Returns the fault after one line was changed.
    fn fault(at: usize, from: &str, to: &str) -> String {
        let mut file = file();
        assert!(file[at].contains(from), "{} has no {from}", file[at]);
        file[at] = file[at].replace(from, to);
        lines(file.concat().as_bytes()).expect_err("a violation must be found")
    }

    #[test]
    fn a_good_file_and_each_of_its_prefixes_pass() {
        for count in 0..=5 {
            assert_eq!(lines(file()[..count].concat().as_bytes()).map(|lines| lines.len()), Ok(count));
        }
    }

    #[test]
    fn every_violation_is_named() {
        for (at, from, to, named) in [
            (4, "\n", "", "newline"),
            (0, "\"v\":1", "\"v\":2", "v is 2"),
            (2, "\"seq\":2", "\"seq\":3", "seq is 3"),
            (2, ".123456Z", ".123Z", "ts is"),
            (2, "123456Z", "123456+00:00", "ts is"),
            (2, "r1", "r2", "run_id"),
            (2, "\"attempt\":0", "\"attempt\":1", "attempt"),
            (2, "\"kind\":\"refused\"", "\"kind\":\"refused\",\"model\":null", "model is null"),
            (2, "\"kind\":\"refused\"", "\"kind\":\"refused\",\"param\":\"\"", "param is"),
            (2, "{\"attempt\"", "{\"account\":\"other\",\"attempt\"", "account is"),
            (3, "{\"attempt\"", "{\"account\":\"other\",\"attempt\"", "account is"),
            (3, "\"kind\"", "\"connect_error\":\"tls\",\"kind\"", "connect_error is"),
            (3, "\"call\":1", "\"cache_hit\":true,\"call\":1", "cache_hit is true"),
            (3, "\"call\":1", "\"cache_hit\":false,\"call\":1", "cache_hit is false"),
            (2, "\"ts\"", "\"tool\":\"a\\u0001b\",\"ts\"", "tool is"),
            (0, "open", "epoch", "open is the first"),
            (2, "refused", "open", "open is the first"),
            (2, "refused", "whatever", "unknown kind"),
            (2, "refused", "close", "after close"),
            (3, "c1", "c2", "without an earlier intent"),
            (3, "\"call\":1", "\"call\":2", "another call number"),
            (2, "refused", "outcome", "a second outcome"),
            (2, "refused", "intent", "a second intent"),
            (1, "intent", "refused", "without an earlier intent"),
            (1, "\"call_id\":\"c1\",", "", "without call_id"),
            (1, "\"attempt\":0,\"call\":1", "\"call\":1,\"attempt\":0", "key \"attempt\" after \"call\""),
            (1, "\"call\":1", "\"call\":1.0", "float"),
            (1, "\"call\":1", "\"call\":9007199254740992", "2^53"),
            (1, "\"call\":1", "\"call\": 1", "canonical form"),
            (1, "\"call\":1", "\"call\":{\"b\":{\"d\":1,\"c\":1}}", "key \"c\" after \"d\""),
            (1, "\"call\":1", "\"call\":1,\"call\":1", "key \"call\" after \"call\""),
        ] {
            let found = fault(at, from, to);
            assert!(found.contains(named), "{from} -> {to}: {found}");
        }
    }

    #[test]
    fn canonical_text_is_exactly_one_object() {
        assert!(canonical(r#"{"a":[{"b":null,"c":-1}]}"#).is_ok());
        for bad in ["[]", "{} {}", "{}x", "", r#"{"a":"\u0041"}"#, r#"{"a":1e2}"#] {
            assert!(canonical(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn timestamps_have_microseconds_and_z() {
        assert!(is_timestamp("2026-12-31T23:59:60.000000Z"));
        for bad in ["2026-13-01T00:00:00.000000Z", "2026-01-01 00:00:00.000000Z", "2026-01-01T24:00:00.000000Z", ""] {
            assert!(!is_timestamp(bad), "{bad}");
        }
    }
}
