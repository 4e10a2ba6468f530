//! Text of a sandbox in a page: characters that lie about it are shown as codes. The daemon's HTML has the same rule.

use std::path::Path;

use serde_json::{Value, json};
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, log_in};

/// Draws each text with the function of the console, and returns those that show anything else than expected. What is not
/// text, a code or a colour is named.
const DRAW: &str = "return (async () => { \
    const own = document.querySelector('script[type=module]').src; \
    const [{ foreign }, { h, render }] = await Promise.all([import(own.replace('app.js', 'text.js')), import('preact')]); \
    const seen = (node) => { \
      if (node.nodeType === Node.TEXT_NODE) return node.data; \
      const inner = [...node.childNodes].map(seen).join(''); \
      if (node.tagName === 'SPAN' && node.className === 'codepoint') return node.offsetWidth > 0 ? `[${inner}]` : '{invisible}'; \
      return node.tagName === 'SPAN' && /^ansi-[a-z]+( ansi-[a-z]+)*$/.test(node.className) ? inner : `{${node.tagName}}`; }; \
    return TEXTS.map(({ text, shown }) => { \
      const box = document.body.appendChild(document.createElement('div')); \
      render(h('bdi', { class: 'foreign' }, foreign(text)), box); \
      const found = [...box.firstChild.childNodes].map(seen).join(''); \
      box.remove(); \
      return found === shown ? null : [text, shown, found]; }).filter(Boolean); })()";

#[tokio::test]
async fn each_foreign_text_shows_its_hidden_characters() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/foreign_texts.json");
    let texts: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    assert!(texts.as_array().is_some_and(|texts| texts.len() >= 200), "{texts}");
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    let wrong = browser.script(&DRAW.replace("TEXTS", &texts.to_string())).await;
    assert_eq!(wrong, json!([]));
}

#[tokio::test]
async fn a_page_without_its_script_shows_codes_too() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let says = r#"event agent.assistant_message '{"text":"invoice\u202egnp.exe </bdi><b>bold</b>"}'"#;
    let id = daemon.create(super::agent("hidden", says)).await;
    daemon.reaches(&id, "COMPLETED").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    // A page that is left while it loads a module reports that as a fault.
    browser.shows(&id).await;

    browser.without_scripts().await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    let frame = browser.source().await;
    let text = "<span class=\"label\">from the agent</span><bdi>invoice<span class=\"codepoint\">U+202E</span>gnp.exe \
                &lt;/bdi&gt;&lt;b&gt;bold&lt;/b&gt;</bdi>";
    assert!(frame.contains(text) && !frame.contains('\u{202e}'), "{frame}");
}
