//! A page that stays open: its stream while the tab is hidden, and its layout while a run goes on.

use serde_json::json;
use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, Sluice, Upstream, poll};

use super::{Browser, agent, log_in};

/// Largest sum of layout shifts that readers do not notice.
const SHIFT_MAX: f64 = 0.05;

/// Sums layout shifts without an action of the reader, and keeps what moved.
const WATCH: &str = "window.shift = 0; window.shifted = []; new PerformanceObserver(list => { \
    for (const one of list.getEntries()) { if (one.hadRecentInput) continue; shift += one.value; \
    shifted.push(one.value.toFixed(4) + ': ' + one.sources.map(({ node, previousRect: from, currentRect: to }) => \
    `${node?.className || node?.nodeName} ${from.x},${from.y} to ${to.x},${to.y}`).join('; ')); } \
    }).observe({ type: 'layout-shift', buffered: true })";

/// Waits until this many streams are open.
async fn has_streams(daemon: &Daemon<'_>, count: u64) {
    let mut status = serde_json::Value::Null;
    let reached = poll(PATIENCE, async || {
        status = daemon.get("/api/v1/monitoring/status").await.expect(200).json();
        status["events"]["streams"] == count
    });
    assert!(reached.await, "{count} streams: {status}");
}

#[tokio::test]
async fn a_hidden_tab_closes_its_stream() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits = "while [ ! -e go ]; do sleep 0.2; done; event agent.assistant_message '{\"text\":\"The end is here.\"}'; sleep 600";
    let id = daemon.create(agent("watched", waits)).await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let first = browser.present_tab().await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes("return document.querySelector('[role=status].live')?.textContent === 'Live'").await;
    has_streams(&daemon, 1).await;

    browser.new_tab().await;
    browser.tab_in_front().await;
    has_streams(&daemon, 0).await;
    let go = format!("/api/v1/sandboxes/{id}/files/workspace/go");
    daemon.request("PUT", &go, &json!({})).await.expect(200);
    browser.tab(&first).await;
    browser.tab_in_front().await;
    browser.shows("The end is here.").await;
    has_streams(&daemon, 1).await;
    let texts = "return [...document.querySelectorAll('.transcript article')].filter(row => row.innerText.includes('The end is here.')).length";
    assert_eq!(browser.script(texts).await, 1);
}

#[tokio::test]
async fn no_layout_jumps_while_a_run_goes_on() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.before_each_page(WATCH).await;
    let ticks = "while [ ! -e go ]; do sleep 0.1; done; i=0; while [ $i -lt 20 ]; do i=$((i + 1)); event agent.assistant_message \"{\\\"text\\\":\\\"line $i.\\\"}\"; \
                 echo \"out $i\"; call; sleep 0.1; done; event agent.assistant_message '{\"text\":\"It is over.\"}'";
    let done = daemon.create(agent("before", "")).await;
    daemon.reaches(&done, "COMPLETED").await;

    let mut moved = Vec::new();
    for page in ["the list", "a run"] {
        let id = daemon.create(agent("ticking", ticks)).await;
        daemon.reaches(&id, "RUNNING").await;
        let path = if page == "a run" { format!("/sandboxes/{id}") } else { "/sandboxes".to_owned() };
        browser.open(&format!("http://{}{path}", daemon.address())).await;
        let go = format!("/api/v1/sandboxes/{id}/files/workspace/go");
        daemon.request("PUT", &go, &json!({})).await.expect(200);
        let ended = if page == "a run" {
            "return document.querySelector('.live')?.textContent === 'Ended'"
        } else {
            "return document.querySelector('tbody .badge')?.textContent === 'Completed'"
        };
        browser.becomes(ended).await;
        let shift = browser.script("return window.shift").await.as_f64().expect("a number");
        let shifted = browser.script("return window.shifted").await;
        if shift >= SHIFT_MAX {
            moved.push(format!("{page}: {shift}: {shifted:#}"));
        }
    }
    assert!(moved.is_empty(), "{}", moved.join("\n"));
}
