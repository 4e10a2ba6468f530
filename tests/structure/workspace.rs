//! The crates of the workspace, read from their manifests and files.

use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

use crate::modules::Modules;
use crate::source::Source;

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// The manifest, from the root of the workspace.
    pub(crate) manifest: String,
    /// Names of all dependencies, those of tests and build scripts too, and their lines in the manifest.
    pub(crate) dependencies: Vec<(String, usize)>,
    pub(crate) trees: Vec<Tree>,
}

/// The files of a library with its program, or of one program or test elsewhere in the package.
#[derive(Debug)]
pub(crate) struct Tree {
    /// True for a `[[test]]`.
    pub(crate) is_test: bool,
    pub(crate) modules: Modules,
    /// `#[path]` attributes: file and line.
    pub(crate) path_attributes: Vec<(String, usize)>,
}

/// Returns the members of this repository's workspace.
pub(crate) fn crates() -> Vec<Crate> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the test kit is in the workspace's folder");
    let manifest = table(&read(&root.join("Cargo.toml")));
    let members = manifest["workspace"]["members"].as_array().expect("a workspace has members");
    members.iter().map(|member| crate_in(root, member.as_str().expect("a member is a folder"))).collect()
}

fn crate_in(root: &Path, folder: &str) -> Crate {
    let text = read(&root.join(folder).join("Cargo.toml"));
    let manifest = table(&text);
    let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
    Crate {
        name,
        manifest: format!("{folder}/Cargo.toml"),
        dependencies: dependencies(&manifest, &text),
        trees: roots(&manifest)
            .into_iter()
            .map(|(sub, is_test)| tree(root, &format!("{folder}/{sub}"), is_test))
            .collect(),
    }
}

/// Returns each dependency, and the first line that begins with its name.
fn dependencies(manifest: &Table, text: &str) -> Vec<(String, usize)> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(Table::values);
    let tables = targets.filter_map(toml::Value::as_table).chain([manifest]);
    let sections = tables.flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()));
    let mut found = Vec::new();
    for (name, value) in sections.flatten() {
        // A dependency may be renamed.
        let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(name);
        let is_it = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
        let line = text.lines().position(is_it).map_or(1, |line| line + 1);
        found.push((package.to_owned(), line));
    }
    found
}

/// Returns the folders of sources: `src`, and those of programs and tests elsewhere.
fn roots(manifest: &Table) -> Vec<(String, bool)> {
    let mut found = vec![("src".to_owned(), false)];
    for (kind, is_test) in [("bin", false), ("test", true)] {
        for target in manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten() {
            let path = target.get("path").and_then(toml::Value::as_str);
            let folder = path.and_then(|path| path.rsplit_once('/')).map(|(folder, _)| folder.to_owned());
            found.extend(folder.filter(|folder| folder != "src").map(|folder| (folder, is_test)));
        }
    }
    found
}

fn tree(root: &Path, folder: &str, is_test: bool) -> Tree {
    let base = root.join(folder);
    let (mut files, mut path_attributes) = (Vec::new(), Vec::new());
    for path in rust_files(&base) {
        let below = path.strip_prefix(&base).expect("the file is in the folder").display().to_string();
        let shown = format!("{folder}/{below}");
        let source = Source::parse(&read(&path));
        let attributes = source.code.match_indices("#[path");
        path_attributes.extend(attributes.map(|(at, _)| (shown.clone(), source.line_of(at))));
        files.push((below, shown, source));
    }
    Tree { is_test, modules: Modules::new(files), path_attributes }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    paths.sort();
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn table(text: &str) -> Table {
    text.parse().expect("a manifest is TOML")
}

#[cfg(test)]
mod tests {
    use super::{dependencies, roots, table};

    #[test]
    fn every_kind_of_dependency_is_read() {
        let text = "[package]\nname = 'a'\n[dependencies]\nb.workspace = true\nc = { package = 'd' }\n\
                    [dev-dependencies]\ne = '1'\n[target.'cfg(unix)'.dependencies]\nf = '1'\n";
        let mut found = dependencies(&table(text), text);
        found.sort();
        let names = [("b", 4), ("d", 5), ("e", 7), ("f", 9)];
        assert_eq!(found, names.map(|(name, line)| (name.to_owned(), line)));
    }

    #[test]
    fn programs_and_tests_have_folders() {
        let manifest =
            "[[bin]]\npath = 'src/main.rs'\n[[bin]]\npath = 'bench/main.rs'\n[[test]]\npath = 'e2e/main.rs'\n";
        let found = roots(&table(manifest));
        assert_eq!(found, [("src".to_owned(), false), ("bench".to_owned(), false), ("e2e".to_owned(), true)]);
    }
}
