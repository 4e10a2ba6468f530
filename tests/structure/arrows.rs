//! Which crate may depend on which.
//!
//! Pure.

use crate::violation::Violation;
use crate::workspace::Crate;

/// The crates of the workspace, and those of the workspace that each may name.
const ALLOWED: [(&str, &[&str]); 11] = [
    (
        "sluice-controller",
        &[
            "sluice-client", "sluice-daemon", "sluice-git", "sluice-runs", "sluice-state", "sluice-litellm",
            "sluice-contract", "sluice-upstream",
        ],
    ),
    ("sluice-client", &["sluice-contract", "sluice-upstream"]),
    ("sluice-daemon", &["sluice-runs", "sluice-git", "sluice-state", "sluice-contract", "sluice-upstream"]),
    ("sluice-git", &["sluice-contract", "sluice-upstream"]),
    ("sluice-runs", &["sluice-git", "sluice-state", "sluice-litellm", "sluice-contract", "sluice-upstream"]),
    ("sluice-state", &["sluice-contract"]),
    ("sluice-litellm", &["sluice-contract", "sluice-upstream"]),
    ("sluice-proxy", &["sluice-contract", "sluice-upstream"]),
    ("sluice-upstream", &["sluice-contract"]),
    ("sluice-contract", &[]),
    ("sluice-testkit", &["sluice-contract"]),
];

/// Libraries that one crate alone may name.
const OWNED: [(&str, &str); 2] = [("rusqlite", "sluice-state"), ("bollard", "sluice-runs")];

/// Returns the dependencies that point upward, crates without a row in the table, and libraries outside of their crate.
pub(crate) fn violations(crates: &[Crate]) -> Vec<Violation> {
    crates.iter().flat_map(|member| upward(member, crates).into_iter().chain(foreign(member))).collect()
}

fn upward(member: &Crate, crates: &[Crate]) -> Vec<Violation> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member.name) else {
        let what = format!("{} has no row in the table of allowed dependencies (arrows.rs)", member.name);
        return vec![Violation::new("crate arrows", &member.manifest, 1, what)];
    };
    let is_member =
        |name: &str| ALLOWED.iter().any(|(known, _)| *known == name) || crates.iter().any(|one| one.name == name);
    let wrong = member.dependencies.iter().filter(|(name, _)| is_member(name) && !allowed.contains(&name.as_str()));
    let violation = |(name, line): &(String, usize)| {
        let what = format!("{} must not depend on {name}", member.name);
        Violation::new("crate arrows", &member.manifest, *line, what)
    };
    wrong.map(violation).collect()
}

fn foreign(member: &Crate) -> Vec<Violation> {
    let mut found = Vec::new();
    for (library, owner) in OWNED.iter().filter(|(_, owner)| *owner != member.name) {
        let mut add = |file: &str, line: usize| {
            let what = format!("only {owner} may name {library}");
            found.push(Violation::new("owned libraries", file, line, what));
        };
        for (_, line) in member.dependencies.iter().filter(|(name, _)| name == library) {
            add(&member.manifest, *line);
        }
        for (file, source) in member.trees.iter().flat_map(|tree| tree.modules.files()) {
            let paths = crate::paths::paths_of(source);
            if let Some(path) = paths.iter().find(|path| path.segments[0] == *library) {
                add(file, path.line);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::violations;
    use crate::modules::Modules;
    use crate::source::Source;
    use crate::workspace::{Crate, Tree};

    fn member(name: &str, dependencies: &[&str], text: &str) -> Crate {
        let file = ("lib.rs".to_owned(), format!("{name}/src/lib.rs"), Source::parse(text));
        let modules = Modules::new([file]);
        Crate {
            name: name.to_owned(),
            manifest: format!("{name}/Cargo.toml"),
            dependencies: dependencies.iter().zip(7..).map(|(name, line)| (name.to_string(), line)).collect(),
            trees: vec![Tree { is_test: false, modules, path_attributes: Vec::new() }],
        }
    }

    fn found(member: Crate) -> Vec<String> {
        violations(&[member]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn allowed_arrows_pass() {
        let runs = member("sluice-runs", &["sluice-state", "serde", "bollard"], "use bollard::Docker;");
        assert!(violations(&[runs, member("sluice-state", &["sluice-contract", "rusqlite"], "")]).is_empty());
    }

    #[test]
    fn an_upward_arrow_is_found() {
        assert_eq!(
            found(member("sluice-state", &["serde", "sluice-runs"], "")),
            ["sluice-state/Cargo.toml:8: crate arrows: sluice-state must not depend on sluice-runs"]
        );
        assert_eq!(found(member("sluice-proxy", &["sluice-controller"], "")).len(), 1);
        assert_eq!(found(member("sluice-contract", &["sluice-upstream"], "")).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(
            found(member("sluice-console", &[], "")),
            [
                "sluice-console/Cargo.toml:1: crate arrows: sluice-console has no row in the table of allowed dependencies \
              (arrows.rs)"
            ]
        );
    }

    #[test]
    fn a_library_outside_of_its_crate_is_found() {
        assert_eq!(
            found(member("sluice-runs", &["rusqlite"], "fn f() { rusqlite::params![] }")),
            [
                "sluice-runs/Cargo.toml:7: owned libraries: only sluice-state may name rusqlite",
                "sluice-runs/src/lib.rs:1: owned libraries: only sluice-state may name rusqlite"
            ]
        );
        assert_eq!(found(member("sluice-state", &[], "use bollard::Docker;")).len(), 1);
    }
}
