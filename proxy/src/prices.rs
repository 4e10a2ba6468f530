//! The prices of models: a file in the format of LiteLLM's `/model/info`.
//!
//! Pure. Prices are kept as femto-USD per token (10^-15), since a token may cost less than a nano-USD. A model has
//! many rates: for long prompts, for cached ones, for speech, for a faster service. A reservation takes the dearest
//! rate that may apply.

mod model_info;
mod rate;

use std::collections::HashMap;
use std::sync::Arc;

pub use rate::{FEMTOS_PER_NANO, Price, RateFactors, nanos};

use model_info::PriceFile;
use rate::dearer_of;

/// The prices of the models that this run may use.
#[derive(Debug, Clone, Default)]
pub struct PriceTable {
    models: HashMap<String, Arc<Price>>,
    /// Price of a model that the file does not name: the dearest rates in the file.
    dearest: Arc<Price>,
}

/// Reason why a file is not a price list.
#[derive(Debug, thiserror::Error)]
pub enum PriceTableError {
    /// The file does not have the format of `/model/info`.
    #[error(
        "want the JSON of LiteLLM's GET /model/info: {{\"data\":[{{\"model_name\":…,\"model_info\":{{\"input_cost_per_token\":…}}}}]}}"
    )]
    Shape(#[source] serde_json::Error),
    /// No model in the file has a price.
    #[error("no model in it has an input_cost_per_token and an output_cost_per_token")]
    Empty,
}

impl PriceTable {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// [`PriceTableError`]
    pub fn parse(text: &str) -> Result<Self, PriceTableError> {
        let file: PriceFile<'_> = serde_json::from_str(text).map_err(PriceTableError::Shape)?;
        let mut models: HashMap<String, Price> = HashMap::new();
        let mut dearest = None;
        for entry in file.data {
            let Some(price) = entry.price() else { continue };
            dearest = Some(dearer_of(dearest, &price));
            // Deployments of one name may differ: a call may cost what the dearer one costs.
            let known = models.remove(&entry.model_name);
            models.insert(entry.model_name, dearer_of(known, &price));
        }
        let dearest = dearest.ok_or(PriceTableError::Empty)?;
        let models = models.into_iter().map(|(name, price)| (name, Arc::new(price))).collect();
        // The file says nothing about the longest response of a model that it does not name.
        Ok(Self { models, dearest: Arc::new(Price { max_output: None, ..dearest }) })
    }

    /// Returns the price of a model, or the dearest one known.
    #[must_use]
    pub fn of(&self, model: &str) -> Arc<Price> {
        Arc::clone(self.models.get(model).unwrap_or(&self.dearest))
    }
}

#[cfg(test)]
mod tests;
