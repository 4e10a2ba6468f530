//! The repository of a project: members of `[[projects]]`.
//!
//! Pure. Files with credentials are named here, and read when they are needed.

use std::path::PathBuf;

use sluice_git::{CommitterIdentity, RepositoryUrl};
use sluice_runs::project_repository::{ForgeKind, ForgeSettings, ProjectRepository, RepositoryAccess};
use sluice_state::git_runs::PublishRule;
use sluice_upstream::{Address, Scheme};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_value::FileFault;

mod app;

/// Members that have a meaning only beside `repository`.
const OTHERS: [&str; 13] = [
    "credentials", "known_hosts", "app_id", "installation_id", "app_key", "forge", "forge_api", "publish", "merge",
    "author", "depth", "without_submodules", "without_lfs",
];
/// Maximum number of commits of a shallow history. A larger one is practically complete.
const DEPTH_MAX: u32 = 1_000_000;

/// Reads the repository of a project, if it has one.
pub(super) fn read(table: &DeTable<'_>) -> Result<Option<ProjectRepository>, FileFault> {
    let Some(url) = table.get("repository") else {
        let lone = OTHERS.iter().find_map(|name| Some((*name, table.get(*name)?)));
        return match lone {
            Some((name, value)) => Err(fault(value, &format!("{name} needs a repository; write repository = \"URL\""))),
            None => Ok(None),
        };
    };
    let address = RepositoryUrl::parse(text(url, "repository")?).map_err(|error| fault(url, &error.to_string()))?;
    let file = |name| table.get(name).map(|value| path(value, name)).transpose();
    let forge = match table.get("forge") {
        Some(value) => {
            ForgeKind::of(text(value, "forge")?).ok_or_else(|| fault(value, "forge is github, gitea, local or none"))?
        }
        None => ForgeKind::None,
    };
    let publish = match table.get("publish") {
        Some(value) => {
            PublishRule::of(text(value, "publish")?).ok_or_else(|| fault(value, "publish is approve, auto or never"))?
        }
        None => PublishRule::Approve,
    };
    let is_set = |name| table.get(name).map_or(Ok(false), |value| flag(value, name));
    let api = table.get("forge_api").map(forge_api).transpose()?;
    let depth = table.get("depth").map(|value| depth(value, &address)).transpose()?;
    let access = RepositoryAccess {
        credentials: file("credentials")?,
        known_hosts: file("known_hosts")?,
        app: app::read(table, forge, &address)?,
    };
    Ok(Some(ProjectRepository {
        url: address,
        access,
        forge: ForgeSettings { kind: forge, api },
        publish,
        may_merge: is_set("merge")?,
        author: table.get("author").map(author).transpose()?,
        depth,
        without_submodules: is_set("without_submodules")?,
        without_lfs: is_set("without_lfs")?,
    }))
}

/// Reads the address of a forge's API. The token is sent there, so without TLS only this host is allowed.
fn forge_api(value: &Spanned<DeValue<'_>>) -> Result<String, FileFault> {
    let given = text(value, "forge_api")?;
    let is_safe = |address: &Address| match address.scheme {
        Scheme::Https => true,
        Scheme::Http => address.is_local(),
        Scheme::Unix(_) => false,
    };
    match given.parse::<Address>() {
        Ok(address) if is_safe(&address) => Ok(given.to_owned()),
        _ => Err(fault(value, "forge_api is an https address without a user; http is for this host alone")),
    }
}

/// Reads `Name <mail>`.
fn author(value: &Spanned<DeValue<'_>>) -> Result<CommitterIdentity, FileFault> {
    let given = text(value, "author")?;
    let parts = given.strip_suffix('>').and_then(|rest| rest.split_once(" <"));
    let (name, email) = parts.ok_or_else(|| fault(value, "author is written as \"Name <mail>\""))?;
    CommitterIdentity::new(name, email).map_err(|error| fault(value, &error.to_string()))
}

/// Reads the number of commits that runs get.
fn depth(value: &Spanned<DeValue<'_>>, url: &RepositoryUrl) -> Result<u32, FileFault> {
    let wrong = || fault(value, &format!("depth is a number of commits from 1 to {DEPTH_MAX}; write depth = 50"));
    let depth = number(value).and_then(|number| u32::try_from(number).ok()).filter(|depth| *depth <= DEPTH_MAX);
    let depth = depth.ok_or_else(wrong)?;
    if url.directory().is_some() {
        let reason = format!("depth = {depth} is for an address; a directory is read whole: leave out depth");
        return Err(fault(value, &reason));
    }
    Ok(depth)
}

