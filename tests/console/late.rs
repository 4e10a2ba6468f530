//! Answers that come late, and changes that others make: a page shows the newest state in each order.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, choose, log_in};

/// Delays the answers to POST requests until `release()`.
const HOLD: &str = "const { fetch } = window; \
    const released = new Promise((done) => { window.release = done; }); \
    window.fetch = async (path, options) => { \
        const answer = await fetch(path, options); \
        if (options?.method === 'POST') await released; \
        return answer; \
    };";

/// Opens the newest events while the reader is elsewhere, and gets an event of the stream before the answer. Returns
/// the positions in the window, and whether it lacks newer ones.
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

/// Opens an earlier event while the reader is at the end, and gets an event of the stream after the daemon has read the
/// page and before its answer. Then it does so again, and the answer is lost. Returns the positions in the window after
/// each attempt, whether it lacks newer ones, and the length of the tail.
const JUMP: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const { Log } = await import(own.replace('app.js', 'transcript.js')); \
    const { fetch } = window; \
    const asked = []; \
    window.fetch = (path, options) => (!path.startsWith('/of-the-test/') ? fetch(path, options) : new Promise((done, lost) => { \
        asked.push({ answer: (...seqs) => done(Response.json({ events: seqs.map((seq) => ({ seq })), has_more: false })), lost }); })); \
    const drawn = () => new Promise((done) => setTimeout(done, 100)); \
    const next = async () => { while (asked.length === 0) await drawn(); return asked.shift(); }; \
    const log = new Log('/of-the-test'); \
    const first = log.open(); \
    (await next()).answer(1, 2, 3); \
    await first; \
    const second = log.open(2); \
    (await next()).answer(1, 2); \
    const page = await next(); \
    log.add({ seq: 4 }); \
    await drawn(); \
    page.answer(3); \
    await second; \
    await drawn(); \
    const opened = log.events.value.map((event) => event.seq); \
    const third = log.open(2); \
    const before = await next(); \
    log.add({ seq: 5 }); \
    await drawn(); \
    before.lost(new TypeError('the connection is lost')); \
    await third; \
    log.add({ seq: 6 }); \
    await drawn(); \
    return [opened, log.events.value.map((event) => event.seq), log.hasNewer.value, log.tail.length]; })()";

/// Starts the page of what waits for a person, and answers its requests in place of the daemon: two runs with a question each.
/// The stream begins in time, and has an event of the first run later. The page that is open may begin its own stream
/// meanwhile; the daemon answers that. Returns the number of requests about each run, before the event and after it.
const REREAD: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const { start } = await import(own.replace('app.js', 'approvals.js')); \
    const { fetch, setTimeout } = window; \
    window.setTimeout = (act, ms) => (ms === 1000 ? 0 : setTimeout(act, ms)); \
    const asked = []; \
    let stream; \
    const frame = (event, data) => stream.enqueue(new TextEncoder().encode(`event: ${event}\\ndata: ${JSON.stringify(data)}\\n\\n`)); \
    window.fetch = async (path, options) => { \
        if (path.includes('/events/stream?types=approval.*')) return new Response(new ReadableStream({ start: (one) => { stream = one; frame('snapshot', { seq: 7 }); } })); \
        if (path.includes('waiting_for=person')) return Response.json({ sandboxes: [{ sandbox_id: 'r_a' }, { sandbox_id: 'r_b' }], has_more: false }); \
        const part = path.match(/^\\/api\\/v1\\/sandboxes\\/(r_[ab])\\/(approvals|questions)$/); \
        if (!part) return fetch(path, options); \
        asked.push(part[1]); \
        if (part[2] === 'approvals') return Response.json({ approvals: [] }); \
        return Response.json({ questions: [{ question_id: `q ${asked.length}`, sandbox_id: part[1], question: `question ${asked.length}`, \
            options: [], state: 'open', created_at: '2026-01-01T00:00:00Z' }] }); \
    }; \
    await start(() => {}); \
    const count = (run) => asked.filter((one) => one === run).length; \
    const [a, b] = [count('r_a'), count('r_b')]; \
    frame('message', { seq: 8, event_type: 'question.asked', sandbox_id: 'r_a' }); \
    while (count('r_a') < a + 2) await new Promise((done) => setTimeout(done, 50)); \
    return [a, b, count('r_a'), count('r_b')]; })()";

/// Delays the answer with the file `slow.txt` until `release()`. `handled` is true once the page has used it.
const SLOW_FILE: &str = "const { fetch } = window; \
    const released = new Promise((done) => { window.release = done; }); \
    window.handled = false; \
    window.fetch = async (path, options) => { \
        const answer = await fetch(path, options); \
        if (!path.endsWith('/slow.txt')) return answer; \
        const text = await answer.text(); \
        await released; \
        return { ok: true, status: 200, text: async () => { setTimeout(() => { window.handled = true; }); return text; } }; \
    };";

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

#[tokio::test]
async fn a_jump_loses_no_event_of_the_stream() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    assert_eq!(browser.script(JUMP).await, json!([[1, 2, 3, 4], [1, 2, 3, 4, 5, 6], false, 0]));
}

#[tokio::test]
async fn an_event_rereads_its_run_alone() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    let counts = browser.script(REREAD).await;
    assert_eq!(counts[3], counts[1], "the other run is not read again: {counts}");
    assert_eq!(counts[2].as_u64(), counts[0].as_u64().map(|before| before + 2), "{counts}");
}

#[tokio::test]
async fn the_file_that_was_chosen_last_is_shown() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let files = "echo 'the slow text' > slow.txt; echo 'the quick text' > quick.txt; echo written; sleep 600";
    let id = daemon.create(agent("files", files)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes("return document.querySelector('.output')?.textContent.includes('written') === true").await;
    browser.script(SLOW_FILE).await;

    choose(&browser, "Files").await;
    browser.press("slow.txt").await;
    browser.press("quick.txt").await;
    let shown =
        "return document.querySelector('[role=tabpanel] .output')?.textContent.includes('the quick text') === true";
    browser.becomes(shown).await;
    browser.script("window.release()").await;
    browser.becomes("return window.handled").await;
    assert_eq!(browser.script(shown).await, true, "a late answer replaces no file");
}
