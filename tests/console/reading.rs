//! How a person reads a long transcript: by search, by links, by its raw events, and while it grows.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, choose, log_in};

/// More events than one page of the transcript has.
const EVENTS: u32 = 600;

/// Returns a script that says whether the transcript has a text, also where it is not drawn.
fn has(text: &str) -> String {
    format!("return document.querySelector('[role=log]')?.textContent.includes('{text}') === true")
}

/// Returns a script that says whether a row is where the reader looks.
fn is_seen(seq: u64) -> String {
    format!(
        "const row = document.getElementById('seq-{seq}'), box = document.querySelector('[role=log]'); \
         if (!row) return false; const [at, around] = [row.getBoundingClientRect(), box.getBoundingClientRect()]; \
         return at.bottom > around.top && at.top < around.bottom"
    )
}

#[tokio::test]
async fn a_long_transcript_is_read_by_links() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits = "while [ ! -e go ]; do sleep 0.2; done; event agent.assistant_message '{\"text\":\"The end is here.\"}'; \
                 sleep 600";
    let id = daemon.create(agent("long", waits)).await;
    daemon.logged(&id, 1).await;
    let rows = format!(
        "INSERT INTO events (id, owner, sandbox_id, attempt, agent_id, zone_id, event_type, source, event_data, evictable, bytes, created_us) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {EVENTS}) \
         SELECT 'evt_long' || i, 'root', '{id}', 0, NULL, NULL, 'agent.assistant_message', 'agent', \
         json_object('text', 'number ' || i || '.'), 1, 50, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + i FROM n"
    );
    sluice.sql(&rows).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let found = daemon.get(&format!("/api/v1/sandboxes/{id}/events?q=number%207.&limit=5")).await.expect(200).json();
    let seq = found["events"][0]["seq"].as_u64().expect("one event");
    assert_eq!(found["total_count"], 1, "{found}");

    // A link to an event that is far from the end.
    browser.open(&format!("http://{}/sandboxes/{id}#seq-{seq}", daemon.address())).await;
    browser.becomes(&is_seen(seq)).await;
    browser.becomes(&format!("return document.activeElement.id === 'seq-{seq}'")).await;
    // Rows get their height while they come into sight, so a pointer on its way to the button can miss it.
    browser.script("[...document.querySelectorAll('.edge button')].find(one => one.textContent === 'Show newer events').click()").await;
    browser.becomes(&has(&format!("number {EVENTS}."))).await;

    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes(&has(&format!("number {EVENTS}."))).await;
    assert_eq!(browser.script(&is_seen(seq)).await, false);
    browser.fill("Search the events", "number 7.\u{e007}").await;
    browser.shows("1 found").await;
    browser.press(&seq.to_string()).await;
    browser.becomes(&is_seen(seq)).await;
    browser.press("Close").await;

    choose(&browser, "Raw events").await;
    let last = browser.script("return document.querySelector('[role=tabpanel] a').hash.slice(5)").await;
    let last: u64 = last.as_str().and_then(|seq| seq.parse().ok()).expect("a position");
    browser.click("[role=tabpanel] details summary").await;
    browser
        .becomes(&format!("return document.querySelector('[role=tabpanel]').innerText.includes('\"seq\": {last}')"))
        .await;
    browser.press("In the transcript").await;
    browser.becomes(&is_seen(last)).await;
    browser.becomes(&format!("return location.hash === '#seq-{last}'")).await;
}

#[tokio::test]
async fn a_reader_above_the_end_stays_there() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits = "i=0; while [ $i -lt 15 ]; do i=$((i + 1)); event agent.assistant_message \"{\\\"text\\\":\\\"line $i.\\\"}\"; sleep 0.2; done; \
                 while [ ! -e go ]; do sleep 0.2; done; event agent.assistant_message '{\"text\":\"The end is here.\"}'; sleep 600";
    let id = daemon.create(agent("growing", waits)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes(&has("line 15.")).await;
    let at_end = "const box = document.querySelector('[role=log]'); \
                  return box.scrollHeight > box.clientHeight + 200 && box.scrollHeight - box.scrollTop - box.clientHeight < 48";
    browser.becomes(at_end).await;
    // Rows that grow while the page handles a scroll to the end do not stop the page from following.
    let grows = "const box = document.querySelector('[role=log]'), rows = box.firstElementChild; box.scrollTop -= 10; \
                 return new Promise(done => setTimeout(() => { box.scrollTop = box.scrollHeight; \
                 rows.style.minHeight = `${rows.offsetHeight + 300}px`; setTimeout(() => done(true), 100); }, 100))";
    assert_eq!(browser.script(grows).await, true);
    browser.becomes(at_end).await;

    // The page hears of a scroll with the next frame. Until then it may still follow the end.
    let stays = "const box = document.querySelector('[role=log]'); box.scrollTop = 0; \
                 return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(box.scrollTop === 0))))";
    browser.becomes(stays).await;
    let go = format!("/api/v1/sandboxes/{id}/files/workspace/go");
    daemon.request("PUT", &go, &json!({})).await.expect(200);
    browser.becomes(&has("The end is here.")).await;
    browser
        .becomes("return [...document.querySelectorAll('button')].some(one => /^\\d+ new$/.test(one.textContent))")
        .await;
    assert_eq!(browser.script("return document.querySelector('[role=log]').scrollTop").await, 0, "the reader stays");
    let press = "const one = [...document.querySelectorAll('button')].find(one => /^\\d+ new$/.test(one.textContent)); \
                 one?.click(); return one !== undefined";
    browser.becomes(press).await;
    browser.becomes(at_end).await;
    browser
        .becomes("return ![...document.querySelectorAll('button')].some(one => /^\\d+ new$/.test(one.textContent))")
        .await;
}
