//! A GitHub App as the credential of a project: `app_id`, `installation_id` and `app_key`.
//!
//! Pure. Only the path of the key file is set here; the file is read when it is needed.

use sluice_git::{RepositoryUrl, UrlKind};
use sluice_runs::project_repository::{AppAccess, ForgeKind};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{fault, number, path};
use crate::settings::file_value::FileFault;

/// Members of an app.
const MEMBERS: [&str; 3] = ["app_id", "installation_id", "app_key"];

/// Reads the app of a project, if it has one.
pub(super) fn read(table: &DeTable<'_>, forge: ForgeKind, url: &RepositoryUrl) -> Result<Option<AppAccess>, FileFault> {
    let [id, installation, key] = MEMBERS.map(|name| table.get(name));
    let Some(first) = id.or(installation).or(key) else { return Ok(None) };
    let (Some(id), Some(installation), Some(key)) = (id, installation, key) else {
        let missing = MEMBERS.into_iter().filter(|name| table.get(*name).is_none()).collect::<Vec<_>>().join(" and ");
        let reason = format!(
            "a GitHub App is app_id = NUMBER, installation_id = NUMBER and app_key = \"FILE\"; {missing} is missing"
        );
        return Err(fault(first, &reason));
    };
    let access = AppAccess {
        app: positive(id, "app_id")?,
        installation: positive(installation, "installation_id")?,
        key: path(key, "app_key")?,
    };
    let named = format!("app_id = {}", access.app);
    if let Some(credentials) = table.get("credentials") {
        let reason = format!("credentials and {named} are two credentials of one repository; leave out one of them");
        return Err(fault(credentials, &reason));
    }
    if forge != ForgeKind::GitHub {
        let reason = format!("{named} needs forge = \"github\", and forge is \"{}\"", forge.as_str());
        return Err(fault(table.get("forge").unwrap_or(id), &reason));
    }
    match url.kind() {
        UrlKind::Https => {}
        // The default address of the API has https.
        UrlKind::Http if table.contains_key("forge_api") => {}
        UrlKind::Http => return Err(fault(id, &format!("{named} needs forge_api for a repository with http"))),
        UrlKind::Ssh | UrlKind::Local => {
            let reason = format!("{named} gets tokens for https, and repository is {url}; write its https address");
            return Err(fault(table.get("repository").unwrap_or(id), &reason));
        }
    }
    Ok(Some(access))
}

/// Reads a number of GitHub. Another value is not repeated: it may be a secret of the app.
fn positive(value: &Spanned<DeValue<'_>>, name: &str) -> Result<u64, FileFault> {
    number(value).ok_or_else(|| fault(value, &format!("{name} is a number that GitHub shows; write {name} = 12345")))
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    const URL: &str = "repository = 'https://github.com/o/r'\n";
    const APP: &str = "app_id = 7\ninstallation_id = 70\napp_key = '/etc/app.pem'\n";
    const GITHUB: &str = "forge = 'github'\n";

    fn app(text: &str) -> Result<Option<AppAccess>, String> {
        let read = read(DeTable::parse(text).expect("toml").get_ref()).map_err(|fault| fault.reason.to_string());
        Ok(read?.expect("it has a repository").access.app)
    }

    #[test]
    fn an_app_takes_the_place_of_a_token() {
        let expected = AppAccess { app: 7, installation: 70, key: "/etc/app.pem".into() };
        assert_eq!(app(&[URL, GITHUB, APP].concat()), Ok(Some(expected.clone())));
        assert_eq!(app(&[URL, GITHUB].concat()), Ok(None));
        let own = "repository = 'http://127.0.0.1:3000/o/r'\nforge_api = 'http://127.0.0.1:3000/api/v3'\n";
        assert_eq!(app(&[own, GITHUB, APP].concat()), Ok(Some(expected)));
    }

    #[test]
    fn wrong_combinations_name_member_and_fix() {
        let with = |parts: &[&str]| parts.concat();
        for (text, reason) in [
            (with(&[URL, GITHUB, "app_id = 7"]), "installation_id and app_key is missing"),
            (with(&[URL, GITHUB, "app_key = '/k'\ninstallation_id = 70"]), "app_id is missing"),
            (with(&[URL, APP]), "app_id = 7 needs forge = \"github\", and forge is \"none\""),
            (with(&[URL, "forge = 'gitea'\n", APP]), "app_id = 7 needs forge = \"github\", and forge is \"gitea\""),
            (with(&[URL, GITHUB, APP, "credentials = '/c'"]), "credentials and app_id = 7 are two"),
            (with(&["repository = 'git@h:o/r'\n", GITHUB, APP]), "repository is git@h:o/r; write its https address"),
            (with(&["repository = '/srv/r.git'\n", GITHUB, APP]), "repository is /srv/r.git; write its https address"),
            (with(&["repository = 'http://localhost/o/r'\n", GITHUB, APP]), "app_id = 7 needs forge_api"),
            (with(&[URL, GITHUB, APP]).replace("= 7\n", "= 'canary'\n"), "app_id is a number"),
            (with(&[URL, GITHUB, APP]).replace("= 70", "= -1"), "installation_id is a number"),
            (with(&[URL, GITHUB, APP]).replace("/etc/app.pem", "-----BEGIN canary"), "app_key is the path of a file"),
        ] {
            let found = app(&text).expect_err(&text);
            assert!(found.contains(reason) && !found.contains("canary"), "{text}: {found}");
        }
        let lone = read(DeTable::parse("app_id = 7").expect("toml").get_ref());
        let lone = lone.map_err(|fault| fault.reason.to_string()).expect_err("it has no repository");
        assert!(lone.contains("app_id needs a repository"), "{lone}");
    }
}
