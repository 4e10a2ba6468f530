//! The user that runs a command, under the name that records of decisions have.

use nix::unistd::Uid;

/// Returns the name of the user that runs this process: under sudo, the user that called sudo.
#[must_use]
pub fn name() -> String {
    let uid = Uid::effective();
    let caller = std::env::var("SUDO_USER").ok().filter(|name| uid.is_root() && is_plain(name));
    caller.unwrap_or_else(|| if uid.is_root() { "root".to_owned() } else { format!("user {uid}") })
}

/// Returns whether a text is a plain user name, which cannot be mistaken for something else.
fn is_plain(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte))
}
