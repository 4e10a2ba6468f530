//! Receipts of calls.

use std::sync::{Arc, mpsc};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sluice_contract::time::unix_micros;
use sluice_state::ledger::{BookedReceipt, Filter};
use utoipa::{OpenApi, ToSchema};

use super::paging::invalid_cursor;
use super::{Context, accounts, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(list))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/api/v1/receipts", get(list))
}

/// Selection of receipts.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReceiptQuery {
    /// Account that pays; needed if the token has several.
    account: Option<String>,
    /// Run id.
    run_id: Option<String>,
    /// Requested model.
    model: Option<String>,
    /// Only calls of unknown cost.
    #[serde(default)]
    open: bool,
    /// Number of receipts, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A page of a list of receipts.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Number of receipts, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A page of receipts, in the order in which the calls were made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Receipts {
    /// Receipts, as `sluice receipts --json` prints them.
    #[schema(value_type = Vec<Object>)]
    receipts: Vec<BookedReceipt>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
    /// True if more receipts follow.
    has_more: bool,
}

/// Position after which a page begins: a time, and the number of returned receipts with that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    origin_us: i64,
    given: usize,
}

/// Lists receipts of calls.
#[utoipa::path(
    get, path = "/api/v1/receipts", params(ReceiptQuery),
    responses(
        (status = 200, body = Receipts), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    Query(query): Query<ReceiptQuery>,
) -> Result<Json<Receipts>, ApiError> {
    let scope = principal.require(Operation::Read)?;
    let filter = Filter {
        account: accounts::asked(scope, query.account)?,
        owner: scope.owner().map(str::to_owned),
        run_id: query.run_id,
        model: query.model,
        open: query.open,
        ..Filter::default()
    };
    page(&context, filter, PageQuery { limit: query.limit, cursor: query.cursor }).await.map(Json)
}

/// Returns a page of the receipts of a filter.
pub(super) async fn page(context: &ApiContext, filter: Filter, query: PageQuery) -> Result<Receipts, ApiError> {
    let limit = paging::limit(query.limit, paging::LIST_MAX)? as usize;
    let after = query.cursor.as_deref().map(Cursor::parse).transpose()?;
    let filter = Filter { from_us: after.map(|cursor| cursor.origin_us), ..filter };
    let (found, page) = mpsc::channel();
    let (mut skip, mut left) = (after.map_or(0, |cursor| cursor.given), limit + 1);
    let take = move |receipt| {
        if skip > 0 {
            skip -= 1;
            return true;
        }
        left -= 1;
        found.send(receipt).is_ok() && left > 0
    };
    context.store.list(filter, take).await?;
    let mut receipts: Vec<BookedReceipt> = page.into_iter().collect();
    let has_more = receipts.len() > limit;
    receipts.truncate(limit);
    let next = if has_more { Cursor::after(&receipts, after) } else { None };
    Ok(Receipts { receipts, next_cursor: next.map(Cursor::text), has_more })
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let (origin, given) = text.split_once('.').ok_or_else(invalid_cursor)?;
        let cursor = Self {
            origin_us: origin.parse().map_err(|_| invalid_cursor())?,
            given: given.parse().map_err(|_| invalid_cursor())?,
        };
        if cursor.text() == text { Ok(cursor) } else { Err(invalid_cursor()) }
    }

    /// Returns the position after a page.
    fn after(page: &[BookedReceipt], before: Option<Self>) -> Option<Self> {
        let last = &page.last()?.origin;
        let origin_us = humantime::parse_rfc3339_weak(last).ok().and_then(unix_micros)?;
        let same = page.iter().rev().take_while(|receipt| receipt.origin == *last).count();
        // The page may have begun in the middle of this time.
        let earlier = before.filter(|cursor| cursor.origin_us == origin_us).map_or(0, |cursor| cursor.given);
        Some(Self { origin_us, given: same + earlier })
    }

    fn text(self) -> String {
        format!("{}.{}", self.origin_us, self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(origin: &str) -> BookedReceipt {
        BookedReceipt { origin: origin.to_owned(), ..BookedReceipt::default() }
    }

    #[test]
    fn a_cursor_counts_receipts_of_one_time() {
        let (first, second) = ("2026-03-01T10:20:30.123456Z", "2026-03-01T10:20:31.000000Z");
        let page = [at(first), at(second), at(second)];
        let cursor = Cursor::after(&page, None).expect("a time");
        assert_eq!((cursor.given, cursor.text()), (2, "1772360431000000.2".to_owned()));
        let next = Cursor::after(&[at(second)], Some(cursor)).expect("a time");
        assert_eq!(next.given, 3);
        assert_eq!(Cursor::parse(&next.text()).expect("our own"), next);
        for wrong in ["", "1", "1.", ".1", "1.-1", "01.1", "1.1.1", "a.b"] {
            assert!(Cursor::parse(wrong).is_err(), "{wrong}");
        }
    }
}
