//! Text of a sandbox in a page: characters that hide or reorder text are shown as codes. The daemon's HTML has the same
//! rule.

use std::path::Path;

use serde_json::{Value, json};
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, choose, log_in};

/// Draws each text with the console's function, and returns the texts that show something unexpected. An element that
/// is not a text, a code or a colour is shown by its name.
const DRAW: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const [{ foreign }, { h, render }] = await Promise.all([import(own.replace('app.js', 'text.js')), import('preact')]); \
    const seen = (node) => { \
      if (node.nodeType === Node.TEXT_NODE) return node.data; \
      const inner = [...node.childNodes].map(seen).join(''); \
      if (node.tagName === 'SPAN' && node.className === 'codepoint') return node.offsetWidth > 0 ? `[${inner}]` : '{invisible}'; \
      return node.tagName === 'SPAN' && /^ansi-[a-z]+( ansi-[a-z]+)*$/.test(node.className) ? inner : `{${node.tagName}}`; }; \
    return TEXTS.map(({ text, shown }) => { \
      const box = document.body.appendChild(document.createElement('div')); \
      render(h('bdi', { class: 'foreign' }, foreign(text)), box); \
      const found = [...box.firstChild.childNodes].map(seen).join(''); \
      box.remove(); \
      return found === shown ? null : [text, shown, found]; }).filter(Boolean); })()";

/// Members of an agent's events that the console looks at. Results belong to the tool call before them.
const MEMBERS: [(&str, &[&str]); 14] = [
    ("agent.tool_use", &["id", "name", "input"]),
    ("agent.tool_result", &["tool_use_id", "content", "output", "result", "stderr", "exit_code", "is_error"]),
    ("agent.tool_completed", &["content", "output", "result", "stderr", "exit_code", "is_error"]),
    ("agent.user_tool_result", &["content", "output", "result", "stderr", "exit_code", "is_error"]),
    (
        "agent.file_edited",
        &["file_path", "change_type", "lines_added", "lines_removed", "diff_preview", "diff_truncated", "diff_omitted"],
    ),
    ("agent.assistant_message", &["text", "message"]),
    ("agent.user_message", &["text", "message"]),
    ("agent.thinking", &["text", "message"]),
    ("agent.message", &["text", "message", "question", "reason"]),
    ("agent.system_message", &["text", "message"]),
    ("agent.error", &["text", "message", "question", "reason"]),
    ("agent.failed", &["text", "message", "question", "reason"]),
    ("agent.completed", &["text", "message", "question", "reason"]),
    ("agent.progress", &["text", "message"]),
];
/// Members of the input of a tool.
const INPUTS: [&str; 6] = ["command", "file_path", "path", "pattern", "query", "description"];

/// Events of an agent with members that are not texts, although a page shows them as texts.
fn odd_events() -> Vec<(&'static str, Value)> {
    let odd = json!({"toString": 1});
    let mut events = Vec::new();
    for value in [json!({"valueOf": 1}), json!([odd]), json!([{ "text": odd }]), odd] {
        for (kind, members) in MEMBERS {
            for member in members {
                let id = format!("tool-{}", events.len());
                if kind.ends_with("tool_result") || kind.ends_with("tool_completed") {
                    events.push(("agent.tool_use", json!({"id": id, "name": "Bash", "input": {"command": "ls"}})));
                }
                let mut data = json!({"tool_use_id": id});
                data[member] = value.clone();
                events.push((kind, data));
            }
        }
        events.extend(INPUTS.map(|member| ("agent.tool_use", json!({"name": "Bash", "input": { member: value }}))));
        // A tool that has failed is in the outline, with its name.
        let id = format!("tool-{}", events.len());
        events.push(("agent.tool_use", json!({"id": id, "name": value})));
        events.push(("agent.tool_result", json!({"tool_use_id": id, "is_error": true})));
    }
    events.push(("agent.file_edited", json!({"file_path": "gone", "diff_omitted": "\u{202e}too long"})));
    events
}

/// Draws three rows in the page; the second one cannot be drawn.
const BREAK: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const [{ Row }, { h, render }] = await Promise.all([import(own.replace('app.js', 'events.js')), import('preact')]); \
    const box = document.body.appendChild(document.createElement('div')); \
    box.id = 'rows-of-the-test'; \
    const broken = { get name() { throw new Error('a row of the test'); } }; \
    const rows = [{ name: 'first' }, broken, { name: 'third' }].map((event_data, at) => ({ event: { \
        seq: at + 1, id: `evt_${at}`, event_type: 'agent.tool_use', event_data, source: 'agent', created_at: '2026-01-01T00:00:00Z' } })); \
    render(h('div', null, rows.map((row) => h(Row, { key: row.event.seq, row, base: '' }))), box); \
    return true; })()";

