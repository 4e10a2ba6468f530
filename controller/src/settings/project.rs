//! Projects: names that requests to the daemon may state, and the owners that may use them.
//!
//! Pure. Runs of a project have a limit of their own.

use sluice_contract::is_name;
use sluice_daemon::run_policy::Project;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_value::FileFault;
use super::project_repository;
use super::similar::similar;

/// Members of an entry.
const MEMBERS: [&str; 16] = [
    "name", "owners", "repository", "credentials", "known_hosts", "app_id", "installation_id", "app_key", "forge",
    "forge_api", "publish", "merge", "author", "depth", "without_submodules", "without_lfs",
];
/// Maximum number of characters of an owner.
const OWNER_MAX: usize = 255;

/// Reads `[[projects]]`.
pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<Vec<Project>, FileFault> {
    let wrong = |span| FileFault::new(span, "projects: write each project as a table, [[projects]]");
    let entries = value.get_ref().as_array().ok_or_else(|| wrong(value.span()))?;
    let mut projects: Vec<Project> = Vec::new();
    for entry in entries {
        let project = one(entry.get_ref().as_table().ok_or_else(|| wrong(entry.span()))?, entry)?;
        if projects.iter().any(|other| other.name == project.name) {
            return Err(FileFault::new(entry.span(), format!("projects: there are two named {}", project.name)));
        }
        projects.push(project);
    }
    Ok(projects)
}

fn one(table: &DeTable<'_>, entry: &Spanned<DeValue<'_>>) -> Result<Project, FileFault> {
    for (key, _) in table {
        if !MEMBERS.contains(&key.get_ref().as_ref()) {
            let advice = match similar(key.get_ref(), MEMBERS) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("there are {}", MEMBERS.join(", ")),
            };
            let reason = format!("projects: a project has no {}; {advice}", key.get_ref());
            return Err(FileFault::new(key.span(), reason));
        }
    }
    let needed = |name: &str| {
        let reason = format!("projects: each one needs a name and its owners; {name} is missing");
        table.get(name).ok_or_else(|| FileFault::new(entry.span(), reason))
    };
    let (name, owners) = (needed("name")?, needed("owners")?);
    let name_fault =
        "projects: a name is 1 to 63 characters of a-z, 0-9 and . _ -, and begins with a letter or a digit";
    let text = name.get_ref().as_str().filter(|text| is_name(text));
    let text = text.ok_or_else(|| FileFault::new(name.span(), name_fault))?;
    let owner = |owner: &Spanned<DeValue<'_>>| {
        let is_owner =
            |text: &&str| !text.is_empty() && text.chars().count() <= OWNER_MAX && !text.contains(char::is_control);
        let text = owner.get_ref().as_str().filter(is_owner);
        text.map(str::to_owned)
            .ok_or_else(|| FileFault::new(owner.span(), "projects: an owner is a text, as of a token"))
    };
    let list = owners.get_ref().as_array();
    let list = list.ok_or_else(|| FileFault::new(owners.span(), "projects: owners is a list of texts"))?;
    let owners = list.iter().map(owner).collect::<Result<_, _>>()?;
    Ok(Project { name: text.to_owned(), owners, repository: project_repository::read(table)? })
}
