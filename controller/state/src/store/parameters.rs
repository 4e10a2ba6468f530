//! Values of a query that is put together from parts.

use rusqlite::types::Value;
use rusqlite::{Connection, Result, Row, Statement, params_from_iter};

/// Values of queries, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<Value>);

impl Parameters {
    /// Adds a value, and returns its placeholder in a query.
    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> String {
        self.0.push(value.into());
        format!("?{}", self.0.len())
    }

    /// Returns the rows of a query.
    pub(crate) fn rows<T>(
        &self,
        connection: &Connection,
        query: &str,
        row: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut query = connection.prepare_cached(query)?;
        let values = self.values_of(&query);
        query.query_map(params_from_iter(values), row)?.collect()
    }

    /// Returns the only row of a query.
    pub(crate) fn row<T>(
        &self,
        connection: &Connection,
        query: &str,
        row: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut query = connection.prepare_cached(query)?;
        let values = self.values_of(&query);
        query.query_row(params_from_iter(values), row)
    }

    /// Returns the values up to the last one that a query names.
    fn values_of(&self, query: &Statement<'_>) -> &[Value] {
        &self.0[..query.parameter_count()]
    }
}

/// Returns the conjunction of these conditions; an empty list is true.
pub(crate) fn all_of(conditions: &[String]) -> String {
    if conditions.is_empty() { "1".to_owned() } else { conditions.join(" AND ") }
}
