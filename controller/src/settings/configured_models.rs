//! The models that settings give to runs which name none.
//!
//! Pure.

use super::error::SettingSource;
use super::layers::SettingLayers;

/// A model that a setting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredModel {
    /// Name of the model.
    pub name: String,
    /// Setting that names it, as its user wrote it, such as `model in /etc/sluice/sluice.toml:3`.
    pub setting: String,
}

impl SettingLayers {
    /// Returns the models of the flag or of the variable, if one is set, since it replaces all others; otherwise the
    /// models of the configuration file and of all its profiles.
    pub(super) fn configured_models(&self) -> Vec<ConfiguredModel> {
        let values: Vec<(&str, &SettingSource)> = match self.get("model") {
            Some(set @ (_, SettingSource::Flag | SettingSource::Variable(_))) => vec![set],
            _ => self.models_of_file().collect(),
        };
        let mut models = Vec::new();
        for (value, from) in values {
            let setting = from.name_of("model");
            let names = value.split_whitespace().map(str::to_owned);
            models.extend(names.map(|name| ConfiguredModel { name, setting: setting.clone() }));
        }
        models
    }
}
