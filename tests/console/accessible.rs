//! Pages that each person can use: the rules of axe-core, the keyboard alone, and no motion.

use std::path::Path;

use serde_json::{Value, json};
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, choose, configured, log_in_as_admin};

const ASK: &str = r#"curl -sf --json '{"question":"Should I update the documentation too?","options":["Yes","No"]}' "http://localhost:8080/api/v1/sandboxes/$run/questions"; sleep 600"#;

/// Returns the violations of WCAG 2.2 AA that axe-core finds, each with its first place.
pub(crate) async fn violations(browser: &Browser, axe: &str) -> Vec<String> {
    // A row that the browser has not drawn has no height of its own.
    let drawn = "document.querySelectorAll('article').forEach(row => { row.style.contentVisibility = 'visible'; })";
    let script = format!(
        "{drawn}; {axe}; return axe.run(document, {{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}})\
         .then(found => found.violations.map(one => one.id + ': ' + one.nodes.map(node => node.html).slice(0, 3).join(' | ')))"
    );
    let found = browser.script(&script).await;
    found.as_array().unwrap_or_else(|| panic!("{found}")).iter().map(Value::to_string).collect()
}

/// Returns the script of axe-core.
pub(crate) fn axe() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/axe/axe.min.js");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; tests/setup/axe.sh makes it", path.display()))
}

#[tokio::test]
async fn no_page_breaks_a_rule_of_axe() {
    let axe = axe();
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    daemon.request("POST", "/api/v1/agents", &json!({"agent_id": "bot"})).await.expect(201);
    daemon.request("PUT", "/api/v1/budgets/default", &json!({"kind": "set", "usd": "20"})).await.expect(200);
    let done = daemon.create(agent("done", "")).await;
    daemon.reaches(&done, "COMPLETED").await;
    let id = daemon.create(agent("asking", ASK)).await;
    let browser = Browser::start().await;
    log_in_as_admin(&browser, &daemon).await;

    let run = format!("/sandboxes/{id}");
    let mut found = Vec::new();
    for colours in ["light", "dark"] {
        browser.looks((1360, 960), colours).await;
        for (page, text) in [
            ("/sandboxes", "done"),
            (&*run, "Should I update"),
            ("/sandboxes/new", "The same in a terminal"),
            ("/approvals", "Should I update"),
            ("/agents", "bot"),
            ("/spending", "$20.00"),
            ("/host", "Disk of the state"),
            ("/chat", "Enter sends"),
        ] {
            browser.open(&format!("http://{}{page}", daemon.address())).await;
            browser.shows(text).await;
            found.extend(violations(&browser, &axe).await.into_iter().map(|one| format!("{page} {colours}: {one}")));
        }
        for tab in ["Outline", "Diff", "Calls", "Cost", "Audit", "Files", "Details", "Raw events"] {
            browser.open(&format!("http://{}{run}", daemon.address())).await;
            browser.shows("Should I update").await;
            choose(&browser, tab).await;
            browser.becomes("return document.querySelector('[role=tabpanel]').innerText.length > 10").await;
            found.extend(violations(&browser, &axe).await.into_iter().map(|one| format!("{tab} {colours}: {one}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test]
async fn a_run_is_read_with_the_keyboard_alone() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("keys", "")).await;
    daemon.reaches(&id, "COMPLETED").await;
    let browser = Browser::start().await;
    log_in_as_admin(&browser, &daemon).await;
    browser.without_motion().await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes("return document.querySelector('[role=tab]') !== null").await;
    // The page handles keys only after its first rendering.
    let drawn = "return new Promise(done => requestAnimationFrame(() => setTimeout(() => done(true), 200)))";
    browser.becomes(drawn).await;

    browser.write("body", "gjj").await;
    browser.becomes("return document.activeElement.matches('article:nth-of-type(3)')").await;
    browser.script("document.querySelector('article:has(details.tool)').focus()").await;
    browser.write("article:focus", "e").await;
    browser.becomes("return document.activeElement.querySelector('details')?.open === true").await;
    browser.script("document.querySelector('[role=tab]').focus()").await;
    browser.write("[role=tab]:focus", "\u{e014}").await;
    browser.becomes("return document.activeElement.getAttribute('aria-selected') === 'true'").await;
    let outlined = "return getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.script(outlined).await, "solid", "the focus is seen");
    let moves = "return [...document.querySelectorAll('*')].some(one => parseFloat(getComputedStyle(one).transitionDuration) > 0)";
    assert_eq!(browser.script(moves).await, false, "nothing moves");
}
