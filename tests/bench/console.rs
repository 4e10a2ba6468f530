//! The console in headless Chromium: bytes of its pages, time to their first rows, and a long run. The browser measures.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};
use sluice_testkit::browser::Browser;

use crate::Outcome;
use crate::daemon::client::ask;
use crate::daemon::site::DaemonSite;
use crate::options::Options;
use crate::startup::median;

/// The name in `--only`.
pub(crate) const NAME: &str = "console";

/// Adds events of an agent to a run.
const INSERT: &str = "
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60)
text = 'A line of an agent that works for a long time. ' * 8
owner = database.execute('SELECT owner FROM sandboxes WHERE run_id = ?', (sys.argv[2],)).fetchone()[0]
database.executemany(
    '''INSERT INTO events (id, owner, sandbox_id, attempt, event_type, source, event_data, evictable, bytes, created_us)
       VALUES (?, ?, ?, 0, 'agent.assistant_message', 'agent', json_object('text', ?), 1, 500, ?)''',
    ((f'evt_bench{n}', owner, sys.argv[2], f'number {n} {text}', 1700000000000000 + n * 1000) for n in range(1, int(sys.argv[3]) + 1)))
database.commit()
";

/// Notes the time at which the script of the page has drawn the first row of a list or of a transcript, and the longest
/// task.
const WATCH: &str = "
window.longest = 0;
new PerformanceObserver(list => list.getEntries().forEach(one => { longest = Math.max(longest, one.duration); }))
    .observe({type: 'longtask', buffered: true});
new MutationObserver((_, observer) => {
    if (!document.querySelector('.page table.runs, .transcript article')) return;
    window.drawn = performance.now();
    observer.disconnect();
}).observe(document, {childList: true, subtree: true});
";
/// Bytes of the page, which is not compressed, and of its style and modules, as they were sent and without compression.
const BYTES: &str = "
const parts = performance.getEntriesByType('resource').filter(one => new URL(one.name).pathname.startsWith('/assets/'));
const sum = name => parts.reduce((total, part) => total + part[name], 0);
const [page] = performance.getEntriesByType('navigation');
return {html: page.encodedBodySize, files: parts.length, sent: sum('encodedBodySize'), whole: sum('decodedBodySize')}";
const TIMES: &str = "
const paint = performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint');
return {paint: paint?.startTime ?? null, drawn: window.drawn ?? null}";

/// The figures of the console.
#[derive(Debug, Serialize)]
pub(crate) struct ConsoleFigures {
    pub(crate) pages: Vec<PageFigures>,
    pub(crate) long_run: LongRun,
}

/// A page that is opened by a browser without a cache.
#[derive(Debug, Serialize)]
pub(crate) struct PageFigures {
    pub(crate) page: &'static str,
    /// Bytes of the page as the daemon has rendered it. It grows with the texts in its rows.
    pub(crate) html: u64,
    /// Requests for its style and its modules.
    pub(crate) files: u64,
    /// Bytes of their bodies as they were sent.
    pub(crate) sent: u64,
    /// Bytes of their bodies without compression.
    pub(crate) whole: u64,
    /// From the request to the first text, in milliseconds, round by round.
    pub(crate) paint_ms: Vec<f64>,
    /// From the request to the first rows that the script has drawn, in milliseconds, round by round.
    pub(crate) drawn_ms: Vec<f64>,
}

/// A page of a run with many events.
#[derive(Debug, Serialize)]
pub(crate) struct LongRun {
    pub(crate) events: usize,
    /// Bytes that the scripts of the page hold after a collection: at the end of the transcript, and after pages of older events.
    pub(crate) heap_at_end: u64,
    pub(crate) heap_after_scroll: u64,
    /// Rows in the page after the pages of older events.
    pub(crate) rows: u64,
    /// Longest task of the page while it opens, and while older events are read, in milliseconds: frames wait for it.
    pub(crate) opening_task_ms: f64,
    pub(crate) reading_task_ms: f64,
}

/// Measures the pages of one daemon.
pub(crate) async fn measure(scratch: &Path, upstream: u16, options: &Options) -> Outcome<ConsoleFigures> {
    let site = DaemonSite::create(scratch, NAME, upstream)?;
    let _daemon = site.start().await?;
    let created = site.create_run(0, &json!({ "argv": ["true"], "model": "bench-chat" })).await?;
    let id = created["sandbox_id"].as_str().ok_or("a run without an id")?.to_owned();
    site.ended(&id).await?;
    let events = if options.quick { 10_000 } else { 100_000 };
    eprintln!("{NAME}: a run of {events} events");
    let added =
        Command::new("python3").args(["-c", INSERT]).arg(site.database()).args([&*id, &events.to_string()]).output()?;
    if !added.status.success() {
        return Err(format!("no events were added: {}", String::from_utf8_lossy(&added.stderr)).into());
    }
    let browser = Browser::start().await;
    let origin = log_in(&browser, &site).await?;
    let rounds = if options.quick { 3 } else { 15 };
    browser.without_cache().await;
    browser.before_each_page(WATCH).await;
    let run = format!("{origin}/sandboxes/{id}");
    let mut pages = Vec::new();
    for (page, url) in [("the list", format!("{origin}/sandboxes")), ("a run", run.clone())] {
        eprintln!("{NAME}: {page}");
        pages.push(measure_page(&browser, page, &url, rounds).await?);
    }
    let long_run = measure_long_run(&browser, &run, events).await?;
    let faults = browser.faults().await;
    if !faults.is_empty() {
        return Err(format!("the browser has had faults: {faults:?}").into());
    }
    Ok(ConsoleFigures { pages, long_run })
}

