-- The spend log beside the ledger.

-- Rows of the spend log are looked up by the call that they name, receipts by when they were.
CREATE INDEX receipts_of_call ON receipts (call_id);
CREATE INDEX receipts_of_time ON receipts (origin_us);
-- What left a receipt open; few of all entries did.
CREATE INDEX entries_open ON entries (receipt) WHERE status IN ('pending_cost', 'unknown');

-- When a spend log may be asked again without anybody's wish. No fact of the ledger: it may be lost.
CREATE TABLE spend_logs (
    upstream TEXT    PRIMARY KEY,
    -- Microseconds since 1970.
    next_us  INTEGER NOT NULL,
    -- Why it was of no use, if it was not.
    fault    TEXT    CHECK (fault <> '')
) STRICT;
