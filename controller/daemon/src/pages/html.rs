//! The texts of the pages.
//!
//! Pure.

use std::fmt::Write;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use sluice_state::sandboxes::Sandbox;

use super::assets;
use super::form::LoginForm;
use crate::principal::{Principal, Way};
use crate::sessions::LoginView;

/// Policy of all pages: their own scripts and styles alone, and no frame around them.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    status: StatusCode,
    title: String,
    main: String,
    has_script: bool,
}

impl Page {
    fn new(title: &str, main: String) -> Self {
        Self { status: StatusCode::OK, title: title.to_owned(), main, has_script: false }
    }

    fn text(&self) -> String {
        let (style, script) = (assets::path("page.css"), assets::path("session.js"));
        let script =
            if self.has_script { format!("<script type=\"module\" src=\"{script}\"></script>") } else { String::new() };
        let title = escape(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title} - Sluice</title>\
             <link rel=\"stylesheet\" href=\"{style}\">{script}</head>\n<body><main><h1>{title}</h1>\n{}</main></body></html>\n",
            self.main
        )
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        // With no-referrer, a browser would send a form of this page without its origin.
        let headers = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, "same-origin"),
        ];
        (self.status, headers, self.text()).into_response()
    }
}

/// The page that asks for a code.
pub(super) fn login_page() -> Page {
    let main = "<p>Run <code>sluice open</code> on the host of the daemon, or enter the code of \
                <code>sluice open --print</code>.</p>\n<form method=\"post\" action=\"/login\">\
                <label>Code <input name=\"code\" type=\"password\" autocomplete=\"off\" required></label> \
                <button>Continue</button></form>\n";
    Page::new("Log in", main.to_owned())
}

/// The page that says who is logged in by a click.
pub(super) fn confirm_page(form: &LoginForm, view: &LoginView) -> Page {
    let (owner, role) = (escape(&view.login.owner), view.login.role.as_str());
    let run = form
        .run
        .as_ref()
        .map_or_else(String::new, |run| format!("<input type=\"hidden\" name=\"run\" value=\"{run}\">"));
    let main = format!(
        "<p>This browser will act as the owner <strong>{owner}</strong> with the role <strong>{role}</strong>. Go on only if \
         you have just run <code>sluice open</code>.</p>\n<form method=\"post\" action=\"/login/confirm\">\
         <input type=\"hidden\" name=\"code\" value=\"{}\">{run}<button>Log in as {owner} ({role})</button></form>\n",
        escape(&form.code)
    );
    Page::new("Log in", main)
}

/// A page with one message.
pub(super) fn message_page(status: StatusCode, title: &str, text: &str) -> Page {
    let main = format!("<p>{}</p>\n<p><a href=\"/login\">Log in</a></p>\n", escape(text));
    Page { status, ..Page::new(title, main) }
}

/// The first page.
pub(super) fn home_page(principal: &Principal, creates_runs: bool) -> Page {
    let mut main = identity(principal);
    if !creates_runs {
        main.push_str("<p>This host creates no sandboxes: <code>sandbox_enabled</code> is off.</p>\n");
    }
    main.push_str(
        "<p>The API is under <code>/api/v1</code>: <a data-api href=\"/api/openapi.json\">its document</a>, \
         <a data-api href=\"/api/v1/sandboxes\">the sandboxes</a>, <a data-api href=\"/api/v1/session\">this session</a>.</p>\n",
    );
    with_script("Sluice", principal, main)
}

/// The page of a run.
pub(super) fn sandbox_page(principal: &Principal, run: &Sandbox) -> Page {
    let id = &run.key.run_id;
    let name = run.name.as_deref().map_or_else(|| id.to_string(), escape);
    let mut main = identity(principal);
    let _ = write!(
        main,
        "<dl><dt>Id</dt><dd><code>{id}</code></dd><dt>Name</dt><dd>{name}</dd><dt>State</dt><dd>{}</dd></dl>\n\
         <p>The API has <a data-api href=\"/api/v1/sandboxes/{id}\">all of it</a> and \
         <a data-api href=\"/api/v1/sandboxes/{id}/trajectory\">what it did</a>. <a href=\"/\">Back</a></p>\n",
        run.state.as_str()
    );
    with_script("Sandbox", principal, main)
}

fn identity(principal: &Principal) -> String {
    let (owner, role) = (escape(&principal.owner), principal.role.as_str());
    format!("<p>You are logged in as <strong>{owner}</strong> with the role <strong>{role}</strong>.</p>\n")
}

fn with_script(title: &str, principal: &Principal, mut main: String) -> Page {
    if principal.way == Way::Session {
        main.push_str("<p><button id=\"logout\" hidden>Log out</button></p>\n<pre id=\"out\"></pre>\n");
    }
    Page { has_script: principal.way == Way::Session, ..Page::new(title, main) }
}

/// Returns a text as HTML that shows it and does nothing else.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in sluice_contract::text::sanitize(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Role;

    #[test]
    fn names_are_text_in_a_page() {
        let hostile = Principal::for_tests(Role::Owner, "<script>\"'&\u{1b}[2J", &[]);
        let text = home_page(&hostile, true).text();
        assert!(text.contains("&lt;script&gt;&quot;&#39;&amp; [2J"), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }

    #[test]
    fn a_page_has_nothing_inline() {
        let session = Principal { way: Way::Session, ..Principal::for_tests(Role::Owner, "alice", &[]) };
        for page in [login_page(), home_page(&session, false)] {
            let text = page.text();
            for word in ["<style", "style=", "onclick", "onload", "javascript:"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
            assert!(!text.contains("<script>") && text.contains("/assets/"), "{text}");
        }
        assert!(!POLICY.contains("unsafe"));
    }
}