/// Logs the browser in as an admin, and returns the origin of the pages.
async fn log_in(browser: &Browser, site: &DaemonSite) -> Outcome<String> {
    let body = json!({ "admin": true });
    let made: Value =
        serde_json::from_str(&ask(&site.admin(), ("POST", "/api/v1/login-codes"), None, Some(&body)).await?)?;
    let origin = made["origins"][0].as_str().ok_or("the daemon names no origin")?.to_owned();
    browser.open(&format!("{origin}/login")).await;
    browser.write("input[name=code]", made["code"].as_str().ok_or("no code")?).await;
    browser.click("button").await;
    browser.shows("(admin)").await;
    browser.click("button").await;
    browser.shows("Sandboxes").await;
    Ok(origin)
}

async fn measure_page(browser: &Browser, page: &'static str, url: &str, rounds: usize) -> Outcome<PageFigures> {
    let (mut paint_ms, mut drawn_ms, mut bytes) = (Vec::new(), Vec::new(), Value::Null);
    for _ in 0..rounds {
        // Another document: the same address with another fragment would stay in this one.
        browser.open("about:blank").await;
        browser.open(url).await;
        browser.becomes("return window.drawn > 0 && performance.getEntriesByType('paint').length > 0").await;
        let times = browser.script(TIMES).await;
        paint_ms.extend(times["paint"].as_f64());
        drawn_ms.extend(times["drawn"].as_f64());
        bytes = browser.script(BYTES).await;
    }
    let number = |name: &str| bytes[name].as_u64().filter(|number| *number > 0).ok_or(format!("no {name}: {bytes}"));
    Ok(PageFigures {
        page,
        html: number("html")?,
        files: number("files")?,
        sent: number("sent")?,
        whole: number("whole")?,
        paint_ms,
        drawn_ms,
    })
}

/// Opens a long run at its end, and reads six pages of older events.
async fn measure_long_run(browser: &Browser, url: &str, events: usize) -> Outcome<LongRun> {
    browser.open("about:blank").await;
    browser.open(url).await;
    browser.becomes("return document.querySelector('.edge button') !== null").await;
    let heap_at_end = browser.heap().await;
    let opening = browser.script("const before = window.longest; window.longest = 0; return before").await;
    browser.script("document.querySelector('.scroll').scrollTop = 0").await;
    let older = "const button = [...document.querySelectorAll('.edge button')].find(one => one.textContent.includes('older')); \
                 if (button && !button.disabled) { button.click(); window.turns = (window.turns ?? 0) + 1; } return (window.turns ?? 0) >= 6";
    browser.becomes(older).await;
    browser.becomes("return [...document.querySelectorAll('.edge button')].every(one => !one.disabled)").await;
    let rows = browser.script("return document.querySelectorAll('.transcript article').length").await;
    let longest = browser.script("return window.longest").await;
    Ok(LongRun {
        events,
        heap_at_end,
        heap_after_scroll: browser.heap().await,
        rows: rows.as_u64().ok_or("no rows")?,
        opening_task_ms: opening.as_f64().ok_or("no times of tasks")?,
        reading_task_ms: longest.as_f64().ok_or("no times of tasks")?,
    })
}

impl ConsoleFigures {
    /// Writes the section of the report.
    pub(crate) fn write(&self, out: &mut String) -> Outcome<()> {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let times = |ms: &[f64]| {
            let worst = ms.iter().copied().fold(0.0, f64::max);
            format!("{:.0}, {worst:.0}", median(ms).unwrap_or_default())
        };
        writeln!(out, "\n## The console\n\n| | |\n|---|---:|")?;
        for PageFigures { page, html, files, sent, whole, paint_ms, drawn_ms } in &self.pages {
            let kb = |bytes: &u64| *bytes as f64 / 1e3;
            let (html, sent, whole) = (kb(html), kb(sent), kb(whole));
            writeln!(out, "| {page}: page, kB | {html:.1} |")?;
            writeln!(out, "| {page}: style and modules: files; kB sent; kB | {files}; {sent:.1}; {whole:.1} |")?;
            writeln!(out, "| {page}: first text, ms: median, worst | {} |", times(paint_ms))?;
            writeln!(out, "| {page}: first rows of the script, ms: median, worst | {} |", times(drawn_ms))?;
        }
        let LongRun { events, heap_at_end, heap_after_scroll, rows, opening_task_ms, reading_task_ms } = &self.long_run;
        writeln!(out, "| a run of {events} events: memory of scripts, MB | {:.1} |", mb(*heap_at_end))?;
        writeln!(
            out,
            "| after six pages of older events: memory of scripts, MB; rows | {:.1}; {rows} |",
            mb(*heap_after_scroll)
        )?;
        writeln!(
            out,
            "| longest task, ms (0: none took 50 ms): while it opens, while it is read | {opening_task_ms:.0}, {reading_task_ms:.0} |"
        )?;
        Ok(())
    }
}
