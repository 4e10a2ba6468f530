//! The record of a request that was not forwarded: `refused`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::OptionalText;
use crate::encode::{WriteJson, write_members};

records! {
    /// A request that was not forwarded.
    Refused<'a> = "refused" {
        /// Account that pays for the run, as in `open`; left out in the files of older sidecars.
        #[serde(skip_serializing_if = "Option::is_none")]
        account: Option<OptionalText<'a>>,
        attempt: u32,
        kind: Cow<'a, str>,
        /// Method of the request.
        method: Cow<'a, str>,
        /// The model asked for, if the request named one before it was refused. This name, like `param` and `tool`, is
        /// left out where there is none, and in the files of older sidecars.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<OptionalText<'a>>,
        /// The member of the body that the request was refused for.
        #[serde(skip_serializing_if = "Option::is_none")]
        param: Option<OptionalText<'a>>,
        /// Path of the request, without the query.
        path: Cow<'a, str>,
        prev: Cow<'a, str>,
        /// Reason word of the refusal.
        reason: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// HTTP status of the refusal.
        status: u16,
        /// The tool that the request was refused for, by its type or by its name.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<OptionalText<'a>>,
        ts: Cow<'a, str>,
        v: u32,
    }
}
