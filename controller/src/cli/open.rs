//! `sluice open`: a browser that is logged in to a daemon.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use sluice_client::{ApiClient, ApiRequest};
use sluice_contract::exit;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{print, print_json, say};
use super::server_args::ServerArgs;

/// Time between two checks whether the code was used.
const EVERY: Duration = Duration::from_millis(500);
/// Program that opens a file with the user's browser.
const OPENER: &str = "xdg-open";

const EXAMPLES: &str = "\
Examples:
  sluice open                                   the browser of this user, logged in to the daemon of this host
  sluice open nightly                           the same, on the page of a run
  sluice open --server https://sluice.example.org --token-file alice.token
  sluice open --print                           the page and a code, for a browser on another machine";

/// Logs a browser in to a daemon.
///
/// The browser gets a file that this user alone can read, with a code that is valid for 60 seconds and once. It shows who it
/// will be, and asks for a click. A session of an admin has the role owner, unless --admin is given.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct OpenArgs {
    /// The run whose page is opened: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print the page and a code in place of opening a browser; with RUN, also the page of the run, for after the login
    #[arg(long)]
    print: bool,
    /// Keep the role admin in the session
    #[arg(long)]
    admin: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// A code of the daemon.
#[derive(Deserialize)]
struct LoginCode {
    login_id: String,
    code: String,
    owner: String,
    role: String,
    expires_at: String,
    origins: Vec<String>,
}

/// State of a code.
#[derive(Deserialize)]
struct LoginState {
    state: String,
}

pub(super) async fn run(args: &OpenArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let run = match &args.run {
        Some(name) => Some(named_run::find(&api, name).await?.sandbox.sandbox_id),
        None => None,
    };
    let request = ApiRequest::post(&["login-codes"]).json(&json!({ "admin": args.admin }));
    let login: LoginCode = api.send(request).await?;
    let page = login.page(&api)?;
    if args.print {
        print_login(args, &login, &page, run.as_deref());
        return Ok(ExitCode::SUCCESS);
    }
    let file = LoginFile::write(&page, &login.code, run.as_deref()).map_err(|error| {
        let message = format!("cannot write the file for the browser: {error}; use sluice open --print");
        CommandError { code: exit::FAILED, message }
    })?;
    let mut browser = Browser::start(&file.0)?;
    let (program, owner, role) = (&browser.program, &login.owner, &login.role);
    say(&format!("started {program} to show {page}: log in there as {owner} ({role}) within 60 seconds"));
    wait_for_login(&api, &login.login_id, &mut browser).await?;
    if args.json {
        print_json(&object(&login, &page, run.as_deref()));
    } else {
        print(&format!("logged in as {} ({})\n", login.owner, login.role));
    }
    Ok(ExitCode::SUCCESS)
}

impl LoginCode {
    /// Returns the address of the login page: on the named server, else on an address that the daemon listens on.
    fn page(&self, api: &ApiClient) -> Result<String, CommandError> {
        let named = Some(api.server()).filter(|server| server.starts_with("http"));
        let secure = self.origins.iter().find(|origin| origin.starts_with("https://"));
        let origin = named.or(secure.or(self.origins.first()).map(String::as_str)).ok_or_else(|| {
            let message = "the daemon listens on no address that it could name; name one with --server URL".to_owned();
            CommandError { code: exit::FAILED, message }
        })?;
        Ok(format!("{}/login", origin.trim_end_matches('/')))
    }
}

fn object(login: &LoginCode, page: &str, run: Option<&str>) -> serde_json::Value {
    json!({ "page": page, "owner": login.owner, "role": login.role, "run": run })
}

fn print_login(args: &OpenArgs, login: &LoginCode, page: &str, run: Option<&str>) {
    if args.json {
        let mut object = object(login, page, run);
        object["code"] = json!(login.code);
        object["expires_at"] = json!(login.expires_at);
        print_json(&object);
        return;
    }
    let mut text = format!("page     {page}\ncode     {}\nexpires  {}\n", login.code, login.expires_at);
    if let Some(run) = run {
        text += &format!("run      {}/sandboxes/{run}\n", page.trim_end_matches("/login"));
    }
    print(&text);
}

