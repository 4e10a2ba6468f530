//! Styles, scripts and icons of the pages. Their paths have one hash of all files, so that a browser may keep them.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderName, StatusCode};
use miniz_oxide::deflate::compress_to_vec_zlib;
use serde_json::{Map, Value, json};
use sluice_contract::Hash;

use crate::api_error::ApiError;
use crate::extract::PathNames;

/// A file that is built into the daemon.
struct Asset {
    name: &'static str,
    content: &'static str,
}

macro_rules! assets {
    ($($file:literal as $name:literal),* $(,)?) => {
        [$(Asset { name: $name, content: include_str!(concat!("../../../console/", $file)) }),*]
    };
}

static ASSETS: [Asset; 47] = assets![
    "console.css" as "console.css",
    "icon-done.svg" as "icon-done.svg",
    "icon-failed.svg" as "icon-failed.svg",
    "icon-running.svg" as "icon-running.svg",
    "icon-waiting.svg" as "icon-waiting.svg",
    "icon.svg" as "icon.svg",
    "vendor/preact.js" as "preact.js",
    "vendor/preact-hooks.js" as "preact-hooks.js",
    "vendor/htm.js" as "htm.js",
    "vendor/signals-core.js" as "signals-core.js",
    "vendor/signals.js" as "signals.js",
    "vendor/uplot.js" as "uplot.js",
    "app.js" as "app.js",
    "agents.js" as "agents.js",
    "api.js" as "api.js",
    "approvals.js" as "approvals.js",
    "asks.js" as "asks.js",
    "chart.js" as "chart.js",
    "chat.js" as "chat.js",
    "diff.js" as "diff.js",
    "events.js" as "events.js",
    "format.js" as "format.js",
    "git_patch.js" as "git_patch.js",
    "host.js" as "host.js",
    "list.js" as "list.js",
    "messages.js" as "messages.js",
    "new.js" as "new.js",
    "parts.js" as "parts.js",
    "rows.js" as "rows.js",
    "run.js" as "run.js",
    "spending.js" as "spending.js",
    "state_signs.js" as "state_signs.js",
    "stream.js" as "stream.js",
    "tab_audit.js" as "tab_audit.js",
    "tab_calls.js" as "tab_calls.js",
    "tab_cost.js" as "tab_cost.js",
    "tab_details.js" as "tab_details.js",
    "tab_diff.js" as "tab_diff.js",
    "tab_files.js" as "tab_files.js",
    "tab_git.js" as "tab_git.js",
    "tab_outline.js" as "tab_outline.js",
    "tab_output.js" as "tab_output.js",
    "tab_raw.js" as "tab_raw.js",
    "tabs.js" as "tabs.js",
    "text.js" as "text.js",
    "transcript.js" as "transcript.js",
    "waiting.js" as "waiting.js",
];

/// Names of the libraries in `import`, and their files.
const LIBRARIES: [(&str, &str); 5] = [
    ("preact", "preact.js"),
    ("preact/hooks", "preact-hooks.js"),
    ("htm", "htm.js"),
    ("@preact/signals-core", "signals-core.js"),
    ("@preact/signals", "signals.js"),
];

/// Level of the compressed copies, which are made once.
const LEVEL: u8 = 9;

/// One hash for all assets: a new build has new paths.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let pieces = ASSETS.iter().flat_map(|asset| [asset.name.as_bytes(), b"\0", asset.content.as_bytes(), b"\0"]);
    Hash::of_all(pieces).to_hex()
});

/// The compressed copies, in the order of the files.
static COMPRESSED: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| ASSETS.iter().map(|asset| compress_to_vec_zlib(asset.content.as_bytes(), LEVEL)).collect());

/// The map from names of libraries to paths.
static IMPORT_MAP: LazyLock<String> = LazyLock::new(|| {
    let paths: Map<_, _> = LIBRARIES.iter().map(|(name, file)| ((*name).to_owned(), Value::from(path(file)))).collect();
    json!({ "imports": paths }).to_string()
});

