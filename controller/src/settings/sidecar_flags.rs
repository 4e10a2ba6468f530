//! The flags of a sidecar that settings become.
//!
//! Pure.

use super::error::SettingError;
use super::layers::SettingLayers;
use super::table::{SIDECAR_FLAGS, separator};
use super::values;

/// Returns the flags of each sidecar, except for addresses, names and prices, which a run adds.
///
/// # Errors
/// The first value that is not valid. Values of [`SIDECAR_FLAGS`] are checked by the sidecar itself.
pub(super) fn sidecar_flags(layers: &SettingLayers) -> Result<Vec<String>, SettingError> {
    for name in ["max_calls", "max_tokens"] {
        layers.parse(name, values::number)?;
    }
    layers.parse("audit_sync", values::audit_sync)?;
    let mut flags = Vec::new();
    for name in ["max_calls", "max_tokens", "rate", "audit_sync"] {
        if let Some((value, _)) = layers.get(name) {
            flags.extend([flag(name), value.to_owned()]);
        }
    }
    for name in SIDECAR_FLAGS {
        let value = layers.get(name).map_or("", |(value, _)| value);
        // A setting without a separator has one value.
        let values = value.split(separator(name).unwrap_or('\0')).filter(|value| !value.is_empty());
        flags.extend(values.map(|value| format!("{}={value}", flag(name))));
    }
    if layers.parse("allow_remote_media", values::boolean)? == Some(true) {
        flags.push("--allow-remote-media".to_owned());
    }
    if let Some(memory) = layers.parse("sidecar_memory", values::sidecar_memory)? {
        flags.extend(["--max-memory".to_owned(), memory]);
    }
    Ok(flags)
}

fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}
