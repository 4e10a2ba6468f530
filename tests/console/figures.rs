//! What the pages count: costs, rows that stay, and what waits for a person.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, log_in};

/// Number of rows of the list.
const ROWS: &str = "document.querySelectorAll('table.runs tbody tr').length";

/// Adds `count` ended runs older than the run `id`, each with more calls than a page reads.
async fn add_older(sluice: &Sluice, id: &str, count: u32) {
    let rows = format!(
        "INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, name, account, state, desired_state, outcome, max_retries,
             retry_on, request, priority, labels, hold_nano, created_us, ended_us, run_time_us, calls, unknown_costs, cost_nano)
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         SELECT 'r_old' || i, owner, agent_id || i, 1, 'old-' || i, account, state, desired_state, outcome, max_retries, retry_on,
             request, priority, labels, hold_nano, created_us - i, ended_us, run_time_us, 7000, 3, 1250000000
         FROM sandboxes, n WHERE run_id = '{id}'"
    );
    sluice.sql(&rows).await;
}

#[tokio::test]
async fn each_row_has_its_cost_and_stays() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("newest", "")).await;
    daemon.reaches(&id, "COMPLETED").await;
    assert_eq!(daemon.run(&id).await["calls"], 2);
    add_older(&sluice, &id, 139).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.becomes(&format!("return {ROWS} === 100 && document.querySelector('.live') !== null")).await;
    let last = "return document.querySelector('table.runs tbody tr:last-child')?.innerText.replace(/\\s+/g, ' ')";
    let text = browser.script(last).await.to_string();
    assert!(text.contains("old-99") && text.contains("$1.25") && text.contains("3 calls of unknown cost"), "{text}");
    browser
        .script("[...document.querySelectorAll('button')].find(one => one.textContent.includes('older')).click()")
        .await;
    browser.becomes(&format!("return {ROWS} === 140")).await;
    let fresh = daemon.create(agent("fresh", "")).await;
    browser.shows("fresh").await;
    daemon.reaches(&fresh, "COMPLETED").await;
    browser.becomes("return document.querySelector('table.runs tbody tr .badge')?.textContent === 'Completed'").await;
    browser.becomes(&format!("return {ROWS} >= 140")).await;
    browser.shows("old-139").await;

    browser.open(&format!("http://{}/sandboxes/r_old50", daemon.address())).await;
    browser
        .becomes("return /Cost\\s+\\$1\\.25\\s+3 of unknown cost/.test(document.querySelector('.facts')?.innerText)")
        .await;
    browser.becomes("return /Calls\\s+7,000/.test(document.querySelector('.facts')?.innerText)").await;
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn every_page_counts_what_waits_for_a_person() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let ask = r#"curl -sf --json '{"question":"Which?","options":["One","Two"]}' "http://localhost:8080/api/v1/sandboxes/$run/questions"; sleep 600"#;
    daemon.create(agent("asking", ask)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.becomes("return document.querySelector('table.runs .badge')?.textContent === 'Awaiting answer'").await;

    for path in ["sandboxes", "spending", "chat", "agents", "approvals"] {
        browser.open(&format!("http://{}/{path}", daemon.address())).await;
        browser.becomes("return document.querySelector('.top a[href=\"/approvals\"] #waiting:not([hidden])')?.textContent === '1'").await;
        browser.becomes("return document.title.startsWith('(1) ')").await;
    }
    browser.becomes("return document.querySelector('.question button:enabled') !== null").await;
    browser.click(".question button").await;
    browser.shows("Nothing waits for you").await;
    browser.becomes("return document.getElementById('waiting').hidden").await;
    browser.becomes("return document.title === 'Approvals and questions - Sluice'").await;
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_list_finds_labels_and_cancels_runs() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let mut labelled = agent("labelled", "sleep 600");
    labelled["labels"] = json!({"team": "core"});
    let id = daemon.create(labelled).await;
    let other = daemon.create(agent("other", "")).await;
    daemon.reaches(&other, "COMPLETED").await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.write("#search", "team=CORE").await;
    let names = "return [...document.querySelectorAll('table.runs .main-cell a')].map(one => one.textContent).join() === 'labelled'";
    browser.becomes(names).await;
    browser.click("table.runs button.danger").await;
    browser.agree().await;
    browser.becomes("return document.querySelector('table.runs .badge')?.textContent === 'Cancelled'").await;
    browser.becomes("return document.querySelector('table.runs button.danger') === null").await;
    assert_eq!(daemon.run(&id).await["outcome"], "cancelled");
    assert_eq!(browser.faults().await, Vec::<String>::new());
}
