//! Values that a request may state as a text or as a number.
//!
//! Pure.

use serde::Deserialize;
use sluice_contract::units::{UnitError, nano_usd};
use utoipa::ToSchema;

use crate::api_error::ApiError;

/// A value, as a text such as `0.25` or `512m`, or as a number.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Quantity {
    Text(String),
    Number(f64),
}

impl Quantity {
    /// Returns the value as a text in the grammar of settings.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }

    /// Reads the value of a member.
    ///
    /// # Errors
    /// 422, with the name of the member.
    pub(super) fn read<T>(&self, field: &str, parse: fn(&str) -> Result<T, UnitError>) -> Result<T, ApiError> {
        parse(&self.text()).map_err(|error| ApiError::invalid(field, error.to_string()))
    }

    /// Reads an amount of dollars as nano-USD.
    ///
    /// # Errors
    /// 422, with the name of the member.
    pub(super) fn usd(&self, field: &str) -> Result<i64, ApiError> {
        self.read(field, nano_usd)
    }
}

/// Reads a whole number.
///
/// # Errors
/// The text is not a whole number, or the number is more than 2^53.
pub(super) fn whole(text: &str) -> Result<u64, UnitError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<u64>().ok().filter(|number| is_number && *number <= 1 << 53);
    number.ok_or_else(|| UnitError::new(format!("'{text}' is not a number; write digits alone")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_mean_the_same() {
        let rows = [(Quantity::Text("0.25".to_owned()), 250_000_000), (Quantity::Number(0.25), 250_000_000)];
        for (quantity, nanos) in rows {
            assert_eq!(quantity.usd("f").map_err(|error| error.code()), Ok(nanos));
        }
        assert_eq!(Quantity::Number(1_073_741_824.0).text(), "1073741824");
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(Quantity::Number(bad).usd("f").is_err(), "{bad}");
        }
        for bad in ["", "+1", "-1", "1.5", "9007199254740993"] {
            assert!(whole(bad).is_err(), "{bad}");
        }
    }
}
