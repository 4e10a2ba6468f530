//! The frame of the pages, and the pages of the login.
//!
//! Pure.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};

use super::assets;
use super::form::LoginForm;
use crate::principal::{Principal, Way};
use crate::sessions::LoginView;

/// Pages of the navigation: path, word, and name of the page in `data-page`.
const NAVIGATION: [(&str, &str, &str); 6] = [
    ("/sandboxes", "Sandboxes", "sandboxes"),
    ("/approvals", "Approvals", "approvals"),
    ("/chat", "Chat", "chat"),
    ("/agents", "Agents", "agents"),
    ("/spending", "Spending", "spending"),
    ("/host", "Host", "host"),
];

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    status: StatusCode,
    title: String,
    main: String,
    console: Option<Console>,
}

/// Frame of each page of the console.
#[derive(Debug)]
struct Console {
    /// Name of the page.
    name: &'static str,
    /// Id of the run that the page shows; empty on other pages.
    run: String,
    who: String,
    has_session: bool,
}

impl Page {
    fn new(title: &str, main: String) -> Self {
        Self { status: StatusCode::OK, title: title.to_owned(), main, console: None }
    }

    /// Returns a page of the console. Its script replaces `main`, which is readable without the script.
    pub(super) fn of_console(principal: &Principal, name: &'static str, title: &str, run: &str, main: String) -> Self {
        let who = format!("{} ({})", escape(&principal.owner), principal.role.as_str());
        let has_session = principal.way == Way::Session;
        let console = Console { name, run: run.to_owned(), who, has_session };
        Self { console: Some(console), ..Self::new(title, main) }
    }

    pub(super) fn text(&self) -> String {
        let title = escape(&self.title);
        let (style, icon) = (assets::path("console.css"), assets::path("icon.svg"));
        let script = self.console.as_ref().filter(|console| console.has_session).map_or_else(String::new, |_| script());
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title} - Sluice</title>\
             <link rel=\"icon\" href=\"{icon}\"><link rel=\"stylesheet\" href=\"{style}\">{script}</head>\n{}</html>\n",
            self.body(&title)
        )
    }

    fn body(&self, title: &str) -> String {
        let Some(Console { name, run, who, has_session }) = &self.console else {
            return format!("<body><main class=\"narrow\"><h1>{title}</h1>\n{}</main></body>", self.main);
        };
        let links = NAVIGATION.map(|(path, word, page)| {
            let is_part = page == "sandboxes" && matches!(*name, "sandbox" | "new");
            let current = if page == *name || is_part { " aria-current=\"page\"" } else { "" };
            let waiting =
                if page == "approvals" { " <span id=\"waiting\" class=\"waiting\" hidden></span>" } else { "" };
            format!("<a href=\"{path}\"{current}>{word}{waiting}</a>")
        });
        let leave = if *has_session { "<button id=\"logout\" hidden>Log out</button>" } else { "" };
        format!(
            "<body data-page=\"{name}\" data-id=\"{}\"><header class=\"top\"><a class=\"brand\" href=\"/sandboxes\">Sluice</a>\
             <nav aria-label=\"Main\">{}</nav><span class=\"who\">{who}</span>{leave}</header>\n<div id=\"notice\"></div>\
             <main id=\"app\"><div class=\"page\"><h1>{title}</h1>\n{}</div></main></body>",
            escape(run),
            links.concat(),
            self.main
        )
    }
}

/// Returns the elements that start the console.
fn script() -> String {
    let (app, map) = (assets::path("app.js"), assets::import_map());
    format!("<script type=\"importmap\">{map}</script><script type=\"module\" src=\"{app}\"></script>")
}

/// Returns the policy of all pages: only their own scripts and styles, and no frame around them.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src 'self' {}; style-src 'self'; connect-src 'self'; img-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        assets::import_map_source()
    )
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        // With no-referrer, a browser would send a form of this page without its origin.
        let policy = policy();
        let headers = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, policy.as_str()),
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
                <button class=\"primary\">Continue</button></form>\n";
    Page::new("Log in", main.to_owned())
}

/// The page that shows which principal a click logs in.
pub(super) fn confirm_page(form: &LoginForm, view: &LoginView) -> Page {
    let (owner, role) = (escape(&view.login.owner), view.login.role.as_str());
    let run = form
        .run
        .as_ref()
        .map_or_else(String::new, |run| format!("<input type=\"hidden\" name=\"run\" value=\"{run}\">"));
    let main = format!(
        "<p>This browser will act as the owner <strong>{owner}</strong> with the role <strong>{role}</strong>. Go on only if \
         you have just run <code>sluice open</code>.</p>\n<form method=\"post\" action=\"/login/confirm\">\
         <input type=\"hidden\" name=\"code\" value=\"{}\">{run}\
         <button class=\"primary\">Log in as {owner} ({role})</button></form>\n",
        escape(&form.code)
    );
    Page::new("Log in", main)
}

/// A page with one message.
pub(super) fn message_page(status: StatusCode, title: &str, text: &str) -> Page {
    let main = format!("<p>{}</p>\n<p><a href=\"/login\">Log in</a></p>\n", escape(text));
    Page { status, ..Page::new(title, main) }
}

/// Answers a browser without a session.
pub(super) fn not_logged_in() -> Response {
    message_page(StatusCode::UNAUTHORIZED, "You are not logged in", "Run sluice open on the host of the daemon.")
        .into_response()
}

/// Returns a text of our own, or a text for an attribute or a title, as HTML. Elsewhere, a text that a sandbox wrote
/// passes `foreign`.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    sluice_contract::text::sanitize(text).chars().for_each(|c| escape_char(c, &mut escaped));
    escaped
}

/// Adds a character to HTML that shows it.
pub(super) fn escape_char(c: char, html: &mut String) {
    match c {
        '&' => html.push_str("&amp;"),
        '<' => html.push_str("&lt;"),
        '>' => html.push_str("&gt;"),
        '"' => html.push_str("&quot;"),
        '\'' => html.push_str("&#39;"),
        c => html.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Role;

    #[test]
    fn names_are_text_in_a_page() {
        let hostile = Principal::for_tests(Role::Owner, "<script>\"'&\u{1b}[2J", &[]);
        let text = Page::of_console(&hostile, "sandboxes", "Sandboxes", "", String::new()).text();
        assert!(text.contains("&lt;script&gt;&quot;&#39;&amp; [2J"), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }

    #[test]
    fn a_page_has_nothing_inline() {
        let session = Principal { way: Way::Session, ..Principal::for_tests(Role::Owner, "alice", &[]) };
        for page in [login_page(), Page::of_console(&session, "sandboxes", "Sandboxes", "", String::new())] {
            let text = page.text();
            for word in ["<style", "style=", "onclick", "onload", "javascript:"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
            assert!(!text.contains("<script>") && text.contains("/assets/"), "{text}");
        }
        assert!(!policy().contains("unsafe"));
    }
}
