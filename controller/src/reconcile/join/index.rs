//! An index of receipts by the names that rows have for them.

use std::collections::HashMap;

use sluice_litellm::spend_log::row::RowNames;

use super::ReceiptInQuestion;

/// Positions of receipts by each name that a row may have for them.
pub(super) struct ReceiptIndex<'a> {
    by_call: HashMap<&'a str, usize>,
    by_litellm: HashMap<&'a str, usize>,
    /// `None` if several receipts have the name: providers need not make unique ids.
    by_response: HashMap<&'a str, Option<usize>>,
}

impl<'a> ReceiptIndex<'a> {
    pub(super) fn of(receipts: &'a [ReceiptInQuestion]) -> Self {
        let receipts = || receipts.iter().enumerate().map(|(at, it)| (at, &it.receipt));
        let mut by_response = HashMap::new();
        for (at, receipt) in receipts() {
            if let Some(id) = receipt.response_id.as_deref() {
                by_response.entry(id).and_modify(|place| *place = None).or_insert(Some(at));
            }
        }
        Self {
            by_call: receipts().map(|(at, receipt)| (receipt.call_id.as_str(), at)).collect(),
            by_litellm: receipts()
                .filter_map(|(at, receipt)| Some((receipt.litellm_call_id.as_deref()?, at)))
                .collect(),
            by_response,
        }
    }

    /// Returns the receipt of a row: by the sidecar's id if the row has one, else by LiteLLM's, else by the answer's.
    pub(super) fn find(&self, names: RowNames<'_>) -> Option<usize> {
        if let Some(id) = names.sluice_call_id {
            return self.by_call(id);
        }
        let by_litellm = |id: &str| self.by_call(id).or_else(|| self.by_litellm.get(id).copied());
        let by_response = || self.by_response.get(names.response_id()).copied().flatten();
        names.call_id().and_then(by_litellm).or_else(by_response)
    }

    /// Returns the receipt of the call with this id.
    pub(super) fn by_call(&self, call_id: &str) -> Option<usize> {
        self.by_call.get(call_id).copied()
    }
}
