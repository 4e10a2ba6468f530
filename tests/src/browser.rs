//! A headless Chromium, driven by its WebDriver program.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream as BlockingStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::wire::{is_complete, request, value};
use crate::wait::{self, poll};

mod wire;

/// A browser shares a loaded machine with daemons, sandboxes and other browsers.
const PATIENCE: Duration = Duration::from_secs(4 * wait::PATIENCE.as_secs());

/// Name of an element in answers of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Maximum number of starts of the WebDriver program until it has a port.
const STARTS: usize = 20;
const INSTALL: &str = "tests/setup/browser.sh installs it";

/// A browser with one tab; it ends when it is dropped. A fault of a page fails the test then, unless it was expected.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// Its profile and other files; it leaves some of them.
    _files: TempDir,
    port: u16,
    session: String,
    expected: RefCell<Vec<String>>,
}

impl Browser {
    /// Starts a browser with a fresh profile.
    pub async fn start() -> Self {
        let files = tempfile::tempdir().expect("there is room");
        let (driver, port) = driver(files.path());
        let mut browser = Self { driver, _files: files, port, session: String::new(), expected: RefCell::default() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"];
        let options = json!({ "args": arguments });
        let wanted = json!({
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": options,
            "timeouts": {"script": PATIENCE.as_millis()},
        });
        let begun = browser.send("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}})).await;
        browser.session =
            format!("/session/{}", begun["sessionId"].as_str().unwrap_or_else(|| panic!("{begun}; {INSTALL}")));
        browser
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url })).await;
    }

    /// Runs a script in the page, and returns its value.
    pub async fn script(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Returns the text of the page.
    pub async fn text(&self) -> String {
        self.script("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page has a text.
    pub async fn shows(&self, text: &str) {
        let mut seen = String::new();
        let shown = poll(PATIENCE, async || {
            seen = self.text().await;
            seen.contains(text)
        });
        assert!(shown.await, "the page does not show {text:?}: {seen}");
    }

    /// Waits until a script returns true.
    pub async fn becomes(&self, script: &str) {
        let reached = poll(PATIENCE, async || self.script(script).await == true);
        assert!(reached.await, "never true: {script}\n{}", self.text().await);
    }

    /// Writes keys into the first element of a selector.
    pub async fn write(&self, selector: &str, keys: &str) {
        let path = format!("/element/{}/value", self.element(selector).await);
        self.command("POST", &path, &json!({ "text": keys })).await;
    }

    /// Clicks on the first element of a selector.
    pub async fn click(&self, selector: &str) {
        let path = format!("/element/{}/click", self.element(selector).await);
        self.command("POST", &path, &json!({})).await;
    }

    /// Clicks on the first button, link or summary with these words or this label, once it can be pressed.
    pub async fn press(&self, words: &str) {
        let named = format!("[normalize-space()=\"{words}\" or @aria-label=\"{words}\"]");
        let path = format!("//button[not(@disabled)]{named} | //a{named} | //summary{named}");
        let wanted = json!({"using": "xpath", "value": path});
        let mut said = Value::Null;
        let is_pressed = poll(PATIENCE, async || {
            said = self.send("POST", &format!("{}/element", self.session), &wanted).await;
            let Some(element) = said[ELEMENT].as_str() else { return false };
            // A page that is drawn anew meanwhile has another element, which the next attempt finds.
            said = self.send("POST", &format!("{}/element/{element}/click", self.session), &json!({})).await;
            said["error"].is_null()
        });
        assert!(is_pressed.await, "{words:?} cannot be pressed: {said}\n{}", self.text().await);
    }

    /// Writes keys into the first field whose label has these words.
    pub async fn fill(&self, label: &str, keys: &str) {
        let path = format!("//label[contains(normalize-space(), \"{label}\")]//*[self::input or self::textarea]");
        let path = format!("/element/{}/value", self.found("xpath", &path).await);
        self.command("POST", &path, &json!({ "text": keys })).await;
    }

    /// Accepts the dialog that the page shows.
    pub async fn agree(&self) {
        self.command("POST", "/alert/accept", &json!({})).await;
    }

    /// Opens a tab and goes on in it.
    pub async fn new_tab(&self) -> String {
        let made = self.command("POST", "/window/new", &json!({"type": "tab"})).await;
        let handle = made["handle"].as_str().expect("a tab").to_owned();
        self.tab(&handle).await;
        handle
    }

    /// Returns the present tab.
    pub async fn present_tab(&self) -> String {
        self.command("GET", "/window", &Value::Null).await.as_str().expect("a tab").to_owned()
    }

    /// Puts the present tab in front of the others, which are hidden then.
    pub async fn tab_in_front(&self) {
        self.devtools("Page.bringToFront", &json!({})).await;
    }

    /// Goes on in a tab.
    pub async fn tab(&self, handle: &str) {
        self.command("POST", "/window", &json!({ "handle": handle })).await;
    }

    /// Returns the bytes of memory that the scripts of the page hold, after a collection.
    pub async fn heap(&self) -> u64 {
        self.devtools("HeapProfiler.collectGarbage", &json!({})).await;
        let measured = self.devtools("Runtime.getHeapUsage", &json!({})).await;
        measured["usedSize"].as_f64().map_or(0, |bytes| bytes as u64)
    }

    /// Reads each page without a cache, as at a first visit.
    pub async fn without_cache(&self) {
        self.devtools("Network.enable", &json!({})).await;
        self.devtools("Network.setCacheDisabled", &json!({"cacheDisabled": true})).await;
    }

    /// Runs a script in each page that is opened from now on, before the scripts of the page.
    pub async fn before_each_page(&self, script: &str) {
        self.devtools("Page.enable", &json!({})).await;
        self.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script })).await;
    }

    /// Opens each page from now on without its scripts.
    pub async fn without_scripts(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", &json!({"value": true})).await;
    }

    /// Returns the page as HTML.
    pub async fn source(&self) -> String {
        self.command("GET", "/source", &Value::Null).await.as_str().unwrap_or_default().to_owned()
    }

    /// Adds headers to each request of the pages.
    pub async fn sends_headers(&self, headers: &Value) {
        self.devtools("Network.enable", &json!({})).await;
        self.devtools("Network.setExtraHTTPHeaders", &json!({ "headers": headers })).await;
    }

    /// Replaces the HTML of the page. The policies of the page stay.
    pub async fn replace_document(&self, html: &str) {
        let tree = self.devtools("Page.getFrameTree", &json!({})).await;
        let frame = &tree["frameTree"]["frame"]["id"];
        self.devtools("Page.setDocumentContent", &json!({"frameId": frame, "html": html})).await;
    }

    /// Sets that the reader prefers reduced motion.
    pub async fn without_motion(&self) {
        let features = json!({"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]});
        self.devtools("Emulation.setEmulatedMedia", &features).await;
    }

    /// Sets the size of the page and its colours, `light` or `dark`.
    pub async fn looks(&self, (width, height): (u32, u32), colours: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
        self.devtools("Emulation.setEmulatedMedia", &features).await;
    }

    /// Writes a picture of the page.
    pub async fn picture(&self, path: &Path) {
        let script = "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.script(script).await;
        let picture = self.command("GET", "/screenshot", &Value::Null).await;
        let bytes = BASE64_STANDARD.decode(picture.as_str().expect("a picture")).expect("base64");
        std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Returns the new entries of the browser's console since the last look: errors of scripts and of policies.
    pub async fn faults(&self) -> Vec<String> {
        lines(&self.command("POST", "/se/log", &json!({"type": "browser"})).await)
    }

    /// Expects faults with this text, which the test provokes. They do not fail it.
    pub fn expects_fault(&self, text: &str) {
        self.expected.borrow_mut().push(text.to_owned());
    }

    /// Grants the pages a permission for which a person would be asked, such as `notifications` or `clipboard-read`.
    pub async fn permits(&self, name: &str) {
        let permission = json!({"descriptor": {"name": name}, "state": "granted"});
        self.command("POST", "/permissions", &permission).await;
    }

    /// Saves downloads of pages in a directory.
    pub async fn saves_in(&self, directory: &Path) {
        let behaviour = json!({"behavior": "allow", "downloadPath": directory});
        self.devtools("Browser.setDownloadBehavior", &behaviour).await;
    }

    async fn devtools(&self, command: &str, params: &Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": params})).await
    }

    async fn element(&self, selector: &str) -> String {
        self.found("css selector", selector).await
    }

    /// Waits for an element, and returns its name.
    async fn found(&self, kind: &str, selector: &str) -> String {
        let mut found = Value::Null;
        let wanted = json!({"using": kind, "value": selector});
        let is_there = poll(PATIENCE, async || {
            found = self.send("POST", &format!("{}/element", self.session), &wanted).await;
            found[ELEMENT].is_string()
        });
        assert!(is_there.await, "there is no {selector}: {}", self.text().await);
        found[ELEMENT].as_str().expect("it was there").to_owned()
    }

    async fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let value = self.send(method, &format!("{}{path}", self.session), body).await;
        assert!(value["error"].is_null(), "{method} {path}: {value}");
        value
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("chromedriver listens");
        stream.write_all(request(method, path, body).as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        while !is_complete(&answer) {
            let read = timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("it answers in time");
            assert_ne!(read.expect("it answers"), 0, "{method} {path}: the answer has no end");
        }
        value(&answer)
    }

    /// Sends a request where nothing can be awaited; returns `None` if the program is gone.
    fn send_blocking(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
        let mut stream = BlockingStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(request(method, &format!("{}{path}", self.session), body).as_bytes()).ok()?;
        let (mut answer, mut part) = (Vec::new(), [0; 16_384]);
        while !is_complete(&answer) {
            let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
            answer.extend(part.get(..read)?);
        }
        Some(value(&answer))
    }

    /// Returns the faults of all tabs that no test has read or expected; `None` if the browser cannot say.
    fn unexpected(&self) -> Option<Vec<String>> {
        let mut found = Vec::new();
        for handle in self.send_blocking("GET", "/window/handles", &Value::Null)?.as_array()? {
            self.send_blocking("POST", "/window", &json!({ "handle": handle }))?;
            found.extend(lines(&self.send_blocking("POST", "/se/log", &json!({"type": "browser"}))?));
        }
        let expected = self.expected.borrow();
        found.retain(|fault| !expected.iter().any(|text| fault.contains(text)));
        Some(found)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A test that fails already says why. A browser that has not begun has no pages.
        let is_asked = !std::thread::panicking() && !self.session.is_empty();
        let unexpected = if is_asked { self.unexpected() } else { Some(Vec::new()) };
        // The end of the session ends the browser, which has a process group of its own.
        self.send_blocking("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        match unexpected {
            Some(faults) => assert!(faults.is_empty(), "faults of the pages:\n{}", faults.join("\n")),
            None => panic!("the browser ended before its test"),
        }
    }
}

/// Starts the WebDriver program, and returns it with its port.
///
/// It takes a free port of IPv6, and ends if another program has the same port of IPv4; then it is started again.
fn driver(files: &Path) -> (Child, u16) {
    let mut last = String::new();
    for _ in 0..STARTS {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", files)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; {INSTALL}"));
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        for line in said.by_ref() {
            let port = line.split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').parse());
            if let Some(port) = port {
                // The pipe is read to its end, so that the program can write into it.
                std::thread::spawn(move || said.for_each(drop));
                return (driver, port.expect("a port"));
            }
            last = line;
        }
        driver.wait().expect("it ended");
        assert!(last.contains("port not available"), "chromedriver did not start: {last}");
    }
    panic!("chromedriver found no port in {STARTS} starts: {last}");
}

/// Returns the entries of a log, one a line.
fn lines(log: &Value) -> Vec<String> {
    let entries = log.as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
}