/// The file that passes the code to the browser. It is removed after use.
struct LoginFile(PathBuf);

impl LoginFile {
    fn write(page: &str, code: &str, run: Option<&str>) -> io::Result<Self> {
        let directory = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
        let directory = directory.unwrap_or_else(std::env::temp_dir);
        let path = directory.join(format!("sluice-login-{}.html", uuid::Uuid::new_v4().simple()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let made = Self(path);
        file.write_all(html(page, code, run).as_bytes())?;
        Ok(made)
    }
}

impl Drop for LoginFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns a page that sends the code in the body of a request. It works without scripts, by a click.
fn html(page: &str, code: &str, run: Option<&str>) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    let run = run.map_or_else(String::new, |run| format!("<input type=\"hidden\" name=\"run\" value=\"{run}\">"));
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\"><title>Sluice: log in</title>\n<form method=\"post\" action=\"{page}\">\
         <input type=\"hidden\" name=\"code\" value=\"{code}\">{run}<button>Go on to {page}</button></form>\n\
         <script>document.forms[0].submit();</script>\n"
    )
}

/// The program that shows the page.
struct Browser {
    program: String,
    child: Child,
}

impl Browser {
    /// Starts `$BROWSER`, or the desktop's browser, with the file. Its arguments have no secret.
    fn start(file: &Path) -> Result<Self, CommandError> {
        let named = std::env::var("BROWSER").ok().filter(|value| !value.is_empty());
        let program = named.as_deref().and_then(|list| list.split(':').next()).unwrap_or(OPENER);
        let mut words = program.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or(OPENER));
        let mut has_place = false;
        for word in words {
            has_place |= word.contains("%s");
            command.arg(word.replace("%s", &file.to_string_lossy()));
        }
        if !has_place {
            command.arg(file);
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = started.map_err(|error| {
            let message = format!("cannot start {program}: {error}; set $BROWSER, or use sluice open --print");
            CommandError { code: exit::FAILED, message }
        })?;
        Ok(Self { program: program.to_owned(), child })
    }

    /// Returns an error if the program has failed. One that succeeded may have passed the page to a browser that runs.
    fn check(&mut self) -> Result<(), CommandError> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(()) };
        if status.success() {
            return Ok(());
        }
        let message = format!(
            "no browser could be started: {} ended with {status}; set $BROWSER, or use sluice open --print",
            self.program
        );
        Err(CommandError { code: exit::FAILED, message })
    }
}

/// Waits until the code was used.
async fn wait_for_login(api: &ApiClient, login_id: &str, browser: &mut Browser) -> Result<(), CommandError> {
    loop {
        tokio::time::sleep(EVERY).await;
        match api.send::<LoginState>(ApiRequest::get(&["login-codes", login_id])).await {
            Ok(LoginState { state }) if state == "used" => return Ok(()),
            Ok(_) => browser.check()?,
            Err(error) if error.failure().is_some_and(|failure| failure.status == 404) => {
                let message = "the code was not used within 60 seconds; run sluice open again, or sluice open --print";
                return Err(CommandError { code: exit::FAILED, message: message.to_owned() });
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_for_its_user_alone() {
        let file = LoginFile::write("http://127.0.0.1:8787/login", "slc_0", Some("r_0")).expect("there is room");
        let path = file.0.clone();
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o7777, 0o600);
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(
            text.contains("method=\"post\"") && text.contains("value=\"slc_0\"") && !text.contains("?code"),
            "{text}"
        );
        drop(file);
        assert!(!path.exists());
        assert!(html("http://x/\"><b>", "c", None).contains("action=\"http://x/&quot;>&lt;b>\""));
    }
}
