//! Parts of a run's page: its calls over time, its output, its files after the end, and the commands of an event.

use serde_json::{Value, json};
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, choose, configured, log_in};

/// Returns the first duration at which a call does not begin at the left end of its own line, or null.
const PLACES: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const { placeOf } = await import(own.replace('app.js', 'tab_calls.js')); \
    for (let total = 1; total <= 3000; total += 1) if (placeOf({ begin: 7, total }, 7, total).x !== 0) return total; \
    return null; })()";

#[tokio::test]
async fn calls_and_receipts_show_where_time_went() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let leaves =
        "mkdir -p out; echo kept > 'out/<b>note.txt'; printf 'one line\\nANOTHER line\\n'; printf 'a fault\\n' >&2";
    let id = daemon.create(agent("timed", leaves)).await;
    daemon.ended(&id).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.shows("I look at the parser first").await;

    choose(&browser, "Calls").await;
    browser.becomes("return document.querySelectorAll('svg.times rect.queue, svg.times rect.connect, svg.times rect.wait, svg.times rect.stream').length === 8").await;
    let begins = "const [newest, oldest] = [...document.querySelectorAll('svg.times rect.queue')].map(one => one.x.baseVal.value); return newest > oldest";
    browser.becomes(begins).await;
    browser.press("From the start of each call").await;
    browser.becomes("return document.querySelector('[role=tabpanel] button[aria-pressed=true]')?.textContent === 'From the start of each call'").await;
    browser
        .becomes(
            "return [...document.querySelectorAll('svg.times rect.queue')].every(one => one.x.baseVal.value === 0)",
        )
        .await;
    assert_eq!(browser.script(PLACES).await, Value::Null);
    choose(&browser, "Cost").await;
    browser.becomes("return document.querySelectorAll('.uplot canvas').length === 2").await;
    browser.shows("Tokens so far").await;

    choose(&browser, "Output").await;
    browser.write("#output-search", "another").await;
    browser.shows("1 line of the output in this page").await;
    let output = browser.script("return document.querySelector('.output').innerText.trim()").await;
    assert_eq!(output, "ANOTHER line");
    choose(&browser, "Outline").await;
    choose(&browser, "Output").await;
    browser
        .becomes(
            "return [...document.querySelectorAll('.output .kind')].map(one => one.textContent).join() === 'stderr'",
        )
        .await;

    choose(&browser, "Details").await;
    browser.shows("Time at work").await;
    browser.click("[role=tabpanel] details summary").await;
    browser.becomes("return document.querySelectorAll('[role=tabpanel] details table tbody tr').length === 2").await;
    choose(&browser, "Files").await;
    browser.shows("<b>note.txt").await;
    browser.becomes("return [...document.querySelectorAll('[role=tabpanel] button')].some(one => one.textContent === 'Download')").await;
    let saves = "let saved = ''; HTMLAnchorElement.prototype.click = function () { window.saved = this.download; }; \
                 [...document.querySelectorAll('[role=tabpanel] button')].find(one => one.textContent === 'Download').click(); return true";
    browser.script(saves).await;
    browser.becomes("return window.saved === '<b>note.txt'").await;
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn turns_and_commands_are_in_the_transcript() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let again = r#"
        event agent.user_message '{"text":"And now the documentation."}'
        event agent.tool_use '{"id":"t9","name":"Bash","input":{"command":"make"}}'
        event agent.tool_result '{"tool_use_id":"t9","content":"","stderr":"make: *** <b>no rule</b>","exit_code":2,"is_error":true}'"#;
    let id = daemon.create(agent("turns", again)).await;
    daemon.ended(&id).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;

    browser.shows("And now the documentation.").await;
    browser.becomes("return [...document.querySelectorAll('.turn-head')].map(one => one.textContent.includes('1 tool')).join() === 'true,true'").await;
    // The daemon sees the calls in the audit file: the event of the second one may come after the input that follows
    // it.
    browser.becomes("return [...document.querySelectorAll('.turn-head')].reduce((sum, one) => sum + Number(one.textContent.match(/(\\d+) calls?/)?.[1] ?? 0), 0) === 2").await;
    browser.becomes("const marked = [...document.querySelectorAll('.tool .stderr')].at(-1); return marked?.textContent.includes('stderr') && marked.textContent.includes('<b>no rule</b>')").await;
    let seq = browser.script("const row = document.querySelector('article.begins'); row.focus(); row.querySelector('.copy').click(); return Number(row.id.slice(4))").await;
    browser
        .shows(&format!("sluice events {id} --after {} --limit 1 --json", seq.as_u64().expect("a position") - 1))
        .await;
    browser.shows("--oauth2-bearer \"$SLUICE_TOKEN\"").await;
    let found = daemon.get(&format!("/api/v1/sandboxes/{id}/commands?event={seq}")).await.expect(200).json();
    assert_eq!(found["commands"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_message_says_when_it_was_delivered() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("told", "echo all calls are made; sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let page = format!("http://{}/sandboxes/{id}", daemon.address());
    browser.open(&page).await;

    browser.shows("all calls are made").await;
    browser.write(".message-box textarea", "look at the tests\u{e007}").await;
    browser.shows("goes with the next call").await;
    sluice.sql("UPDATE messages SET state = 'delivered', delivered_us = 1700000000000000").await;
    browser.open(&page).await;
    browser
        .becomes("return /delivered at \\d\\d:\\d\\d:\\d\\d/.test(document.querySelector('.message')?.textContent)")
        .await;
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_message_is_shown_with_its_kind() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("steered", "echo all calls are made; sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    let run = format!("/api/v1/sandboxes/{id}");
    let nudge = json!({"message": "stay \u{202e}on the task", "source": "a rule"});
    daemon.request("POST", &format!("{run}/interventions"), &nudge).await.expect(200);
    let long = format!("{}\u{1f642} and more", "x".repeat(199));
    daemon.request("POST", &format!("{run}/messages"), &json!({ "content": long })).await.expect(200);
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;

    browser.becomes("return document.querySelectorAll('.message-box .message').length === 2").await;
    let texts = "return [...document.querySelectorAll('.message-box .message')].map(one => one.textContent)";
    let texts = browser.script(texts).await;
    let [newest, nudge] = [&texts[0], &texts[1]].map(|text| text.as_str().unwrap_or_default());
    assert!(newest.contains(" message: x") && newest.contains("[11 characters more]"), "{newest}");
    assert!(!newest.contains("U+") && newest.chars().all(|c| c != '\u{fffd}'), "no character is cut: {newest}");
    assert!(nudge.contains(" nudge: ") && nudge.contains("stay U+202Eon the task"), "{nudge}");
    assert!(!texts.to_string().contains("you:"), "{texts}");
}

#[tokio::test]
async fn a_chat_survives_a_reload() {
    let upstream = Upstream::provider("hello from the model").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let page = format!("http://{}/chat", daemon.address());
    browser.open(&page).await;
    browser.write("#chat-message", "say hello\u{e007}").await;
    browser
        .becomes("return document.querySelector('.turns .from-agent')?.textContent.includes('hello from the model')")
        .await;
    browser.becomes("return document.querySelector('.message-box button:not(.primary)') === null").await;

    browser.open(&page).await;
    browser
        .becomes("return document.querySelector('.turns .from-agent')?.textContent.includes('hello from the model')")
        .await;
    browser.becomes("return document.querySelector('.turns .own-text')?.textContent === 'say hello'").await;
    // What a sandbox has said is foreign text also when it comes out of the store of the browser.
    let lies = "const key = Object.keys(sessionStorage).find(one => one.startsWith('sluice.chat')); const kept = sessionStorage.getItem(key); \
                sessionStorage.setItem(key, kept.replace('hello from', '<b>hello</b> \\u202efrom'))";
    browser.script(lies).await;
    browser.open(&page).await;
    browser.shows("<b>hello</b> U+202Efrom the model").await;
    assert_eq!(browser.script("return document.querySelectorAll('.turns b').length").await, 0);
    browser.write("#chat-message", "and again\u{e007}").await;
    browser.becomes("return document.querySelectorAll('.turns a').length === 2").await;
    browser.becomes("return document.querySelector('.message-box button:not(.primary)') === null").await;
    browser
        .script("[...document.querySelectorAll('button')].find(one => one.textContent === 'New conversation').click()")
        .await;
    browser.open(&page).await;
    browser.shows("Enter sends").await;
    assert_eq!(browser.script("return document.querySelectorAll('.turn').length").await, 0);
    assert_eq!(browser.faults().await, Vec::<String>::new());
}
