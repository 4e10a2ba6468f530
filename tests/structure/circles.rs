//! Import circles within a crate.
//!
//! Pure. A parent and its children may name each other: they are one module in several files. Brothers may not.

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

/// Returns true if all modules are below one, and each has an ancestor or a descendant among them.
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
    use super::{Import, circles};

    fn found(arrows: &[&str]) -> Vec<String> {
        let module = |name: &str| name.split('/').map(str::to_owned).collect();
        let import = |arrow: &&str| {
            let (from, to) = arrow.split_once(" > ").expect("an arrow has two ends");
            Import { from: module(from), to: module(to), file: String::new(), line: 1, path: String::new() }
        };
        circles(&arrows.iter().map(import).collect::<Vec<_>>()).iter().map(super::Circle::names).collect()
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
}
