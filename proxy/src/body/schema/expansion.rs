//! The size of a schema with all of its references written out.
//!
//! Pure.

use std::collections::HashMap;

/// Maximum number of places that the references of a schema may expand to.
pub(super) const PLACES_MAX: u64 = 2000;
/// Maximum number of bytes that they may expand to.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Tokens by which its numbers may grow.
    pub(super) numbers: u64,
    /// The references in it.
    pub(super) references: Vec<usize>,
}

/// Returns the bytes that a schema grows by when every reference is written out; `None` if they are over the limits.
pub(super) fn growth(definitions: &[Definition], references: &[String]) -> Option<u64> {
    let mut expansion = RefExpansion::new(definitions, references);
    (0..references.len()).all(|reference| expansion.write(reference)).then_some(expansion.bytes)
}

/// State of writing every reference out, except references to a definition that is being written out already.
struct RefExpansion<'a> {
    definitions: &'a [Definition],
    /// Definitions with the name of each reference.
    targets: Vec<Vec<usize>>,
    open: Vec<bool>,
    places: u64,
    bytes: u64,
}

impl<'a> RefExpansion<'a> {
    fn new(definitions: &'a [Definition], references: &[String]) -> Self {
        let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, definition) in definitions.iter().enumerate() {
            named.entry(&definition.name).or_default().push(i);
        }
        let targets = references.iter().map(|name| named.get(name.as_str()).cloned().unwrap_or_default());
        let targets = targets.collect();
        let open = vec![false; definitions.len()];
        Self { definitions, targets, open, places: 0, bytes: 0 }
    }

    fn write(&mut self, reference: usize) -> bool {
        self.places += 1;
        if self.places > PLACES_MAX || self.bytes > BYTES_MAX {
            return false;
        }
        for i in 0..self.targets[reference].len() {
            let target = self.targets[reference][i];
            if std::mem::replace(&mut self.open[target], true) {
                continue;
            }
            let definition = &self.definitions[target];
            self.bytes += definition.bytes + definition.numbers;
            if !definition.references.iter().all(|inner| self.write(*inner)) {
                return false;
            }
            self.open[target] = false;
        }
        true
    }
}
