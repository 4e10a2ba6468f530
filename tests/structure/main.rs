//! The structure of the sources: imports, dependencies between crates, pure files, sizes, names of tests.
//!
//! The rules read text, not compiled code: comments, strings and test items are taken out before.

mod arrows;
mod circles;
mod modules;
mod names;
mod paths;
mod pure;
mod sizes;
mod source;
mod violation;
mod workspace;

use circles::Circle;
use violation::Violation;
use workspace::Tree;

#[test]
fn the_workspace_keeps_its_structure() {
    let crates = workspace::crates();
    let trees = || crates.iter().flat_map(|member| &member.trees);
    let mut found: Vec<Violation> = trees().flat_map(circles_of).collect();
    found.extend(trees().filter(|tree| !tree.is_test).flat_map(top_level_circles_of));
    found.extend(trees().flat_map(path_attributes_of));
    found.extend(arrows::violations(&crates));
    found.extend(pure::violations(trees().flat_map(|tree| tree.modules.files()), &pure::MUST_BE_PURE));
    let programs = trees().filter(|tree| !tree.is_test);
    found.extend(sizes::violations(programs.flat_map(|tree| tree.modules.files())));
    let suites = trees().filter(|tree| tree.is_test);
    found.extend(names::violations(suites.flat_map(|tree| tree.modules.files())));
    let messages: Vec<String> = found.iter().map(Violation::to_string).collect();
    assert!(messages.is_empty(), "\n{}", messages.join("\n"));
}

fn circles_of(tree: &Tree) -> Vec<Violation> {
    reported("import circles", &circles::circles(&tree.modules.imports()))
}

fn top_level_circles_of(tree: &Tree) -> Vec<Violation> {
    reported("top-level circles", &circles::top_level_circles(&tree.modules.imports()))
}

/// A circle is reported at each of its imports.
fn reported(rule: &'static str, circles: &[Circle]) -> Vec<Violation> {
    let mut found = Vec::new();
    for circle in circles {
        let names = circle.names();
        for import in &circle.imports {
            let (from, to) = (import.from.join("/"), import.to.join("/"));
            let what = format!("{from} imports {to} ({}), in the circle of {names}", import.path);
            found.push(Violation::new(rule, &import.file, import.line, what));
        }
    }
    found
}

/// A file that two modules include would be two modules with one text.
fn path_attributes_of(tree: &Tree) -> Vec<Violation> {
    let what = || "a #[path] attribute puts a file into a module elsewhere".to_owned();
    let violation = |(file, line): &(String, usize)| Violation::new("path attributes", file, *line, what());
    tree.path_attributes.iter().map(violation).collect()
}
