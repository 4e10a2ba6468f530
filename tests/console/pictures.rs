//! Pictures of each page: light, dark and narrow. `SLUICE_PICTURES` names a directory that keeps them.

use std::path::PathBuf;

use sluice_testkit::{Sluice, TempDir, Upstream};

use super::{Browser, choose, log_in_as_admin, story};

/// Name, size in pixels and colours of each picture.
const LOOKS: [(&str, (u32, u32), &str); 3] =
    [("light", (1200, 840), "light"), ("dark", (1200, 840), "dark"), ("narrow", (360, 900), "light")];

/// A page: its name, its path, a text that it shows, and a tab to choose.
struct Shown<'a> {
    name: &'static str,
    path: &'a str,
    text: &'static str,
    tab: &'static str,
}

fn pages<'a>(asking: &'a str, branch: &'a str) -> Vec<Shown<'a>> {
    let page = |name, path, text| Shown { name, path, text, tab: "" };
    let tab = |name, path, text, tab| Shown { name, path, text, tab };
    vec![
        page("sandboxes", "/sandboxes", "explain-parser"),
        page("sandbox", asking, "Should I update"),
        tab("cost", asking, "Should I update", "Cost"),
        tab("audit", asking, "Should I update", "Audit"),
        tab("diff", asking, "Should I update", "Diff"),
        tab("calls", asking, "Should I update", "Calls"),
        tab("git", branch, "docs/ABC-12-describe-the-build", "Git"),
        page("new", "/sandboxes/new", "The same in a terminal"),
        page("approvals", "/approvals", "Should I update"),
        page("agents", "/agents", "reviewer"),
        page("spending", "/spending", "$20.00"),
        page("host", "/host", "Disk of the state"),
        page("chat", "/chat", "Enter sends"),
    ]
}

/// Does on a page what its picture shows.
async fn act(browser: &Browser, page: &Shown<'_>) {
    if !page.tab.is_empty() {
        choose(browser, page.tab).await;
    }
    match page.name {
        "cost" => browser.becomes("return document.querySelectorAll('.uplot canvas').length === 2").await,
        "audit" => browser.shows("Valid so far").await,
        "diff" => {
            browser.becomes("return document.querySelector('[role=tabpanel] details') !== null").await;
            browser
                .script("document.querySelectorAll('[role=tabpanel] details').forEach(one => { one.open = true; })")
                .await;
            browser.shows("return text.split()").await;
        }
        "calls" => {
            browser.becomes("return document.querySelectorAll('svg.times').length === 4").await;
            let layout = "[...document.querySelectorAll('[role=tabpanel] button')].find(one => one.textContent.startsWith('From')).click()";
            browser.script(layout).await;
        }
        "git" => browser.shows("Commits: 2").await,
        "new" => {
            browser.write("#task", "Fix the failing test in parser.py").await;
            browser.write("#name", "fix-parser").await;
            browser.shows("sluice run -d --name fix-parser").await;
        }
        "chat" => {
            // The conversation of the previous picture is still there.
            browser.script("[...document.querySelectorAll('button')].find(one => one.textContent === 'New conversation')?.click()").await;
            browser.write("#chat-message", "What does parser.py do?\u{e007}").await;
            browser.becomes("return document.querySelector('.turns .from-agent') !== null").await;
            browser.becomes("return document.querySelector('.message-box button:not(.primary)') === null").await;
        }
        "host" => browser.shows("Passed").await,
        _ => {}
    }
}

/// Waits until nothing moves, and takes the focus away.
async fn settle(browser: &Browser) {
    browser.becomes("return document.querySelector('.ask button:disabled') === null").await;
    browser.script("document.activeElement?.blur()").await;
    browser.becomes("return document.getAnimations().every(one => one.playState === 'finished')").await;
}

/// Sets the height of a narrow page so that it ends below a whole row of the transcript.
async fn cut_at_row(browser: &Browser) {
    browser.script("document.querySelector('.scroll').scrollTop = 0").await;
    let bottom = "return Math.ceil(Math.max(...[...document.querySelectorAll('.transcript article')]\
                  .map(row => row.getBoundingClientRect().bottom).filter(bottom => bottom <= innerHeight)))";
    let height = browser.script(bottom).await.as_u64().expect("a row is in sight");
    browser.looks((360, height.try_into().expect("a height")), "light").await;
}

#[tokio::test]
async fn every_page_has_its_pictures() {
    let upstream = Upstream::provider(
        "parser.py splits a text at its spaces. It dropped the last word until today, which was a fault.",
    )
    .edit(|script| script.without_header("x-litellm-response-cost").header("x-litellm-response-cost", "0.0214"))
    .start()
    .await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &story::settings(&sluice)]).await;
    let scratch = TempDir::new();
    let kept = std::env::var_os("SLUICE_PICTURES").map(PathBuf::from);
    let directory = kept.as_deref().unwrap_or_else(|| scratch.path());
    let story = story::play(&sluice, &daemon).await;
    let browser = Browser::start().await;
    log_in_as_admin(&browser, &daemon).await;

    let (asking, branch) = (format!("/sandboxes/{}", story.asking), format!("/sandboxes/{}", story.branch));
    for page in pages(&asking, &branch) {
        for (look, size, colours) in LOOKS {
            // The transcript of a run needs more height than other pages.
            let (width, height) = size;
            let height = if page.name == "sandbox" && look != "narrow" { height + 260 } else { height };
            browser.looks((width, height), colours).await;
            browser.open(&format!("http://{}{}", daemon.address(), page.path)).await;
            browser.shows(page.text).await;
            if !["new", "chat", "git"].contains(&page.name) {
                browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;
            }
            browser.becomes("return document.getElementById('waiting').textContent === '3'").await;
            act(&browser, &page).await;
            settle(&browser).await;
            let wide = browser.script("return document.documentElement.scrollWidth > innerWidth").await;
            assert_eq!(wide, false, "{}, {look}: it is wider than the screen", page.name);
            if (page.name, look) == ("sandbox", "narrow") {
                cut_at_row(&browser).await;
            }
            browser.picture(&directory.join(format!("{}-{look}.png", page.name))).await;
        }
    }
    assert_eq!(browser.faults().await, Vec::<String>::new());
}
