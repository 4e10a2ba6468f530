//! Pictures of each page: light, dark and narrow. `SLUICE_PICTURES` names a directory that keeps them.

use std::path::PathBuf;

use serde_json::json;
use sluice_testkit::{Sluice, TempDir, Upstream};

use super::{Browser, agent, choose, configured, log_in_as_admin};

/// Name, size and colours.
const LOOKS: [(&str, (u32, u32), &str); 3] =
    [("light", (1200, 840), "light"), ("dark", (1200, 840), "dark"), ("narrow", (360, 900), "light")];

#[tokio::test]
async fn every_page_has_its_pictures() {
    let upstream =
        Upstream::provider("parser.py splits a text at its spaces, and drops the last word: that is the fault.")
            .edit(|script| script.without_header("x-litellm-response-cost").header("x-litellm-response-cost", "0.0214"))
            .start()
            .await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let scratch = TempDir::new();
    let kept = std::env::var_os("SLUICE_PICTURES").map(PathBuf::from);
    let directory = kept.as_deref().unwrap_or_else(|| scratch.path());
    let done = daemon.create(agent("explain-parser", "")).await;
    daemon.reaches(&done, "COMPLETED").await;
    let ask = r#"curl -sf --json '{"question":"Should I update the documentation too?","options":["Yes, update it","No"]}' "http://localhost:8080/api/v1/sandboxes/$run/questions"; sleep 600"#;
    let mut asking = agent("fix-parser", ask);
    asking["max_cost_usd"] = json!("0.25");
    let id = daemon.create(asking).await;
    daemon
        .request("POST", "/api/v1/agents", &json!({"agent_id": "reviewer", "name": "Reviews changes"}))
        .await
        .expect(201);
    daemon.request("PUT", "/api/v1/budgets/default", &json!({"kind": "set", "usd": "20"})).await.expect(200);
    let browser = Browser::start().await;
    log_in_as_admin(&browser, &daemon).await;

    let run = format!("/sandboxes/{id}");
    for (page, path, text, tab) in [
        ("sandboxes", "/sandboxes", "explain-parser", ""),
        ("sandbox", &run[..], "Should I update", ""),
        ("cost", &run, "Should I update", "Cost"),
        ("audit", &run, "Should I update", "Audit"),
        ("new", "/sandboxes/new", "The same in a terminal", ""),
        ("approvals", "/approvals", "Should I update", ""),
        ("agents", "/agents", "reviewer", ""),
        ("spending", "/spending", "$20.00", ""),
        ("host", "/host", "Disk of the state", ""),
        ("chat", "/chat", "Enter sends", ""),
    ] {
        for (look, size, colours) in LOOKS {
            browser.looks(size, colours).await;
            browser.open(&format!("http://{}{path}", daemon.address())).await;
            browser.shows(text).await;
            if !["new", "chat"].contains(&page) {
                browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;
            }
            browser.becomes("return document.querySelector('.ask button:disabled') === null").await;
            match tab {
                "" => {}
                "Cost" => {
                    choose(&browser, tab).await;
                    browser.becomes("return document.querySelector('.uplot canvas') !== null").await;
                }
                _ => {
                    choose(&browser, tab).await;
                    browser.shows("Valid so far").await;
                }
            }
            match page {
                "new" => {
                    browser.write("#task", "Fix the failing test in parser.py").await;
                    browser.write("#name", "fix-parser").await;
                    browser.shows("sluice run -d").await;
                }
                "chat" => {
                    browser.write("#chat-message", "What does parser.py do?\u{e007}").await;
                    browser.becomes("return document.querySelector('.turns .from-agent') !== null").await;
                }
                _ => {}
            }
            let file = directory.join(format!("{page}-{look}.png"));
            browser.picture(&file).await;
            let wide = browser.script("return document.documentElement.scrollWidth > innerWidth").await;
            assert_eq!(wide, false, "{page}, {look}: it is wider than the screen");
        }
    }
    assert_eq!(browser.faults().await, Vec::<String>::new());
}
