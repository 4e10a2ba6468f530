//! Names of the branches of runs: `{prefix}/{ticket}-{slug}`, or `run/{run_id}` without a ticket.
//!
//! Pure. A ticket and a title are foreign text. The ticket enters the name as it is or is refused; the title enters as a
//! slug of ASCII letters, digits and hyphens.

use std::fmt;
use std::str::FromStr;

use sluice_contract::text::truncate;

/// Maximum number of characters of a slug.
const SLUG_MAX: usize = 25;
/// Maximum number of bytes of a ticket. A part of a ref is a file name in git, with at most 255 bytes.
const TICKET_MAX: usize = 100;

/// Names of default branches, in this order, if the remote names none.
pub(crate) const DEFAULTS: [&str; 4] = ["main", "master", "develop", "trunk"];

/// First part of a branch name, by the type of the task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BranchPrefix {
    /// A new feature.
    #[default]
    Feature,
    /// A bug.
    Fix,
    /// A bug with critical priority.
    Hotfix,
    /// A change of the code's structure only.
    Refactor,
    /// A change of documentation.
    Docs,
    /// A change of tests.
    Test,
    /// Anything else.
    Chore,
}

impl BranchPrefix {
    /// All prefixes.
    pub const ALL: [Self; 7] =
        [Self::Feature, Self::Fix, Self::Hotfix, Self::Refactor, Self::Docs, Self::Test, Self::Chore];

    /// Returns the prefix as it is in a branch name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Feature => "feature",
            Self::Fix => "fix",
            Self::Hotfix => "hotfix",
            Self::Refactor => "refactor",
            Self::Docs => "docs",
            Self::Test => "test",
            Self::Chore => "chore",
        }
    }
}

impl fmt::Display for BranchPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BranchPrefix {
    type Err = BranchNameError;

    /// Reads a type of task: one of the prefixes, or `bug` for a fix.
    fn from_str(text: &str) -> Result<Self, BranchNameError> {
        if text == "bug" {
            return Ok(Self::Fix);
        }
        let found = Self::ALL.into_iter().find(|prefix| prefix.as_str() == text);
        found.ok_or_else(|| BranchNameError::Type(truncate(text)))
    }
}

/// Parts of the name of a run's branch.
#[derive(Debug, Clone, Copy)]
pub struct BranchParts<'a> {
    /// Prefix by the type of the task.
    pub prefix: BranchPrefix,
    /// Ticket of the task.
    pub ticket: Option<&'a str>,
    /// Title of the task.
    pub title: Option<&'a str>,
    /// Id of the run.
    pub run_id: &'a str,
}

/// Reason why no branch name can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BranchNameError {
    /// The type of the task is unknown.
    #[error("'{0}' is not a type of task; use feature, fix, hotfix, refactor, docs, test or chore")]
    Type(String),
    /// The ticket cannot be part of a branch name.
    #[error("ticket '{0}' cannot be part of a branch name: {1}; use letters, digits and hyphens, as in PROJ-12")]
    Ticket(String, RefFault),
    /// The name cannot be a branch.
    #[error("'{0}' is not a branch name: {1}")]
    Name(String, RefFault),
}

/// Rule for branch names that a name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefFault {
    /// The name is empty.
    #[error("it is empty")]
    Empty,
    /// The name is too long.
    #[error("it is too long")]
    Length,
    /// A program would read it as an option.
    #[error("it begins with '-'")]
    Hyphen,
    /// The name has a special meaning for git.
    #[error("git uses this name itself")]
    Reserved,
    /// The name has a character that is not allowed.
    #[error("it has the character U+{:04X}", *.0 as u32)]
    Character(char),
    /// Two dots mean a range of commits.
    #[error("it has '..'")]
    Dots,
    /// Git reads `@{` as an entry of a reflog.
    #[error("it has '@{{'")]
    Reflog,
    /// A part is empty.
    #[error("it begins or ends with '/', or has '//'")]
    Slash,
    /// A part begins or the name ends with a dot.
    #[error("a part of it begins with '.', or it ends with '.'")]
    Dot,
    /// Git makes lock files with such names.
    #[error("a part of it ends with '.lock'")]
    Lock,
}

