//! The tabs of a run's page, with its title and icon in the browser.

use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, choose, log_in};

#[tokio::test]
async fn each_tab_shows_its_part_of_a_run() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits = "while [ ! -e go ]; do sleep 0.2; done";
    let id = daemon.create(agent("tabbed", waits)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.shows("I look at the parser first").await;

    choose(&browser, "Audit").await;
    browser.shows("Valid so far").await;
    let go = format!("/api/v1/sandboxes/{id}/files/workspace/go");
    daemon.request("PUT", &go, &serde_json::json!({})).await.expect(200);
    browser.becomes("return document.title.startsWith('Completed')").await;
    browser.becomes("return document.querySelector('link[rel=icon]').href.endsWith('icon-done.svg')").await;
    browser.shows("Complete Each call has its record").await;
    browser.shows("by the key").await;
    choose(&browser, "Diff").await;
    browser.shows("/workspace/parser.py").await;
    browser.click("[role=tabpanel] details:last-of-type summary").await;
    browser.shows("+def parse(text):").await;
    choose(&browser, "Cost").await;
    browser.shows("Cost so far").await;
    browser.becomes("return document.querySelector('.uplot canvas') !== null").await;
    choose(&browser, "Calls").await;
    browser.becomes("return document.querySelectorAll('svg.times').length === 2").await;
    choose(&browser, "Outline").await;
    browser.becomes("return document.querySelectorAll('.outline a[href^=\"#seq-\"]').length > 3").await;
    choose(&browser, "Details").await;
    browser.click("[role=tabpanel] details:last-of-type summary").await;
    browser.shows(&format!("sluice events -f {id}")).await;
}

#[tokio::test]
async fn an_altered_audit_file_is_named() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("altered", "")).await;
    daemon.reaches(&id, "COMPLETED").await;
    let path = sluice.audit_path(&id);
    let text = std::fs::read_to_string(&path).expect("we are root");
    std::fs::write(&path, text.replacen("\"model\":\"m\"", "\"model\":\"n\"", 1)).expect("we are root");
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    choose(&browser, "Audit").await;
    browser.shows("Altered").await;
    browser.shows("Line ").await;
}
