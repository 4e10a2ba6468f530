//! Size of the database.

use super::{Store, StoreError};

impl Store {
    /// Returns the number of bytes that the database uses, without the part of its file that is free.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn used_bytes(&self) -> Result<u64, StoreError> {
        self.query(|connection| {
            let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
            Ok(pages.unsigned_abs().saturating_mul(number("page_size")?.unsigned_abs()))
        })
        .await
    }
}
