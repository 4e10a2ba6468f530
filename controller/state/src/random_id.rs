//! Random ids that people copy.

/// Returns a prefix with twelve random hexadecimal digits.
pub(crate) fn random_id(prefix: &str) -> String {
    let digits = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}{}", &digits[..12])
}
