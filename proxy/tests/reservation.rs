//! A strict reservation against a provider that writes the longest response, and bills by LiteLLM's own tokenizer and
//! cost calculator, by `tests/python/reservation.py`.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Map, Value, json};
use sluice_proxy::body::{BodyPolicy, BodyReader, ParsedBody};
use sluice_proxy::caps::{CapRequest, OUTPUT_FLOOR};
use sluice_proxy::estimate::Estimate;
use sluice_proxy::policy::ApiFormat;
use sluice_proxy::prices::PriceTable;

mod random;

use random::Random;

const REQUESTS: usize = 3000;
/// Minimum percentage of requests with a strict reservation.
const STRICT_PERCENT: usize = 60;
const WORDS: &str = include_str!("../src/tokens/words.txt");

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever asks for them with --nocapture")]
fn no_strict_reservation_is_ever_exceeded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "the Python environment of the tests is missing: run `make test`, or tests/setup/venv.sh");
    let seed = env::var("RESERVATION_SEED").map_or(1, |seed| seed.parse().expect("RESERVATION_SEED is a number"));
    let requests =
        env::var("RESERVATION_REQUESTS").map_or(REQUESTS, |many| many.parse().expect("it is a number of requests"));
    let mut child = Command::new(python)
        .arg(root.join("tests/python/reservation.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python of the tests starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut list = String::new();
    stdout.read_line(&mut list).expect("the price list is its first line");
    let prices = PriceTable::parse(&list).expect("a price list in the shape of GET /model/info");
    let models = Models::of(&list);

    let mut generator = Generator { random: Random(seed), words: words(), models };
    let (mut lines, mut calls, mut strict) = (String::new(), 0, 0);
    while calls < requests {
        let (format, body) = generator.request();
        let line = call(format, &body, &prices, &mut generator.random);
        strict += usize::from(line["strict"] == json!(true));
        calls += 1;
        lines += &line.to_string();
        lines.push('\n');
    }
    stdin.write_all(lines.as_bytes()).expect("it reads to the end");
    drop(stdin);
    let mut said = String::new();
    stdout.read_to_string(&mut said).expect("it writes text");
    let status = child.wait().expect("it ends");

    assert!(status.success(), "seed {seed}: {said}");
    println!("{}", said.trim_end());
    let told: Value = serde_json::from_str(&said).expect("figures as JSON");
    assert_eq!((&told["calls"], &told["strict"]), (&json!(calls), &json!(strict)), "each call was looked at");
    assert!(strict * 100 >= calls * STRICT_PERCENT, "only {strict} of {calls} reservations are strict");
}

/// Reads a request as the sidecar does. Returns the reservation and the outgoing body.
fn call(format: ApiFormat, body: &str, prices: &PriceTable, random: &mut Random) -> Value {
    let policy = BodyPolicy { account_json: "\"account\"".to_owned(), ..BodyPolicy::default() };
    let mut reader = BodyReader::new(format, &policy);
    let read = body.as_bytes().chunks(1 << 14).try_for_each(|piece| reader.feed(piece));
    let mut parsed = read
        .and_then(|()| reader.finish())
        .unwrap_or_else(|refusal| panic!("{refusal:?}: {}", &body[..body.len().min(2000)]));
    let mut estimate = Estimate::of(&parsed, body.len() as u64, Some(prices), format);
    let (bytes, words) = (estimate.by_bytes(), estimate.by_words(&parsed, std::iter::once(body.as_bytes())));
    assert!(words.tokens <= bytes.tokens, "words are counted closer than bytes: {body}");
    let wanted = bytes.output.map(|output| output.wanted);
    // If not all fits, a shorter response is granted.
    let granted =
        wanted.map(|wanted| if random.below(3) == 0 { (wanted / 2).max(wanted.min(OUTPUT_FLOOR)) } else { wanted });
    let is_bounded = parsed.max_output.is_some() || estimate.model_is_bounded();
    if let Some(granted) = granted.filter(|_| granted != wanted || !is_bounded) {
        parsed.bound_output(format, granted);
    }
    let reserved = |ask: &CapRequest| {
        let output = ask.output.unwrap_or_default();
        let answers = granted.unwrap_or(0) * output.choices;
        let femtos = ask.femtos + u128::from(answers) * output.femtos;
        json!({ "tokens": ask.tokens + answers, "answers": answers, "femtos": femtos.to_string() })
    };
    json!({
        "model": parsed.model,
        "wire": format!("{format:?}").to_lowercase(),
        "body": sent(&parsed, body),
        "strict": bytes.strict && words.strict,
        "reserved": { "bytes": reserved(&bytes), "words": reserved(&words) },
    })
}

fn sent(parsed: &ParsedBody, body: &str) -> String {
    let mut sent = parsed.edit.prefix.clone();
    for (is_member, from, to) in parsed.edit.ranges() {
        if is_member {
            sent.push(',');
        }
        sent += &body[from as usize..to as usize];
    }
    sent + "}"
}

fn words() -> Vec<&'static str> {
    let words = WORDS.lines().map(|line| &line[..line.len() - 1]);
    // These are names of tools, and a tool of the gateway's is refused.
    words.filter(|word| !word.to_lowercase().starts_with("litellm")).collect()
}

