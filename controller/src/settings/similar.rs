//! Names that were probably meant.
//!
//! Pure.

/// Similarity from which a name is suggested, as clap does for flags.
const LIKELY: f64 = 0.8;

/// Returns the most similar name, if any is similar enough.
pub(super) fn similar<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    let likely = scored.filter(|(score, _)| *score >= LIKELY);
    likely.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}