/// Returns the name of a run's branch. [`candidate`] returns further names if it is taken.
///
/// # Errors
/// [`BranchNameError`] if the ticket or the run's id cannot be part of a branch name.
pub fn branch_name(parts: &BranchParts<'_>) -> Result<String, BranchNameError> {
    let Some(ticket) = parts.ticket else {
        return checked(format!("run/{}", parts.run_id));
    };
    // The ticket must be valid by itself: a slug must not make `A.` valid, and the number after a collision must not
    // make `A.lock` valid.
    if let Some(fault) = ticket_fault(ticket) {
        return Err(BranchNameError::Ticket(truncate(ticket), fault));
    }
    let slug = slug(parts.title.unwrap_or_default());
    let hyphen = if slug.is_empty() { "" } else { "-" };
    checked(format!("{}/{ticket}{hyphen}{slug}", parts.prefix))
}

/// Returns the `nth` name to try, from 1: the name itself, then with `-2`, `-3` and so on.
#[must_use]
pub fn candidate(name: &str, nth: u32) -> String {
    if nth <= 1 { name.to_owned() } else { format!("{name}-{nth}") }
}

/// Returns the default branch: the remote's, else `main`, `master`, `develop` or `trunk`: the first that exists.
pub(crate) fn default_branch(of_remote: Option<&str>, exists: impl Fn(&str) -> bool) -> Option<&str> {
    of_remote.into_iter().chain(DEFAULTS).find(|branch| exists(branch))
}

/// Returns the rule of git that the name of a branch breaks, by the rules of `git check-ref-format --branch`; invisible
/// characters are also refused.
#[must_use]
pub fn ref_fault(name: &str) -> Option<RefFault> {
    if name.is_empty() {
        return Some(RefFault::Empty);
    }
    if name.len() > 255 {
        return Some(RefFault::Length);
    }
    if name.starts_with('-') {
        return Some(RefFault::Hyphen);
    }
    if matches!(name, "@" | "HEAD") {
        return Some(RefFault::Reserved);
    }
    if let Some(character) = name.chars().find(|character| is_forbidden(*character)) {
        return Some(RefFault::Character(character));
    }
    if name.contains("..") {
        return Some(RefFault::Dots);
    }
    if name.contains("@{") {
        return Some(RefFault::Reflog);
    }
    if name.split('/').any(str::is_empty) {
        return Some(RefFault::Slash);
    }
    if name.ends_with('.') || name.split('/').any(|part| part.starts_with('.')) {
        return Some(RefFault::Dot);
    }
    name.split('/').any(|part| part.ends_with(".lock")).then_some(RefFault::Lock)
}

fn ticket_fault(ticket: &str) -> Option<RefFault> {
    if ticket.len() > TICKET_MAX { Some(RefFault::Length) } else { ref_fault(ticket) }
}

fn checked(name: String) -> Result<String, BranchNameError> {
    match ref_fault(&name) {
        Some(fault) => Err(BranchNameError::Name(truncate(&name), fault)),
        None => Ok(name),
    }
}

fn is_forbidden(character: char) -> bool {
    matches!(character, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\')
        || character.is_control()
        || crate::path_text::is_invisible(character)
}

/// Returns a title as ASCII lower-case letters, digits and hyphens, of at most [`SLUG_MAX`] characters, cut at a hyphen.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for character in title.chars() {
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        // One character more than fits shows whether the last word is complete.
        if slug.len() > SLUG_MAX {
            break;
        }
    }
    if slug.len() > SLUG_MAX {
        let end = slug[..=SLUG_MAX].rfind('-').unwrap_or(SLUG_MAX);
        slug.truncate(end);
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests;