/// Models of the price list, by their use.
struct Models {
    chat: Vec<String>,
    embedding: Vec<String>,
}

impl Models {
    fn of(list: &str) -> Self {
        let list: Value = serde_json::from_str(list).expect("it was read before");
        let of_mode = |is_embedding: bool| {
            let entries = list["data"].as_array().into_iter().flatten();
            let of_mode = entries.filter(|entry| (entry["model_info"]["mode"] == "embedding") == is_embedding);
            of_mode.filter_map(|entry| entry["model_name"].as_str().map(str::to_owned)).collect()
        };
        Self { chat: of_mode(false), embedding: of_mode(true) }
    }
}

struct Generator {
    random: Random,
    words: Vec<&'static str>,
    models: Models,
}

impl Generator {
    fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    fn request(&mut self) -> (ApiFormat, String) {
        let format =
            [ApiFormat::Chat, ApiFormat::Responses, ApiFormat::Messages, ApiFormat::Completions, ApiFormat::Embeddings]
                [[0, 0, 0, 1, 1, 2, 2, 2, 3, 4][self.random.below(10)]];
        let mut body = match format {
            ApiFormat::Chat => self.chat(),
            ApiFormat::Responses => self.responses(),
            ApiFormat::Messages => self.messages(),
            ApiFormat::Completions => self.completions(),
            _ => self.embeddings(),
        };
        let models = if format == ApiFormat::Embeddings { &self.models.embedding } else { &self.models.chat };
        body.insert("model".to_owned(), json!(models[self.random.below(models.len())]));
        self.bounds(&mut body);
        let mut text = String::new();
        self.write(&Value::Object(body), &mut text);
        (format, text)
    }

    /// Adds bounds of the output by right and wrong names: one, two, or none.
    fn bounds(&mut self, body: &mut Map<String, Value>) {
        for _ in 0..[0, 1, 2, 2, 3][self.random.below(5)] {
            let name = self.random.of(&[
                "max_tokens", "max_tokens", "max_output_tokens", "max_completion_tokens", "max_tokens_to_sample",
            ]);
            // Mostly small ones: the cost of a long response hides the cost of the prompt.
            let bound = [Some(1), Some(1), Some(7), Some(20), Some(100), Some(4096), Some(60_000), Some(0), None]
                [self.random.below(9)];
            body.insert(name.to_owned(), json!(bound));
        }
    }

    fn chat(&mut self) -> Map<String, Value> {
        let mut body = Map::new();
        let messages: Vec<Value> = (0..=self.random.below(4)).map(|_| self.chat_message()).collect();
        body.insert("messages".to_owned(), json!(messages));
        self.tools(&mut body, "parameters", true);
        if self.one_in(6) {
            let schema = json!({ "name": "answer", "schema": self.schema(true) });
            body.insert("response_format".to_owned(), json!({ "type": "json_schema", "json_schema": schema }));
        }
        if self.one_in(5) {
            body.insert("n".to_owned(), json!([1, 2, 3, 8][self.random.below(4)]));
        }
        if self.one_in(10) {
            body.insert("prediction".to_owned(), json!({ "type": "content", "content": self.text() }));
        }
        if self.one_in(10) {
            let more = self.random.of(&["audio", "image", "video"]);
            body.insert("modalities".to_owned(), json!(["text", more]));
            body.insert("audio".to_owned(), json!({ "format": "mp3", "voice": "alloy" }));
        }
        self.tier(&mut body);
        body
    }

