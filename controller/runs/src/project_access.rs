//! Access to the repository of a project: its credentials, and its forge.
//!
//! Files of the operator are read each time, so that a renewed token or key is used at once. A GitHub App gets a token per
//! clone, publication, pull request and merge: no token is kept between them.

use sluice_git::forge::{
    AppKey, Forge, ForgeToken, GitHub, GitHubCredential, Gitea, LocalForge, RepositoryName, RuntimePause, retrying,
};
use sluice_git::{Credentials, CredentialsError, GitHome, SecretText, UrlKind};
use sluice_upstream::Upstream;

use crate::project_repository::{AppAccess, ForgeKind, ProjectRepository};
use crate::publication_error::PublicationError;

/// User that GitHub expects with a token of an installation.
const APP_USER: &str = "x-access-token";

/// Returns the credentials for git, from a file, or as a new token of a GitHub App, which lives for an hour.
///
/// # Errors
/// [`PublicationError::NoApi`], [`PublicationError::AppKey`], [`PublicationError::Credentials`], [`PublicationError::Forge`]
pub async fn credentials(project: &ProjectRepository) -> Result<Credentials, PublicationError> {
    if project.access.app.is_none() {
        return Ok(in_file(project)?);
    }
    let github = github(project)?;
    let token = retrying(&RuntimePause, || github.token()).await?;
    Ok(Credentials::Token { username: APP_USER.to_owned(), token: SecretText::new(token.expose().to_owned()) })
}

/// Checks that the files with credentials can be used. Nothing is sent. Returns false if none are configured.
///
/// # Errors
/// [`PublicationError::AppKey`], [`PublicationError::Credentials`]
pub fn check_files(project: &ProjectRepository) -> Result<bool, PublicationError> {
    if let Some(app) = &project.access.app {
        return app_key(app).map(|_| true);
    }
    in_file(project)?;
    Ok(project.access.credentials.is_some())
}

/// Reads the credentials that are in a file.
fn in_file(project: &ProjectRepository) -> Result<Credentials, CredentialsError> {
    let access = &project.access;
    let read = |path| Credentials::read(path, access.known_hosts.as_deref());
    access.credentials.as_deref().map_or(Ok(Credentials::None), read)
}

fn app_key(app: &AppAccess) -> Result<AppKey, PublicationError> {
    AppKey::read(app.app, app.installation, &app.key).map_err(PublicationError::AppKey)
}

fn github(project: &ProjectRepository) -> Result<GitHub, PublicationError> {
    let credential = match &project.access.app {
        Some(app) => GitHubCredential::App(app_key(app)?),
        None => GitHubCredential::Token(token(project)?),
    };
    Ok(GitHub::new(&api(project, github_api)?, name(project)?, credential)?)
}

/// Returns the forge of a project.
///
/// # Errors
/// [`PublicationError::NoForge`], [`PublicationError::NoApi`], [`PublicationError::NoToken`], [`PublicationError::Credentials`],
/// [`PublicationError::Token`], [`PublicationError::AppKey`], [`PublicationError::Forge`]
pub fn forge(project: &ProjectRepository, home: &GitHome) -> Result<Forge, PublicationError> {
    match project.forge.kind {
        ForgeKind::None => Err(PublicationError::NoForge),
        ForgeKind::GitHub => Ok(Forge::GitHub(Box::new(github(project)?))),
        ForgeKind::Gitea => {
            let server = api(project, |host| format!("https://{host}"))?;
            Ok(Forge::Gitea(Box::new(Gitea::new(&server, name(project)?, token(project)?)?)))
        }
        ForgeKind::Local => {
            let directory = project.url.directory().ok_or(PublicationError::NoForge)?;
            let records = home.forge_records(&project.url);
            Ok(Forge::Local(LocalForge::new(home.local_git(&directory)?, records)))
        }
    }
}

