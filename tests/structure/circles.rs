//! Import circles within a crate.
//!
//! Pure. A parent and its children may name each other: they are one module in several files. Siblings may not. The
//! top-level modules of a crate are also checked as wholes: two of them that use each other cannot be read or moved
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Import, Module};

/// Modules that import each other, and the imports that make the circle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    pub(crate) modules: BTreeSet<Module>,
    pub(crate) imports: Vec<Import>,
}

impl Circle {
    fn of(modules: BTreeSet<Module>, imports: &[Import]) -> Self {
        let inside = |import: &&Import| modules.contains(&import.from) && modules.contains(&import.to);
        let imports = imports.iter().filter(inside).cloned().collect();
        Self { modules, imports }
    }

    /// Returns the modules as one line: `ledger/entry ledger/ingest receipt`.
    pub(crate) fn names(&self) -> String {
        self.modules.iter().map(|module| module.join("/")).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the circles among these imports.
pub(crate) fn circles(imports: &[Import]) -> Vec<Circle> {
    let mut found = Vec::new();
    for modules in knots(imports.iter()) {
        if !is_family(&modules) {
            found.push(Circle::of(modules, imports));
            continue;
        }
        // The imports between parent and child are allowed; what is left of the family must have no circle.
        let inside = |import: &&Import| modules.contains(&import.from) && modules.contains(&import.to);
        let sideways: Vec<Import> = imports.iter().filter(inside).filter(|import| !is_kin(import)).cloned().collect();
        found.extend(knots(sideways.iter()).into_iter().map(|modules| Circle::of(modules, &sideways)));
    }
    found
}

/// Returns the circles among the top-level modules, each with all files below it. The root of the crate is not one of them.
pub(crate) fn top_level_circles(imports: &[Import]) -> Vec<Circle> {
    let top = |module: &Module| module.first().map(|name| vec![name.clone()]);
    let between = |import: &Import| {
        let (from, to) = (top(&import.from)?, top(&import.to)?);
        (from != to).then(|| Import { from, to, ..import.clone() })
    };
    let imports: Vec<Import> = imports.iter().filter_map(between).collect();
    knots(imports.iter()).into_iter().map(|modules| Circle::of(modules, &imports)).collect()
}

/// Returns true if all modules are below one top-level module, and each has an ancestor or a descendant among them.
fn is_family(modules: &BTreeSet<Module>) -> bool {
    let tops: BTreeSet<_> = modules.iter().map(|module| module.first()).collect();
    tops.len() == 1 && modules.iter().all(|module| modules.iter().any(|other| is_related(module, other)))
}

fn is_related(one: &Module, other: &Module) -> bool {
    one != other && (one.starts_with(other) || other.starts_with(one))
}

fn is_kin(import: &Import) -> bool {
    is_related(&import.from, &import.to)
}

/// Returns the sets of modules that reach each other.
fn knots<'a>(imports: impl Iterator<Item = &'a Import>) -> Vec<BTreeSet<Module>> {
    let mut next: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for import in imports {
        next.entry(&import.from).or_default().insert(&import.to);
    }
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        next.keys().map(|&module| (module, reachable(module, &next))).collect();
    let reaches = |from: &Module, to: &Module| reached.get(from).is_some_and(|modules| modules.contains(to));
    let mut found: BTreeSet<BTreeSet<Module>> = BTreeSet::new();
    for (&module, others) in reached.iter().filter(|(module, others)| others.contains(*module)) {
        found.insert(others.iter().filter(|&&other| reaches(other, module)).map(|&other| other.clone()).collect());
    }
    found.into_iter().collect()
}

fn reachable<'a>(start: &'a Module, next: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(module) = open.pop() {
        for &other in next.get(module).into_iter().flatten() {
            if reached.insert(other) {
                open.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{Circle, Import, circles, top_level_circles};

    fn imports(arrows: &[&str]) -> Vec<Import> {
        let module = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let import = |arrow: &&str| {
            let (from, to) = arrow.split_once(" > ").expect("an arrow has two ends");
            Import { from: module(from), to: module(to), file: String::new(), line: 1, path: String::new() }
        };
        arrows.iter().map(import).collect()
    }

    fn found(arrows: &[&str]) -> Vec<String> {
        circles(&imports(arrows)).iter().map(Circle::names).collect()
    }

    fn found_above(arrows: &[&str]) -> Vec<String> {
        top_level_circles(&imports(arrows)).iter().map(Circle::names).collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_a_circle() {
        assert_eq!(found(&["a > b", "b > a", "b > c"]), ["a b"]);
    }

    #[test]
    fn a_long_way_round_is_a_circle() {
        assert_eq!(found(&["a > b/x", "b/x > c", "c > d", "d > a", "e > a"]), ["a b/x c d"]);
        assert_eq!(found(&["a > b", "b > a", "c > d", "d > c"]), ["a b", "c d"]);
    }

    #[test]
    fn parent_and_child_may_import_each_other() {
        assert!(found(&["a > a/b", "a/b > a", "a > a/c", "a/c > a"]).is_empty());
    }

    #[test]
    fn brothers_may_not_import_each_other() {
        assert_eq!(found(&["a/b > a/c", "a/c > a/b"]), ["a/b a/c"]);
        assert_eq!(found(&["a > a/b", "a/b > a", "a/b > a/c", "a/c > a/b"]), ["a/b a/c"]);
    }

    #[test]
    fn a_circle_through_another_module_counts() {
        assert_eq!(found(&["a > a/b", "a/b > c", "c > a"]), ["a a/b c"]);
    }

    #[test]
    fn arrows_one_way_are_no_circle() {
        assert!(found(&["a > b", "a > c", "b > d", "c > d"]).is_empty());
    }

    #[test]
    fn top_level_modules_are_checked_as_wholes() {
        let arrows = ["a/x > b/y", "b/z > a/w", "b > c"];
        assert!(found(&arrows).is_empty());
        assert_eq!(found_above(&arrows), ["a b"]);
        assert_eq!(found_above(&["a/x > b", "b/y > c/z", "c > a/w", "d > a"]), ["a b c"]);
    }

    #[test]
    fn imports_within_one_module_are_no_circle_above() {
        assert!(found_above(&["a > a/b", "a/b > a", "a/b > a/c", "a/c > a/b"]).is_empty());
        assert!(found_above(&["a > b", "a/x > c", " > a", "b > c"]).is_empty());
    }
}
