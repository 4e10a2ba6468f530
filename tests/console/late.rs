//! Answers that come late, and changes that others make: a page shows the newest state in each order.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, log_in};

/// Delays the answers to POST requests until `release()`.
const HOLD: &str = "const { fetch } = window; \
    const released = new Promise((done) => { window.release = done; }); \
    window.fetch = async (path, options) => { \
        const answer = await fetch(path, options); \
        if (options?.method === 'POST') await released; \
        return answer; \
    };";

/// Opens the newest events while the reader is elsewhere, and gets an event of the stream before the answer. Returns the
/// positions in the window, and whether it lacks newer ones.
const CATCH_UP: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const { Log } = await import(own.replace('app.js', 'transcript.js')); \
    const { fetch } = window; \
    let answer; \
    window.fetch = (path, options) => (!path.startsWith('/of-the-test/') ? fetch(path, options) : new Promise((done) => { \
        answer = (...seqs) => done(Response.json({ events: seqs.map((seq) => ({ seq })), has_more: false })); })); \
    const drawn = () => new Promise((done) => setTimeout(done, 100)); \
    const log = new Log('/of-the-test'); \
    const first = log.open(); \
    answer(1, 2, 3); \
    await first; \
    log.follows = false; \
    log.hasNewer.value = true; \
    log.add({ seq: 4 }); \
    await drawn(); \
    const second = log.open(); \
    log.add({ seq: 5 }); \
    await drawn(); \
    answer(1, 2, 3, 4); \
    await second; \
    await drawn(); \
    return [log.events.value.map((event) => event.seq), log.hasNewer.value]; })()";

#[tokio::test]
async fn a_retry_by_others_is_followed() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon
        .create(agent("again", "echo the attempt $(head -c 4 /dev/urandom | od -An -tx1 | tr -d ' '); exit 3"))
        .await;
    daemon.reaches(&id, "FAILED").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    let output = "return /the attempt [0-9a-f]{8}/.exec(document.querySelector('.output')?.innerText)?.[0] ?? null";
    browser.shows("the attempt").await;
    let first = browser.script(output).await;

    daemon.command(["retry", &id]).finish().await.expect(0);

    browser.shows("attempt 2").await;
    browser.becomes(&format!("const said = (() => {{ {output} }})(); return said !== null && said !== {first}")).await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Failed'").await;
    let attempts = "return document.querySelector('.output').innerText.match(/the attempt/g).length";
    assert_eq!(browser.script(attempts).await, 1, "an attempt has an output of its own");
}

#[tokio::test]
async fn text_that_is_typed_meanwhile_stays() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("told", "echo all calls are made; sleep 600")).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.shows("all calls are made").await;
    browser.script(HOLD).await;
    let text = "document.querySelector('.message-box textarea').value";

    browser.write(".message-box textarea", "the first\u{e007}").await;
    browser.shows("goes with the next call").await;
    browser.write(".message-box textarea", ", and more").await;
    browser.script("window.release()").await;
    browser.becomes("return !document.querySelector('.message-box button.primary').disabled").await;
    assert_eq!(browser.script(&format!("return {text}")).await, "the first, and more");

    browser.write(".message-box textarea", "\u{e007}").await;
    browser.becomes(&format!("return {text} === ''")).await;
}

#[tokio::test]
async fn a_transcript_catches_up_with_its_stream() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    assert_eq!(browser.script(CATCH_UP).await, json!([[1, 2, 3, 4, 5], false]));
}