/// Returns the API of the forge. It is at the host of the repository, unless the project names another one: the token is
/// sent to no other host.
fn api(project: &ProjectRepository, of_host: impl Fn(&str) -> String) -> Result<Upstream, PublicationError> {
    let url = match (&project.forge.api, project.url.kind()) {
        (Some(named), _) => named.clone(),
        // The ssh port of git differs from the port of the API.
        (None, UrlKind::Ssh) => of_host(project.url.host()),
        (None, UrlKind::Https) => match project.url.port() {
            None | Some(443) => of_host(project.url.host()),
            Some(port) => of_host(&format!("{}:{port}", project.url.host())),
        },
        (None, UrlKind::Http | UrlKind::Local) => return Err(PublicationError::NoApi),
    };
    Ok(Upstream::at(url))
}

/// Returns the address of GitHub's API, or of a GitHub Enterprise Server's API.
fn github_api(host: &str) -> String {
    match host {
        "github.com" => "https://api.github.com".to_owned(),
        own => format!("https://{own}/api/v3"),
    }
}

/// Returns the token for the API: the same as for git.
fn token(project: &ProjectRepository) -> Result<ForgeToken, PublicationError> {
    match in_file(project)? {
        Credentials::Token { token, .. } => Ok(ForgeToken::new(token.expose())?),
        Credentials::None | Credentials::SshKey { .. } => Err(PublicationError::NoToken),
    }
}

/// Returns the name of the repository at its forge: the last two parts of its path.
fn name(project: &ProjectRepository) -> Result<RepositoryName, PublicationError> {
    let path = project.url.path().trim_matches('/');
    let from = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    Ok(path[from..].parse()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use sluice_git::RepositoryUrl;

    use super::*;
    use crate::project_repository::ForgeSettings;

    fn api_of(url: &str, named: Option<&str>) -> Option<String> {
        let project = ProjectRepository {
            forge: ForgeSettings { kind: ForgeKind::GitHub, api: named.map(str::to_owned) },
            ..ProjectRepository::of(RepositoryUrl::parse(url).expect("an address"))
        };
        api(&project, github_api).ok().map(|api| api.url)
    }

    #[tokio::test]
    async fn the_key_of_an_app_is_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = directory.path().join("canary.pem");
        let mut project = ProjectRepository::of(RepositoryUrl::parse("https://forge.test/o/r").expect("an address"));
        assert!(!check_files(&project).expect("everybody can read it"));
        project.access.app = Some(AppAccess { app: 7, installation: 70, key: key.clone() });
        let mode = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("it is ours");
        let fault = || check_files(&project).expect_err("it is no key").to_string();
        assert!(fault().ends_with("its file cannot be read"), "{}", fault());
        fs::write(&key, "canary").expect("it is ours");
        mode(0o640);
        assert_eq!(fault(), "app_key of the project cannot be used: its file has mode 640; run chmod 600 on it");
        mode(0o600);
        assert!(fault().contains("is not the private RSA key of a GitHub App"), "{}", fault());
        let refused = credentials(&project).await.expect_err("it is no key");
        assert!(matches!(refused, PublicationError::AppKey(_)), "nothing was sent: {refused}");
        let text = format!("{refused:?} {refused} {}", refused.public_text());
        assert!(!text.contains("canary") && !refused.public_text().contains("app_key"), "{text}");
    }

    #[test]
    fn a_token_goes_to_the_host_of_the_repository() {
        for (url, expected) in [
            ("https://github.com/o/r", Some("https://api.github.com")),
            ("git@github.com:o/r.git", Some("https://api.github.com")),
            ("https://ghe.test/o/r", Some("https://ghe.test/api/v3")),
            ("https://ghe.test:8443/o/r", Some("https://ghe.test:8443/api/v3")),
            ("ssh://git@ghe.test:2222/o/r", Some("https://ghe.test/api/v3")),
            ("http://127.0.0.1:3000/o/r", None),
        ] {
            assert_eq!(api_of(url, None).as_deref(), expected, "{url}");
        }
        let named = "http://127.0.0.1:3000/api/v3";
        assert_eq!(api_of("http://127.0.0.1:3000/o/r", Some(named)).as_deref(), Some(named));
    }
}
