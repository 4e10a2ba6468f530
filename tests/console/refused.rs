//! Requests that are refused, or that get no answer: what a page says about them, and for how long.

use serde_json::Value;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, configured, expects_dead_daemon, log_in};

/// Refuses each request to cancel a run.
const REFUSE: &str = "const { fetch } = window; \
    window.fetch = (path, options) => (options?.method !== 'DELETE' ? fetch(path, options) : Promise.resolve( \
        Response.json({ error: { code: 'invalid_state', message: 'it is being removed already' } }, { status: 409 })));";

/// Loses the answer to the first creation of a run, and answers the second one that the first is still being served.
const LOSE: &str = "{ const { fetch } = window; \
    window.clicks = 0; \
    window.fetch = async (path, options) => { \
        if (path !== '/api/v1/sandboxes' || options?.method !== 'POST') return fetch(path, options); \
        window.clicks += 1; \
        if (window.clicks === 2) return Response.json({ error: { code: 'idempotency_in_use', message: 'it is being served' } }, { status: 409 }); \
        const answer = await fetch(path, options); \
        if (window.clicks === 1) throw new TypeError('the connection is lost'); \
        return answer; \
    }; }";

/// Loses the first answer about the agents of a chat. The braces keep its names out of the page's scope.
const LOSE_AGENTS: &str = "{ const { fetch } = window; \
    window.asked = 0; \
    window.fetch = (path, options) => { \
        if (path !== '/api/v1/ai/agents') return fetch(path, options); \
        window.asked += 1; \
        return window.asked === 1 ? Promise.reject(new TypeError('the connection is lost')) : fetch(path, options); \
    }; }";

/// Stops a request that waits after a 429. Returns the name of the error.
const STOP: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const { send } = await import(own.replace('app.js', 'api.js')); \
    const { fetch } = window; \
    const stop = new AbortController(); \
    window.fetch = (path, options) => { \
        if (path !== '/of-the-test') return fetch(path, options); \
        setTimeout(() => stop.abort()); \
        return Promise.resolve(new Response('', { status: 429, headers: { 'Retry-After': '3600' } })); \
    }; \
    return send('GET', '/of-the-test', undefined, { signal: stop.signal }).then(() => 'answered', (error) => error.name); })()";

/// Returns a script that says whether an alert of the page has a text.
fn alerts(text: &str) -> String {
    format!(
        "return [...document.querySelectorAll('#app [role=alert]')].some(one => one.textContent.includes('{text}'))"
    )
}

#[tokio::test]
async fn the_reason_of_a_refused_action_stays() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("refused", "sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let refused = alerts("it is being removed already");
    let is_gone = format!("return !(() => {{ {refused} }})()");

    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;
    browser.script(REFUSE).await;
    browser.press("Cancel").await;
    browser.agree().await;
    browser.becomes(&refused).await;
    // The page shows this pause only after a read that follows the refusal.
    daemon.request("POST", &format!("/api/v1/sandboxes/{id}/pause"), &Value::Null).await.expect(200);
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Paused'").await;
    assert_eq!(browser.script(&refused).await, true, "a later look leaves it there");
    browser.press("Close").await;
    browser.becomes(&is_gone).await;

    browser.open(&format!("http://{}/sandboxes", daemon.address())).await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;
    browser.script(REFUSE).await;
    browser.press("Cancel refused").await;
    browser.agree().await;
    browser.becomes(&refused).await;
    daemon.create(agent("another", "")).await;
    browser.becomes("return document.querySelectorAll('table.runs tbody tr').length === 2").await;
    assert_eq!(browser.script(&refused).await, true, "a later look leaves it there");
    browser.press("Close").await;
    browser.becomes(&is_gone).await;
}

#[tokio::test]
async fn a_change_without_an_answer_promises_no_retry() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("unanswered", "sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;

    expects_dead_daemon(&browser);
    daemon.kill().await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Reconnecting'").await;
    browser.press("Cancel").await;
    browser.agree().await;

    let refusal = "[...document.querySelectorAll('#app [role=alert] p')].map(one => one.textContent)";
    let text = "The daemon did not answer, so this may not have been done. Look, and do it again if it was not.";
    browser.becomes(&format!("return {refusal}.includes('{text}')")).await;
}

#[tokio::test]
async fn a_chat_reads_its_agents_again() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.before_each_page(LOSE_AGENTS).await;
    browser.open(&format!("http://{}/chat", daemon.address())).await;
    browser.shows("Enter sends").await;
    assert_eq!(browser.script("return window.asked >= 2").await, true, "the first answer was lost");
    assert_eq!(browser.script(&alerts("The daemon does not answer")).await, false);
}

#[tokio::test]
async fn a_repeated_click_creates_one_run() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.before_each_page(LOSE).await;
    browser.open(&format!("http://{}/sandboxes/new", daemon.address())).await;
    browser.write("#task", "say hello").await;
    browser.write("#model", "m").await;
    browser.shows("--oauth2-bearer").await;

    browser.click("#new-run button.primary").await;
    browser.shows("The daemon did not answer").await;
    browser.click("#new-run button.primary").await;
    browser.shows("An earlier click is still at work.").await;
    browser.click("#new-run button.primary").await;
    browser.shows("Open its page").await;
    assert_eq!(browser.script("return window.clicks").await, 3);
    let runs = daemon.get("/api/v1/sandboxes").await.expect(200).json();
    assert_eq!(runs["sandboxes"].as_array().map(Vec::len), Some(1), "{runs}");
}

#[tokio::test]
async fn a_request_that_waits_can_be_stopped() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    assert_eq!(browser.script(STOP).await, "AbortError");
}
