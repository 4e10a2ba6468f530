//! Shared parts of the targets: input that a person can read, a split, and a second JSON parser as the judge.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use sluice_proxy::body::params::ServerKind;
use sluice_proxy::body::{BodyPolicy, BodyReader, ParsedBody};
use sluice_proxy::policy::ApiFormat;
use sluice_proxy::refusal::Refusal;

/// Account of every policy.
pub const ACCOUNT: &str = "acct-1";

/// Splits the data: the first bytes are choices, as text; the input proper follows the first newline.
pub fn choices_and_input<const N: usize>(data: &[u8]) -> Option<([u8; N], &[u8])> {
    let (choices, rest) = data.split_first_chunk::<N>()?;
    // Magic names of the judge: a fuzzer that watches comparisons finds them, and no sandbox does.
    if rest.windows(12).any(|window| window == b"$serde_json:") {
        return None;
    }
    Some((*choices, rest.strip_prefix(b"\n")?))
}

/// Cuts the input: `0` into single bytes, `1` not at all, any other choice at some places.
pub fn cut(input: &[u8], choice: u8) -> Vec<&[u8]> {
    match choice {
        b'0' => input.chunks(1).collect(),
        b'1' => vec![input],
        b'2'..=b'9' => input.chunks(usize::from(choice - b'0')).collect(),
        seed => {
            let (mut rest, mut state, mut pieces) =
                (input, u32::from(seed).wrapping_mul(2_654_435_761) | 1, Vec::new());
            while !rest.is_empty() {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                let (piece, left) = rest.split_at(rest.len().min(1 + state as usize % 40));
                pieces.push(piece);
                rest = left;
            }
            pieces
        }
    }
}

/// Members of one object, in order, with duplicates.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// Parses one object, to the last byte: serde_json does not check the inside of a string that is not read.
pub fn object(text: &[u8]) -> Option<Members<'_>> {
    let text = std::str::from_utf8(text).ok()?;
    value(text)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    let members = Members::deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(members)
}

/// Parses any JSON.
pub fn value(text: &str) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    let value = Value::deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(value)
}

/// Returns true if the text is one JSON value.
pub fn is_json(text: &str) -> bool {
    value(text).is_some() && serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().count() == 1
}

/// Returns the API format of a choice.
pub fn format_of(choice: u8) -> ApiFormat {
    match choice {
        b'p' => ApiFormat::Completions,
        b'e' => ApiFormat::Embeddings,
        b'r' => ApiFormat::Responses,
        b'm' => ApiFormat::Messages,
        b't' => ApiFormat::CountTokens,
        b'k' => ApiFormat::Compact,
        b'i' => ApiFormat::InputTokens,
        b'o' => ApiFormat::Other,
        _ => ApiFormat::Chat,
    }
}

/// Returns the policy of a choice.
pub fn policy_of(choice: u8) -> BodyPolicy {
    let default = BodyPolicy { account_json: format!("\"{ACCOUNT}\""), ..BodyPolicy::default() };
    match choice {
        b'l' => BodyPolicy { models: vec!["m".to_owned(), "gpt-4o-mini".to_owned()], ..default },
        b'a' => BodyPolicy {
            params: vec!["num_retries".to_owned(), "vendor_x".to_owned()],
            tools: vec!["web_search_20250305".to_owned()],
            server: ServerKind::Vllm,
            remote_media: true,
            ..default
        },
        _ => default,
    }
}

/// Reads a body in these pieces.
///
/// # Errors
/// The refusal.
pub fn read<'a>(
    format: ApiFormat,
    policy: &BodyPolicy,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<ParsedBody, Refusal> {
    let mut reader = BodyReader::new(format, policy);
    pieces.into_iter().try_for_each(|piece| reader.feed(piece))?;
    reader.finish()
}

/// Returns the outgoing body.
pub fn sent(parsed: &ParsedBody, body: &[u8]) -> String {
    let mut sent = parsed.edit.prefix.clone().into_bytes();
    for (is_member, from, to) in parsed.edit.ranges() {
        if is_member {
            sent.push(b',');
        }
        sent.extend_from_slice(&body[from as usize..to as usize]);
        sent.extend_from_slice(parsed.put_at(to).unwrap_or_default().as_bytes());
    }
    sent.push(b'}');
    String::from_utf8(sent).expect("JSON is UTF-8")
}