/// Returns a whole number from 1 on.
fn number(value: &Spanned<DeValue<'_>>) -> Option<u64> {
    let number = value.get_ref().as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| *number > 0)
}

fn flag(value: &Spanned<DeValue<'_>>, name: &str) -> Result<bool, FileFault> {
    value.get_ref().as_bool().ok_or_else(|| fault(value, &format!("{name} is true or false")))
}

fn path(value: &Spanned<DeValue<'_>>, name: &str) -> Result<PathBuf, FileFault> {
    let given = PathBuf::from(text(value, name)?);
    // A text that is not a path may be the secret itself, so it is not repeated.
    if given.is_absolute() { Ok(given) } else { Err(fault(value, &format!("{name} is the path of a file, from / on"))) }
}

fn text<'a>(value: &'a Spanned<DeValue<'_>>, name: &str) -> Result<&'a str, FileFault> {
    value.get_ref().as_str().ok_or_else(|| fault(value, &format!("{name} is a text")))
}

fn fault(value: &Spanned<DeValue<'_>>, reason: &str) -> FileFault {
    FileFault::new(value.span(), format!("projects: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Option<ProjectRepository>, String> {
        read(DeTable::parse(text).expect("toml").get_ref()).map_err(|fault| fault.reason.to_string())
    }

    #[test]
    fn a_project_may_have_a_repository() {
        assert_eq!(read_text("name = 'x'"), Ok(None));
        let plain = read_text("repository = 'https://h/o/r'").expect("right").expect("a repository");
        assert_eq!(plain, ProjectRepository::of(plain.url.clone()));
        let whole = "repository = 'https://h/o/r'\ncredentials = '/c'\nforge = 'github'\npublish = 'auto'\nmerge = true\n\
                     author = 'Bot <bot@h>'\ndepth = 50\nwithout_submodules = true\nwithout_lfs = true";
        let whole = read_text(whole).expect("right").expect("a repository");
        let options = whole.mirror_options("x".to_owned(), None);
        assert_eq!((options.depth, options.without_submodules, options.without_lfs), (Some(50), true, true));
        assert_eq!(whole.access.credentials, Some("/c".into()));
        assert_eq!((whole.publish, whole.may_merge, whole.forge.kind), (PublishRule::Auto, true, ForgeKind::GitHub));
        assert_eq!(whole.author.map(|author| author.email().to_owned()), Some("bot@h".to_owned()));
    }

    #[test]
    fn faults_name_the_member_and_no_secret() {
        for (text, reason) in [
            ("credentials = '/c'", "credentials needs a repository"),
            ("repository = 'ext::sh'", "is not"),
            ("repository = 'https://u:canary@h/r'", "holds a password"),
            ("repository = 'https://h/r'\ncredentials = 'ghp_canary'", "credentials is the path"),
            ("repository = 'https://h/r'\nforge = 'x'", "forge is github"),
            ("repository = 'https://h/r'\nforge_api = 'http://forge.test/api'", "forge_api is an https address"),
            ("repository = 'https://h/r'\nforge_api = 'https://u:canary@h/api'", "forge_api is an https address"),
            ("repository = 'https://h/r'\nforge_api = 'git@h:api'", "forge_api is an https address"),
            ("repository = 'https://h/r'\npublish = 'x'", "publish is approve"),
            ("repository = 'https://h/r'\nmerge = 'x'", "merge is true"),
            ("repository = 'https://h/r'\nauthor = 'x'", "author is written"),
            ("repository = 1", "repository is a text"),
            ("repository = 'https://h/r'\nwithout_submodules = 1", "without_submodules is true or false"),
            ("without_lfs = true", "without_lfs needs a repository"),
            ("depth = 1", "depth needs a repository"),
            ("repository = 'https://h/r'\ndepth = 0", "depth is a number of commits from 1"),
            ("repository = 'https://h/r'\ndepth = 1000001", "depth is a number of commits from 1"),
            ("repository = 'https://h/r'\ndepth = 'x'", "depth is a number of commits from 1"),
            ("repository = '/srv/r.git'\ndepth = 3", "depth = 3 is for an address"),
        ] {
            let found = read_text(text).expect_err(text);
            assert!(found.contains(reason) && !found.contains("canary"), "{text}: {found}");
        }
    }
}