/// Returns the path of an asset.
pub(super) fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *HASH)
}

/// Returns the map from names of libraries to paths, for a page.
pub(super) fn import_map() -> &'static str {
    &IMPORT_MAP
}

/// Returns the source expression that permits the import map in a content security policy: its hash.
pub(super) fn import_map_source() -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Hash::of(IMPORT_MAP.as_bytes()).as_bytes()))
}

/// Serves an asset.
pub(super) async fn serve(PathNames([hash, name]): PathNames<2>, headers: HeaderMap) -> Result<Response, ApiError> {
    let found = ASSETS.iter().position(|asset| asset.name == name && hash == *HASH);
    let at = found.ok_or_else(ApiError::not_found)?;
    let asset = &ASSETS[at];
    let tag = format!("\"{}\"", Hash::of(asset.content.as_bytes()).to_hex());
    let common: [(HeaderName, &str); 4] = [
        (CONTENT_TYPE, kind(asset.name)),
        (CACHE_CONTROL, "private, max-age=31536000, immutable"),
        (ETAG, &tag),
        (VARY, "accept-encoding"),
    ];
    if has_word(&headers, IF_NONE_MATCH, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, common).into_response());
    }
    Ok(if has_word(&headers, ACCEPT_ENCODING, "deflate") {
        (common, [(CONTENT_ENCODING, "deflate")], COMPRESSED[at].clone()).into_response()
    } else {
        (common, asset.content).into_response()
    })
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

/// Returns whether a list in a header has a word. Words with parameters do not count, since browsers send none.
fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let lists = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|item| item.trim() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a module and its static imports to `found`.
    fn imported<'a>(name: &'a str, found: &mut Vec<&'a str>) {
        if found.contains(&name) {
            return;
        }
        found.push(name);
        let asset = ASSETS.iter().find(|asset| asset.name == name).expect("it is there");
        for line in asset.content.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from")) {
            let from = line.split('"').nth(1).unwrap_or_default();
            let library = LIBRARIES.iter().find(|(library, _)| *library == from).map(|(_, file)| *file);
            let file = from.strip_prefix("./").or(library).unwrap_or_else(|| panic!("{name}: {line}"));
            let asset = ASSETS.iter().find(|asset| asset.name == file).expect("a test has each import");
            imported(asset.name, found);
        }
    }

    /// The size of a page is its style, one icon and its modules. The library for charts is loaded only when a chart is
    /// shown.
    #[test]
    fn each_page_is_small() {
        for page in ["list.js", "run.js", "new.js", "approvals.js", "chat.js", "agents.js", "spending.js", "host.js"] {
            let mut names = vec!["console.css", "icon.svg"];
            imported("app.js", &mut names);
            imported(page, &mut names);
            assert!(!names.contains(&"uplot.js"), "{page}");
            let size = |name: &&str| ASSETS.iter().position(|asset| asset.name == *name).map(|at| COMPRESSED[at].len());
            let total: usize = names.iter().filter_map(size).sum();
            assert!(total < 60_000, "{page}: {total} bytes, compressed");
        }
    }

    #[test]
    fn every_import_has_a_file() {
        let names: Vec<_> = ASSETS.iter().map(|asset| asset.name).collect();
        for asset in ASSETS.iter().filter(|asset| kind(asset.name).starts_with("text/javascript")) {
            for name in asset
                .content
                .split(['"', '\''])
                .filter_map(|word| word.strip_prefix("./"))
                .filter(|name| !name.is_empty())
            {
                assert!(names.contains(&name), "{}: ./{name}", asset.name);
            }
        }
        for (name, file) in LIBRARIES {
            assert!(names.contains(&file) && IMPORT_MAP.contains(name), "{name}");
        }
    }

    #[test]
    fn scripts_make_no_html() {
        for asset in ASSETS.iter().filter(|asset| asset.name != "preact.js") {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!asset.content.contains(word), "{}: {word}", asset.name);
            }
        }
    }
}
