//! Which module of a crate imports which other one.
//!
//! Pure. A path that goes through a re-export leads to the module that defines the item.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{NamedPath, PathKind, paths_of};
use crate::source::Source;

/// A module's place in its crate: `["ledger", "entry"]`. The root is empty.
pub(crate) type Module = Vec<String>;

/// The modules of one crate, or of one program or test of a package.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    files: BTreeMap<Module, (String, Source)>,
}

/// An import of one module by another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: Module,
    pub(crate) to: Module,
    /// File and line of the first path that leads from one to the other.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) path: String,
}

impl Modules {
    /// Takes the files of a tree: (path below the root's folder, path to show, source).
    ///
    /// Modules that only tests have are left out.
    pub(crate) fn new(files: impl IntoIterator<Item = (String, String, Source)>) -> Self {
        let files: Vec<_> = files.into_iter().collect();
        let has_library = files.iter().any(|(path, ..)| path == "lib.rs");
        let mut modules = Self::default();
        let mut only_tests = BTreeSet::new();
        for (path, shown, source) in files {
            let module = module_of(&path, has_library);
            only_tests.extend(source.test_modules.iter().map(|name| child(&module, name)));
            modules.files.insert(module, (shown, source));
        }
        modules.files.retain(|module, _| !only_tests.iter().any(|tests| module.starts_with(tests)));
        modules
    }

    /// Returns the file and the source of each module.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files.values().map(|(file, source)| (file.as_str(), source))
    }

    /// Returns each import, once for each pair of modules. Re-exports, and imports of the root, do not count.
    pub(crate) fn imports(&self) -> Vec<Import> {
        let paths: BTreeMap<&Module, Vec<NamedPath>> =
            self.files.iter().map(|(module, (_, source))| (module, paths_of(source))).collect();
        let re_exports = self.re_exports(&paths);
        let mut imports: BTreeMap<(Module, Module), Import> = BTreeMap::new();
        for (module, paths) in paths {
            for path in paths.iter().filter(|path| path.kind != PathKind::ReExport) {
                let Some(to) = self.absolute(module, &path.segments).and_then(|path| self.target(path, &re_exports))
                else {
                    continue;
                };
                if to.is_empty() || to == *module {
                    continue;
                }
                imports.entry((module.clone(), to.clone())).or_insert_with(|| Import {
                    from: module.clone(),
                    to,
                    file: self.files[module].0.clone(),
                    line: path.line,
                    path: path.text(),
                });
            }
        }
        imports.into_values().collect()
    }

    fn re_exports(&self, paths: &BTreeMap<&Module, Vec<NamedPath>>) -> BTreeMap<(Module, String), Vec<String>> {
        let mut found = BTreeMap::new();
        for (module, paths) in paths {
            for path in paths.iter().filter(|path| path.kind == PathKind::ReExport) {
                if let Some(absolute) = self.absolute(module, &path.segments)
                    && let Some(name) = absolute.last().cloned()
                {
                    found.insert(((*module).clone(), name), absolute);
                }
            }
        }
        found
    }

    /// Returns a path from the root of the crate; `None` if it leads to another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let joined = |base: &[String], rest: &[String]| base.iter().chain(rest).cloned().collect();
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some(joined(module, &path[1..])),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                Some(joined(&module[..module.len().saturating_sub(ups)], &path[ups..]))
            }
            first => self.files.contains_key(&child(module, first)).then(|| joined(module, path)),
        }
    }

    /// Returns the module that a path leads to: the longest part of it that is a module, through its re-exports.
    fn target(&self, mut path: Vec<String>, re_exports: &BTreeMap<(Module, String), Vec<String>>) -> Option<Module> {
        // Re-exports of re-exports: a bound ends a circle of them.
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
            let (module, rest) = path.split_at(length);
            let followed = rest.first().and_then(|name| re_exports.get(&(module.to_vec(), name.clone())));
            let Some(followed) = followed.filter(|followed| **followed != path) else {
                return Some(module.to_vec());
            };
            path = followed.iter().chain(&rest[1..]).cloned().collect();
        }
        None
    }
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns the module of a file. Beside a library, `main.rs` is the root of another crate.
fn module_of(path: &str, has_library: bool) -> Module {
    let segments: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["lib"] => Vec::new(),
        ["main"] if has_library => vec!["<main>".to_owned()],
        ["main"] => Vec::new(),
        [parents @ .., "mod"] => parents.iter().map(|&segment| segment.to_owned()).collect(),
        _ => segments,
    }
}

#[cfg(test)]
mod tests {
    use super::Modules;
    use crate::source::Source;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (path.to_string(), format!("src/{path}"), Source::parse(text)));
        let imports = Modules::new(files).imports();
        let shown = |import: &super::Import| {
            format!("{} -> {} {}:{}", import.from.join("/"), import.to.join("/"), import.file, import.line)
        };
        imports.iter().map(shown).collect()
    }

    #[test]
    fn imports_are_found_in_each_spelling() {
        for text in
            ["use crate::b::B;", "use super::b::{self, C};", "fn f() -> crate::b::B {}", "fn f() { super::b::c() }"]
        {
            assert_eq!(
                imports(&[("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "")]),
                ["a -> b src/a.rs:1"],
                "{text}"
            );
        }
        assert_eq!(
            imports(&[("lib.rs", ""), ("a.rs", "mod b;\nfn f() { b::c() }"), ("a/b.rs", "")]),
            ["a -> a/b src/a.rs:2"]
        );
    }

    #[test]
    fn a_re_export_leads_to_the_defining_module() {
        let files =
            [("lib.rs", ""), ("a.rs", "use crate::b::Thing;"), ("b.rs", "mod c; pub use c::Thing;"), ("b/c.rs", "")];
        assert_eq!(imports(&files), ["a -> b/c src/a.rs:1"]);
        let files = [
            ("lib.rs", "pub use b::Thing;"),
            ("a.rs", "use crate::Thing;"),
            ("b.rs", "pub use c::Thing;"),
            ("b/c.rs", ""),
        ];
        assert_eq!(imports(&files), ["a -> b/c src/a.rs:1"]);
    }

    #[test]
    fn comments_strings_and_tests_import_nothing() {
        let text = "// crate::b::B\nconst A: &str = \"crate::b::B\";\n#[cfg(test)]\nmod tests { use crate::b::B; }";
        assert!(imports(&[("lib.rs", ""), ("a.rs", text), ("b.rs", "")]).is_empty());
        let files =
            [("lib.rs", ""), ("a.rs", "#[cfg(test)]\nmod kit;"), ("a/kit.rs", "use crate::b::B;"), ("b.rs", "")];
        assert!(imports(&files).is_empty());
    }

    #[test]
    fn other_crates_are_not_modules() {
        assert!(imports(&[("lib.rs", ""), ("a.rs", "use std::b::C;\nuse b::C;"), ("b.rs", "")]).is_empty());
    }
}
