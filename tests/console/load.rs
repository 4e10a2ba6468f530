//! Long runs, and many tabs. `SLUICE_CONSOLE_EVENTS` and `SLUICE_CONSOLE_TABS` set the number of events and of tabs.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, log_in};

/// Bytes that the scripts of a page hold at most, whatever the length of its run.
const HEAP_MAX: u64 = 300 << 20;
/// Rows that a page has at most.
const ROWS_MAX: u64 = 1000;
/// Longest task of a page in milliseconds, checked only if `SLUICE_CONSOLE_EVENTS` is set.
const TASK_MAX: f64 = 100.0;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn a_long_run_stays_small_in_a_page() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("long", "sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    let count = number("SLUICE_CONSOLE_EVENTS", 5000);
    let text = "A line of an agent that works for a long time. ".repeat(8);
    let rows = format!(
        "INSERT INTO events (id, owner, sandbox_id, attempt, agent_id, zone_id, event_type, source, event_data, evictable, bytes, created_us) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         SELECT 'evt_long' || i, 'root', '{id}', 0, NULL, NULL, 'agent.assistant_message', 'agent', \
         json_object('text', 'number ' || i || ' {text}'), 1, 500, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + i FROM n"
    );
    sluice.sql(&rows).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.shows(&format!("number {count} ")).await;
    browser.becomes("return document.querySelector('.edge button') !== null").await;

    let watch = "window.longest = 0; new PerformanceObserver(list => { for (const one of list.getEntries()) \
                 longest = Math.max(longest, one.duration) }).observe({type: 'longtask'}); \
                 document.querySelector('.scroll').scrollTop = 0; return true";
    browser.script(watch).await;
    let older = "const button = [...document.querySelectorAll('.edge button')].find(one => one.textContent.includes('older')); \
                 if (button && !button.disabled) { button.click(); window.turns = (window.turns ?? 0) + 1; } return (window.turns ?? 0) >= 6";
    browser.becomes(older).await;
    let settled = "return [...document.querySelectorAll('.edge button')].every(one => !one.disabled)";
    browser.becomes(settled).await;
    let rows = browser.script("return document.querySelectorAll('.transcript article').length").await;
    assert!(rows.as_u64().is_some_and(|rows| rows <= ROWS_MAX), "{rows} rows");
    let heap = browser.heap().await;
    assert!(heap > 0 && heap < HEAP_MAX, "{heap} bytes");
    let longest = browser.script("return window.longest").await.as_f64().expect("a time");
    if std::env::var_os("SLUICE_CONSOLE_EVENTS").is_some() {
        assert!(longest <= TASK_MAX, "{count} events, {heap} bytes of scripts: a task of {longest} ms");
    }
}

#[tokio::test]
async fn many_tabs_follow_one_daemon() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits =
        "while [ ! -e go ]; do sleep 0.2; done; event agent.assistant_message '{\"text\":\"The end is here.\"}'";
    let id = daemon.create(agent("watched", waits)).await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    let mut tabs = Vec::new();
    for _ in 0..number("SLUICE_CONSOLE_TABS", 6) {
        tabs.push(browser.new_tab().await);
        browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
        browser.shows("I look at the parser first").await;
    }
    let go = format!("/api/v1/sandboxes/{id}/files/workspace/go");
    daemon.request("PUT", &go, &json!({})).await.expect(200);
    for tab in &tabs {
        browser.tab(tab).await;
        browser.shows("The end is here.").await;
        browser.becomes("return document.querySelector('.live')?.textContent === 'Ended'").await;
    }
}