    fn chat_message(&mut self) -> Value {
        match self.random.below(8) {
            0 => json!({ "role": "system", "content": self.text() }),
            1 => {
                let arguments = self.any(3).to_string();
                let call =
                    json!({ "id": "call_1", "type": "function", "function": { "name": "f", "arguments": arguments } });
                json!({ "role": "assistant", "content": null, "tool_calls": [call] })
            }
            2 => json!({ "role": "tool", "tool_call_id": "call_1", "content": self.text() }),
            3..6 => {
                let parts: Vec<Value> = (0..=self.random.below(3)).map(|_| self.chat_part()).collect();
                json!({ "role": "user", "content": parts })
            }
            _ => json!({ "role": "user", "name": "somebody", "content": self.text() }),
        }
    }

    fn chat_part(&mut self) -> Value {
        match self.random.below(12) {
            0..4 => {
                let mut image = json!({ "url": self.image_url() });
                if let Some(detail) = self.detail() {
                    image["detail"] = json!(detail);
                }
                json!({ "type": "image_url", "image_url": image })
            }
            4 => json!({ "type": "image_url", "image_url": self.image_url() }),
            5 if self.one_in(3) => {
                json!({ "type": "input_audio", "input_audio": { "format": "wav", "data": self.base64(200) } })
            }
            6 => json!({ "type": "text", "text": self.text(), "cache_control": self.cache_control() }),
            _ => json!({ "type": "text", "text": self.text() }),
        }
    }

    fn responses(&mut self) -> Map<String, Value> {
        let mut body = Map::new();
        let input = if self.one_in(4) {
            json!(self.text())
        } else {
            json!((0..=self.random.below(4)).map(|_| self.item()).collect::<Vec<_>>())
        };
        body.insert("input".to_owned(), input);
        if self.one_in(3) {
            body.insert("instructions".to_owned(), json!(self.text()));
        }
        self.tools(&mut body, "parameters", false);
        if self.one_in(6) {
            let format = json!({ "type": "json_schema", "name": "answer", "schema": self.schema(true) });
            body.insert("text".to_owned(), json!({ "format": format }));
        }
        self.tier(&mut body);
        body
    }

    fn item(&mut self) -> Value {
        match self.random.below(6) {
            0 => {
                json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": self.any(3).to_string() })
            }
            1 => json!({ "type": "function_call_output", "call_id": "c", "output": self.text() }),
            2 => json!({ "role": "user", "content": self.text() }),
            _ => {
                let mut image = json!({ "type": "input_image", "image_url": self.image_url() });
                if let Some(detail) = self.detail() {
                    image["detail"] = json!(detail);
                }
                json!({ "role": "user", "content": [{ "type": "input_text", "text": self.text() }, image] })
            }
        }
    }

    fn messages(&mut self) -> Map<String, Value> {
        let mut body = Map::new();
        let messages: Vec<Value> = (0..=self.random.below(4)).map(|_| self.message()).collect();
        body.insert("messages".to_owned(), json!(messages));
        if self.one_in(3) {
            let block = json!({ "type": "text", "text": self.text(), "cache_control": self.cache_control() });
            body.insert("system".to_owned(), json!([block]));
        }
        self.tools(&mut body, "input_schema", false);
        if self.one_in(8) {
            let format = json!({ "type": "json_schema", "schema": self.schema(true) });
            if self.one_in(2) {
                body.insert("output_format".to_owned(), format);
            } else {
                body.insert("output_config".to_owned(), json!({ "format": format }));
            }
        }
        if self.one_in(8) {
            body.insert("cache_control".to_owned(), self.cache_control());
        }
        self.tier(&mut body);
        body
    }

    fn message(&mut self) -> Value {
        let content = match self.random.below(6) {
            0 => json!(self.text()),
            1 | 2 => {
                let input = Value::Object((0..=self.random.below(4)).map(|_| (self.word(), self.any(4))).collect());
                let block = json!({ "type": "tool_use", "id": "toolu_1", "name": "f", "input": input });
                return json!({ "role": "assistant", "content": [block] });
            }
            3 => {
                let inner = json!([{ "type": "text", "text": self.text() }, self.source()]);
                json!([{ "type": "tool_result", "tool_use_id": "toolu_1", "content": inner }])
            }
            _ => json!([{ "type": "text", "text": self.text(), "cache_control": self.cache_control() }, self.source()]),
        };
        json!({ "role": "user", "content": content })
    }