#[tokio::test]
async fn each_foreign_text_shows_its_hidden_characters() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/foreign_texts.json");
    let texts: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    assert!(texts.as_array().is_some_and(|texts| texts.len() >= 210), "{texts}");
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    let wrong = browser.script(&DRAW.replace("TEXTS", &texts.to_string())).await;
    assert_eq!(wrong, json!([]));
}

#[tokio::test]
async fn a_page_without_its_script_shows_codes_too() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let says = r#"event agent.assistant_message '{"text":"invoice\u202egnp.exe </bdi><b>bold</b>"}'"#;
    let id = daemon.create(agent("hidden", says)).await;
    daemon.reaches(&id, "COMPLETED").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    // A page that is left while it loads a module reports that as a fault. Its rows are there before.
    browser.becomes("return document.querySelector('.live') !== null").await;

    browser.without_scripts().await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    let frame = browser.source().await;
    let text = "<span class=\"label\">from the agent</span><bdi>invoice<span class=\"codepoint\">U+202E</span>gnp.exe \
                &lt;/bdi&gt;&lt;b&gt;bold&lt;/b&gt;</bdi>";
    assert!(frame.contains(text) && !frame.contains('\u{202e}'), "{frame}");
}

#[tokio::test]
async fn no_value_of_an_agent_hides_the_buttons() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("odd", "sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    let odd = odd_events();
    let rows = odd.iter().enumerate().map(|(at, (kind, data))| {
        // Old events are removed after a minute.
        let now = "CAST(strftime('%s', 'now') AS INTEGER) * 1000000";
        format!("('evt_odd{at}', 'root', '{id}', 0, NULL, NULL, '{kind}', 'agent', '{data}', 1, 100, {now} + {at})")
    });
    let insert = format!(
        "INSERT INTO events (id, owner, sandbox_id, attempt, agent_id, zone_id, event_type, source, event_data, evictable, \
         bytes, created_us) VALUES {}",
        rows.collect::<Vec<_>>().join(", ")
    );
    sluice.sql(&insert).await;
    let events = daemon.events(&id).await;
    let is_row = |event: &&Value| event["id"].as_str().is_some_and(|id| id.starts_with("evt_odd"));
    // The result of a tool is in the row of its call.
    let is_result = |event: &&Value| {
        let kind = event["event_type"].as_str().unwrap_or_default();
        let of_a_call = event["event_data"]["tool_use_id"].is_string();
        of_a_call && ["agent.tool_result", "agent.tool_completed", "agent.user_tool_result"].contains(&kind)
    };
    let expected: Vec<_> =
        events.iter().filter(is_row).filter(|event| !is_result(event)).map(|event| &event["seq"]).collect();
    assert!(expected.len() > 200, "{} rows of {} events", expected.len(), odd.len());
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes(&format!("return {}.every(seq => document.getElementById(`seq-${{seq}}`) !== null && document.querySelector('.transcript') !== null)", json!(expected))).await;
    let cancels = "return [...document.querySelectorAll('.actions button')].some(one => one.textContent === 'Cancel')";
    assert_eq!(browser.script(cancels).await, true);
    browser
        .becomes("return document.querySelector('.transcript').textContent.includes('No diff: U+202Etoo long')")
        .await;
    for (tab, shown) in [
        ("Outline", "document.querySelectorAll('.outline li').length > 50"),
        ("Diff", "/No file|files that have/.test(document.querySelector('[role=tabpanel]').textContent)"),
        ("Raw events", "document.querySelectorAll('[role=tabpanel] details').length === 200"),
    ] {
        choose(&browser, tab).await;
        browser.becomes(&format!("return {shown}")).await;
    }
    assert_eq!(browser.script("return document.body.textContent.includes('cannot be shown')").await, false);
    assert_eq!(browser.script(cancels).await, true);
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_row_that_breaks_leaves_the_others() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.expects_fault("a row of the test");

    assert_eq!(browser.script(BREAK).await, true);
    let texts = "[...document.querySelectorAll('#rows-of-the-test article .body')].map(one => one.textContent)";
    let one_is_broken = format!(
        "const texts = {texts}; return texts.length === 3 && texts[0].includes('first') \
         && texts[1].includes('This event cannot be shown.') && texts[2].includes('third')"
    );
    browser.becomes(&one_is_broken).await;
}

#[tokio::test]
async fn a_page_that_breaks_shows_its_first_state() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("kept", "")).await;
    daemon.ended(&id).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.becomes("return document.querySelector('table.runs .badge')?.textContent === 'Completed'").await;
    browser.expects_fault("a page of the test");

    let breaks = "Number.prototype.toLocaleString = () => { throw new Error('a page of the test'); };";
    browser.before_each_page(breaks).await;
    browser.open(&format!("http://{}/sandboxes", daemon.address())).await;
    browser.becomes("return document.querySelector('#app > [role=alert]')?.textContent.startsWith('This page cannot be shown.')").await;
    browser.becomes("return document.querySelector('#app table.runs a')?.textContent === 'kept'").await;
}
