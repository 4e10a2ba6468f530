//! Paths of changes that a person always has to approve before they are published.
//!
//! Pure. A forge executes CI files outside the sandbox, with secrets and a network. Other files of the list set the required
//! reviewers, and how git treats files. The paths come from a comparison without renames, so a
//! renamed file occurs with both names.
//!
//! A path is compared like file systems that treat several names as one: without regard to case, without the
//! characters that HFS+ ignores, and without those that NTFS ignores at the end of a name. A submodule always needs approval;
//! [`BranchSummary::guarded`](crate::BranchSummary::guarded) sees its mode.

use crate::path_text::is_invisible;

/// Reason why a path needs an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// CI at the forge executes the file.
    Ci,
    /// The file sets the reviewers of changes.
    Reviewers,
    /// The file changes what git does in a clone.
    Git,
}

impl Guard {
    /// Returns the reason in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ci => "CI runs it outside of the sandbox",
            Self::Reviewers => "it names the reviewers of changes",
            Self::Git => "it changes what git does in clones",
        }
    }
}

/// Form of a name in the list.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The whole name.
    Is(&'static str),
    /// The beginning of the name.
    Begins(&'static str),
    /// The whole name of a file, not of a directory, because the name is a common word.
    IsFile(&'static str),
}

/// Names of files and directories, in lower case, in any directory.
const GUARDED: [(Form, Guard); 61] = [
    (Form::Is(".github"), Guard::Ci),
    (Form::Begins(".gitlab-ci"), Guard::Ci),
    (Form::Is(".gitlab"), Guard::Ci),
    (Form::Is(".gitea"), Guard::Ci),
    (Form::Is(".forgejo"), Guard::Ci),
    (Form::Is(".circleci"), Guard::Ci),
    (Form::Is(".buildkite"), Guard::Ci),
    (Form::Begins(".drone"), Guard::Ci),
    (Form::Begins(".woodpecker"), Guard::Ci),
    (Form::Begins("jenkinsfile"), Guard::Ci),
    (Form::Begins("azure-pipelines"), Guard::Ci),
    (Form::Begins(".azure-pipelines"), Guard::Ci),
    (Form::Is(".azuredevops"), Guard::Ci),
    (Form::Begins(".travis"), Guard::Ci),
    (Form::Begins("appveyor"), Guard::Ci),
    (Form::Begins(".appveyor"), Guard::Ci),
    (Form::Begins("bitbucket-pipelines"), Guard::Ci),
    (Form::Begins(".cirrus"), Guard::Ci),
    (Form::Begins(".semaphore"), Guard::Ci),
    (Form::Is(".teamcity"), Guard::Ci),
    (Form::Is(".tekton"), Guard::Ci),
    (Form::Begins(".build.y"), Guard::Ci),
    (Form::Is(".builds"), Guard::Ci),
    (Form::Begins("buildspec.y"), Guard::Ci),
    (Form::Begins("cloudbuild."), Guard::Ci),
    (Form::Begins(".pre-commit-config"), Guard::Ci),
    (Form::Begins("buildkite"), Guard::Ci),
    (Form::Begins(".zuul."), Guard::Ci),
    (Form::Begins("zuul."), Guard::Ci),
    (Form::Begins(".prow"), Guard::Ci),
    (Form::Begins(".onedev-buildspec"), Guard::Ci),
    (Form::Is(".harness"), Guard::Ci),
    (Form::Begins(".vsts-ci"), Guard::Ci),
    (Form::Begins(".packit.y"), Guard::Ci),
    (Form::Begins("bitrise.y"), Guard::Ci),
    (Form::Begins("codemagic.y"), Guard::Ci),
    (Form::Begins("wercker.y"), Guard::Ci),
    (Form::Begins(".readthedocs.y"), Guard::Ci),
    (Form::Is("netlify.toml"), Guard::Ci),
    (Form::Is("vercel.json"), Guard::Ci),
    (Form::Is(".devcontainer"), Guard::Ci),
    (Form::Is(".devcontainer.json"), Guard::Ci),
    (Form::Begins(".gitpod"), Guard::Ci),
    (Form::Is("bamboo-specs"), Guard::Ci),
    (Form::Begins(".taskcluster.y"), Guard::Ci),
    (Form::Begins(".vela."), Guard::Ci),
    (Form::Is(".agola"), Guard::Ci),
    (Form::Is(".space.kts"), Guard::Ci),
    (Form::Begins("codefresh.y"), Guard::Ci),
    (Form::Begins("screwdriver.y"), Guard::Ci),
    (Form::Is("codeowners"), Guard::Reviewers),
    // Prow reads the reviewers of a directory from this file.
    (Form::IsFile("owners"), Guard::Reviewers),
    (Form::IsFile("owners_aliases"), Guard::Reviewers),
    (Form::Is(".mailmap"), Guard::Reviewers),
    (Form::Is(".gitmodules"), Guard::Git),
    (Form::Is(".gitattributes"), Guard::Git),
    (Form::Is(".lfsconfig"), Guard::Git),
    (Form::Is(".gitconfig"), Guard::Git),
    // Short names of NTFS that contain a digest of the long name: for `.gitmodules`, `.gitattributes` and `.mailmap`.
    (Form::Begins("gi7eba~"), Guard::Git),
    (Form::Begins("gi7d29~"), Guard::Git),
    (Form::Begins("maba30~"), Guard::Reviewers),
];

/// Returns the reason why a change of this path needs an approval, if it does.
#[must_use]
pub fn guard_of(path: &[u8]) -> Option<Guard> {
    let path = String::from_utf8_lossy(path);
    // A backslash separates directories on Windows.
    let mut names = path.split(['/', '\\']).map(folded).peekable();
    while let Some(name) = names.next() {
        let is_file = names.peek().is_none();
        let listed = GUARDED.into_iter().find(|(form, _)| form.has(&name, is_file));
        if let Some((_, guard)) = listed {
            return Some(guard);
        }
    }
    None
}

impl Form {
    /// Returns true if the folded name of a file or directory has this form.
    fn has(self, name: &str, is_file: bool) -> bool {
        match self {
            Self::Is(listed) => name == listed || is_short_name(name, listed),
            Self::Begins(listed) => name.starts_with(listed) || is_short_name(name, listed),
            Self::IsFile(listed) => is_file && (name == listed || is_short_name(name, listed)),
        }
    }
}

/// Returns the normalized form of a name: it is the same for all names that some file system takes for the same file.
fn folded(name: &str) -> String {
    // HFS+ ignores some invisible characters (`next_hfs_char` of git). NTFS reads `name:stream` as the file `name`.
    let name = name.split(':').next().unwrap_or_default();
    let visible = name.chars().filter(|character| !is_invisible(*character));
    let lower: String = visible.flat_map(char::to_lowercase).map(simple_fold).collect();
    lower.trim_end_matches(['.', ' ']).to_owned()
}

/// Returns true for a short name that NTFS gives to a long one: its first letters without dots, `~` and a number.
fn is_short_name(name: &str, listed: &str) -> bool {
    let Some((start, number)) = name.split_once('~') else { return false };
    let letters: String = listed.trim_start_matches('.').chars().take_while(|letter| *letter != '.').take(6).collect();
    number.starts_with(|digit: char| digit.is_ascii_digit())
        && letters.starts_with(start)
        && start.len() >= letters.len().min(5)
}

/// Returns the lower-case ASCII letter for a letter that case folding, unlike lower-casing, makes equal to it.
fn simple_fold(character: char) -> char {
    if character == '\u{17f}' { 's' } else { character }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_approval(path: &str) -> bool {
        guard_of(path.as_bytes()).is_some()
    }

    #[test]
    fn each_listed_path_needs_an_approval() {
        for (path, guard) in [
            (".github/workflows/ci.yml", Guard::Ci),
            (".github", Guard::Ci),
            (".gitlab-ci.yml", Guard::Ci),
            (".gitlab-ci-extra.yaml", Guard::Ci),
            (".gitea/workflows/x.yaml", Guard::Ci),
            (".forgejo/workflows/x.yaml", Guard::Ci),
            (".circleci/config.yml", Guard::Ci),
            (".buildkite/pipeline.yml", Guard::Ci),
            (".drone.yml", Guard::Ci),
            (".drone.star", Guard::Ci),
            (".drone.jsonnet", Guard::Ci),
            (".woodpecker.yml", Guard::Ci),
            (".woodpecker/build.yaml", Guard::Ci),
            ("Jenkinsfile", Guard::Ci),
            ("deploy/Jenkinsfile.prod", Guard::Ci),
            ("azure-pipelines.yml", Guard::Ci),
            ("azure-pipelines-2.yaml", Guard::Ci),
            (".travis.yml", Guard::Ci),
            ("buildkite.yml", Guard::Ci),
            (".zuul.yaml", Guard::Ci),
            ("zuul.d/jobs.yaml", Guard::Ci),
            (".readthedocs.yaml", Guard::Ci),
            (".devcontainer/devcontainer.json", Guard::Ci),
            (".gitpod.yml", Guard::Ci),
            ("bamboo-specs/bamboo.yml", Guard::Ci),
            (".taskcluster.yml", Guard::Ci),
            (".vela.yml", Guard::Ci),
            (".agola/config.jsonnet", Guard::Ci),
            (".space.kts", Guard::Ci),
            ("codefresh.yml", Guard::Ci),
            ("screwdriver.yaml", Guard::Ci),
            ("OWNERS", Guard::Reviewers),
            ("pkg/api/OWNERS", Guard::Reviewers),
            ("OWNERS_ALIASES", Guard::Reviewers),
            ("CODEOWNERS", Guard::Reviewers),
            ("docs/CODEOWNERS", Guard::Reviewers),
            (".gitmodules", Guard::Git),
            ("a/b/.gitattributes", Guard::Git),
            (".lfsconfig", Guard::Git),
        ] {
            assert_eq!(guard_of(path.as_bytes()), Some(guard), "{path}");
            assert!(!guard.as_str().is_empty());
        }
    }

    #[test]
    fn every_variant_of_a_name_needs_an_approval() {
        for path in [
            ".GitHub/workflows/ci.yml", ".GITHUB/x", ".gIt\u{200c}hub/x", "\u{feff}.github/x", ".git\u{200d}modules",
            ".github./x", ".github /x", ".github. . /x", ".github:x", ".gitmodules::$DATA", ".github\\workflows\\x",
            "JENKINSFILE", "jenKin\u{17f}file", "Jen\u{212a}insfile", "codeOwners", "a/.GITATTRIBUTES",
            ".Gitlab-CI.YML", ".DRONE.YML", "AZURE-pipelines.yml", ".circle\u{202e}ci/config.yml", "sub/.github/x",
            ".gitattrib\u{ad}utes", "GITMOD~1", "a/GITATT~1", "gi7eba~2", "GITHUB~1/x", "GITLA~12.YML", "CODEOW~1",
            "JENKIN~1.X", ".git\u{fe0f}hub/x", "code\u{180b}owners",
        ] {
            assert!(needs_approval(path), "{path:?}");
        }
    }

    #[test]
    fn other_paths_need_no_approval() {
        for path in [
            "", "README.md", "src/github.rs", "github/workflows/ci.yml", ".gitignore", "docs/codeowners.md",
            "my-Jenkinsfile", "pipelines/azure.yml", ".githubs/x", "gitmod", "git~1", "main~1", "gith~1", "gitmodx~1",
            ".git-blame-ignore-revs", "drone.yml", "src/owners/mod.rs", "owners.md", "bamboo/specs.yml",
        ] {
            assert!(!needs_approval(path), "{path:?}");
        }
        assert_eq!(guard_of(b"\xff/.github/\xfe"), Some(Guard::Ci));
        assert_eq!(guard_of(b"\xff\xfe"), None);
    }

    /// A comparison without renames shows each rename as a deletion and an addition.
    #[test]
    fn both_sides_of_a_rename_count() {
        let into: [&[u8]; 2] = [b"harmless.yml", b".github/workflows/harmless.yml"];
        let out_of: [&[u8]; 2] = [b"CODEOWNERS", b"old/people"];
        assert_eq!(into.map(guard_of), [None, Some(Guard::Ci)]);
        assert_eq!(out_of.map(guard_of), [Some(Guard::Reviewers), None]);
    }
}