    fn source(&mut self) -> Value {
        let data = self.image();
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } })
    }

    fn completions(&mut self) -> Map<String, Value> {
        let mut body = Map::new();
        let prompt = match self.random.below(4) {
            0 => json!(self.tokens()),
            1 => json!((0..=self.random.below(2)).map(|_| self.tokens()).collect::<Vec<_>>()),
            2 => json!((0..=self.random.below(2)).map(|_| self.text()).collect::<Vec<_>>()),
            _ => json!(self.text()),
        };
        body.insert("prompt".to_owned(), prompt);
        if self.one_in(3) {
            body.insert("n".to_owned(), json!(2));
        }
        if self.one_in(3) {
            body.insert("best_of".to_owned(), json!(2));
        }
        body
    }

    fn embeddings(&mut self) -> Map<String, Value> {
        let input = match self.random.below(6) {
            0 => json!(self.tokens()),
            1 => json!((0..=self.random.below(5)).map(|_| self.tokens()).collect::<Vec<_>>()),
            2 => json!((0..=self.random.below(5)).map(|_| self.text()).collect::<Vec<_>>()),
            3 | 4 => json!([self.image_url()]),
            _ => json!(self.text()),
        };
        [("input".to_owned(), input)].into_iter().collect()
    }

    fn tokens(&mut self) -> Vec<usize> {
        let most = [10, 1000, 100_000][self.random.below(3)];
        (0..=self.random.below(200)).map(|_| self.random.below(most)).collect()
    }

    fn tier(&mut self, body: &mut Map<String, Value>) {
        if self.one_in(5) {
            let tier = self.random.of(&["auto", "default", "flex", "priority", "fast", "ultrafast", "balanced"]);
            body.insert("service_tier".to_owned(), json!(tier));
        }
    }

    fn cache_control(&mut self) -> Value {
        match self.random.below(4) {
            0 => json!({ "type": "ephemeral", "ttl": "1h" }),
            1 => json!({ "type": "ephemeral", "ttl": "5m" }),
            2 => json!({ "type": "ephemeral" }),
            _ => json!(null),
        }
    }

    /// Adds tools, with `parameters` or `input_schema`, and inside a `function` in the Chat API.
    fn tools(&mut self, body: &mut Map<String, Value>, name: &str, is_chat: bool) {
        if !self.one_in(3) {
            return;
        }
        let tools: Vec<Value> = (0..=self.random.below(3))
            .map(|_| {
                let tool = json!({ "name": self.word(), "description": self.text(), name: self.schema(false) });
                match (name, is_chat) {
                    ("input_schema", _) => tool,
                    (_, true) => json!({ "type": "function", "function": tool }),
                    (_, false) => {
                        let mut tool = tool;
                        tool["type"] = json!("function");
                        tool
                    }
                }
            })
            .collect();
        body.insert("tools".to_owned(), json!(tools));
    }

    /// Returns an object with definitions that refer to the ones before them.
    fn schema(&mut self, is_answer: bool) -> Value {
        let definitions = if self.one_in(2) { 0 } else { 1 + self.random.below(4) };
        let mut schema = json!({ "type": "object", "properties": self.properties(definitions, 3) });
        if definitions > 0 {
            let holder = if !is_answer && self.one_in(3) { "definitions" } else { "$defs" };
            let each = (0..definitions)
                .map(|i| (format!("d{i}"), json!({ "type": "object", "properties": self.properties(i, 2) })))
                .collect();
            schema[holder] = Value::Object(each);
        }
        schema
    }

    fn properties(&mut self, definitions: usize, depth: usize) -> Value {
        let many = 1 + self.random.below(3);
        Value::Object((0..many).map(|_| (self.word(), self.property(definitions, depth))).collect())
    }

    fn property(&mut self, definitions: usize, depth: usize) -> Value {
        match self.random.below(12) {
            0..3 if definitions > 0 => json!({ "$ref": format!("#/$defs/d{}", self.random.below(definitions)) }),
            3 | 4 if depth > 0 => {
                let mut object = json!({ "type": "object", "properties": self.properties(definitions, depth - 1) });
                object["required"] = json!([self.word()]);
                object
            }
            5 if depth > 0 => json!({ "type": "array", "items": self.property(definitions, depth - 1) }),
            6 => {
                let most = [3, 40, 6000][self.random.below(3)];
                let numbers: Vec<usize> = (0..=self.random.below(most)).map(|_| self.random.below(30)).collect();
                json!({ "type": self.random.of(&["integer", "number"]), "enum": numbers })
            }
            7 => {
                let words: Vec<String> = (0..=self.random.below(30)).map(|_| self.word()).collect();
                json!({ "type": "string", "enum": words })
            }
            8 => json!({ "description": self.any(2), "default": self.any(2) }),
            9 => json!({ "type": "boolean" }),
            10 => json!({}),
            _ => json!({ "type": "string", "description": self.text() }),
        }
    }

    /// Returns any JSON, like the arguments of a tool call.
    fn any(&mut self, depth: usize) -> Value {
        match self.random.below(if depth == 0 { 5 } else { 9 }) {
            0 => json!(self.random.below(100_000)),
            1 => json!(self.one_in(2)),
            2 => json!(null),
            3 => json!(self.random.below(1000) as f64 / 8.0),
            4 => json!(self.text()),
            5 => json!((0..self.random.below(60)).map(|_| self.random.below(10)).collect::<Vec<_>>()),
            6 => json!((0..self.random.below(4)).map(|_| self.any(depth - 1)).collect::<Vec<_>>()),
            _ => Value::Object((0..self.random.below(4)).map(|_| (self.word(), self.any(depth - 1))).collect()),
        }
    }

    fn word(&mut self) -> String {
        self.words[self.random.below(self.words.len())].to_owned()
    }

    fn text(&mut self) -> String {
        let most = [1, 6, 40, 200][self.random.below(4)];
        let mut text = String::new();
        // Enough to pass the number of tokens above which some models are dearer.
        if self.one_in(2000) {
            return "0 1 2 3 ".repeat(30_000 + self.random.below(8000));
        }
        let kind = self.random.below(6);
        for _ in 0..self.random.below(most) {
            match kind {
                0 => text += self.random.of(&["é", "漢字", "\u{12000}", "\u{3400}", "🙂", "の", "я", "\u{301}", "ﬁ"]),
                1 => {
                    text += self
                        .random
                        .of(&["0 1 2 3 ", "!?%&", "{}();\n", "\t\tif (x) {\n", "\\", "\"", "<|end|>", "    "])
                }
                2 => text.push((0x20 + self.random.below(0x5f) as u8).into()),
                _ => {
                    text += &self.word();
                    text += self.random.of(&[" ", " ", ", ", "_", "'s ", "\n"]);
                }
            }
        }
        text
    }

    fn detail(&mut self) -> Option<&'static str> {
        [None, Some("low"), Some("high"), Some("auto")][self.random.below(4)]
    }

    fn image_url(&mut self) -> String {
        format!("data:image/png;base64,{}", self.image())
    }

    /// Returns the base64 of the head of a PNG of some size.
    fn image(&mut self) -> String {
        const SIDES: [u32; 14] = [1, 28, 300, 384, 385, 512, 513, 768, 769, 1000, 1092, 2048, 4000, 8000];
        let mut side = || SIDES[self.random.below(SIDES.len())];
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend(side().to_be_bytes());
        bytes.extend(side().to_be_bytes());
        bytes.extend(b"\x08\x02\0\0\0crc.\0\0\0\x10IDAT");
        let more = [0, 300][self.random.below(2)];
        bytes.extend((0..self.random.below(more + 1)).map(|i| (i * 7) as u8));
        base64(&bytes)
    }

    fn base64(&mut self, length: usize) -> String {
        base64(&(0..length).map(|_| self.random.below(256) as u8).collect::<Vec<_>>())
    }

    /// Writes JSON with members in any order, blanks here and there, and some characters as escapes.
    fn write(&mut self, value: &Value, text: &mut String) {
        match value {
            Value::Array(items) => {
                text.push('[');
                for (i, item) in items.iter().enumerate() {
                    text.push_str(if i > 0 { "," } else { "" });
                    self.write(item, text);
                }
                text.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let first = self.random.below(members.len().max(1));
                members.rotate_left(first);
                text.push('{');
                for (i, (name, value)) in members.into_iter().enumerate() {
                    text.push_str(if i > 0 { "," } else { "" });
                    if self.one_in(20) {
                        text.push_str("\n  ");
                    }
                    self.write(&json!(name), text);
                    text.push_str(if self.one_in(8) { ": " } else { ":" });
                    self.write(value, text);
                }
                text.push('}');
            }
            Value::String(string) if string.len() < 400 && self.one_in(12) => {
                text.push('"');
                for unit in string.encode_utf16() {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
                text.push('"');
            }
            value => text.push_str(&value.to_string()),
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let is_data = at <= group.len();
            text.push(if is_data { ALPHABET[(bits >> (18 - 6 * at) & 63) as usize].into() } else { '=' });
        }
    }
    text
}
