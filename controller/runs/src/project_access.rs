//! Access to the repository of a project: its credentials, and its forge.
//!
//! Files of the operator are read each time, so that a renewed token is used at once.

use sluice_git::forge::{Forge, GitHub, GitHubCredential, Gitea, LocalForge, RepositoryName, Token};
use sluice_git::{Credentials, CredentialsError, GitHome, UrlKind};
use sluice_upstream::Upstream;

use crate::project_repository::{ForgeKind, ProjectRepository};
use crate::publication::PublicationError;

/// Reads the credentials for git.
///
/// # Errors
/// [`CredentialsError`]
pub fn credentials(project: &ProjectRepository) -> Result<Credentials, CredentialsError> {
    let access = &project.access;
    let read = |path| Credentials::read(path, access.known_hosts.as_deref());
    access.credentials.as_deref().map_or(Ok(Credentials::None), read)
}

/// Returns the forge of a project.
///
/// # Errors
/// [`PublicationError::NoForge`], [`PublicationError::NoApi`], [`PublicationError::NoToken`], [`PublicationError::Credentials`],
/// [`PublicationError::Token`], [`PublicationError::Forge`]
pub fn forge(project: &ProjectRepository, home: &GitHome) -> Result<Forge, PublicationError> {
    match project.forge.kind {
        ForgeKind::None => Err(PublicationError::NoForge),
        ForgeKind::GitHub => {
            let api = api(project, github_api)?;
            let credential = GitHubCredential::Token(token(project)?);
            Ok(Forge::GitHub(Box::new(GitHub::new(&api, name(project)?, credential)?)))
        }
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

/// Returns the API of the forge. It is at the host of the repository, unless the project names another one: the token goes
/// nowhere else.
fn api(project: &ProjectRepository, of_host: impl Fn(&str) -> String) -> Result<Upstream, PublicationError> {
    let url = match (&project.forge.api, project.url.kind()) {
        (Some(named), _) => named.clone(),
        // The port of git over ssh is not that of the API.
        (None, UrlKind::Ssh) => of_host(project.url.host()),
        (None, UrlKind::Https) => match project.url.port() {
            None | Some(443) => of_host(project.url.host()),
            Some(port) => of_host(&format!("{}:{port}", project.url.host())),
        },
        (None, UrlKind::Http | UrlKind::Local) => return Err(PublicationError::NoApi),
    };
    Ok(Upstream::at(url))
}

/// Returns the address of GitHub's API, or of that of a GitHub Enterprise Server.
fn github_api(host: &str) -> String {
    match host {
        "github.com" => "https://api.github.com".to_owned(),
        own => format!("https://{own}/api/v3"),
    }
}

/// Returns the token for the API: that of git.
fn token(project: &ProjectRepository) -> Result<Token, PublicationError> {
    match credentials(project)? {
        Credentials::Token { token, .. } => Ok(Token::new(token.expose())?),
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
    use sluice_git::RepositoryUrl;
    use sluice_state::git_runs::PublishRule;

    use super::*;
    use crate::project_repository::{ForgeSettings, RepositoryAccess};

    fn api_of(url: &str, named: Option<&str>) -> Option<String> {
        let project = ProjectRepository {
            url: RepositoryUrl::parse(url).expect("an address"),
            access: RepositoryAccess::default(),
            forge: ForgeSettings { kind: ForgeKind::GitHub, api: named.map(str::to_owned) },
            publish: PublishRule::Approve,
            may_merge: false,
            author: None,
        };
        api(&project, github_api).ok().map(|api| api.url)
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
