-- Sums that are kept while rows are added, so that no total needs all rows. `ledger rebuild --check` adds them up again.

-- What the receipts and entries of a run come to: each receipt and each entry counts in the day on which it came.
CREATE TABLE usage_sums (
    run_id  TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    account TEXT    NOT NULL,
    -- What was asked for; empty where no model was named.
    model   TEXT    NOT NULL,
    day     TEXT    NOT NULL,
    calls   INTEGER NOT NULL,
    -- A sum is high * 2^32 + low, and null where nothing was counted. Each half has room for 2^31 amounts of any size:
    -- one upstream that states absurd numbers must not stop the ledger.
    cache_write_high INTEGER,
    cache_write_low  INTEGER,
    cached_input_high INTEGER,
    cached_input_low  INTEGER,
    input_high INTEGER,
    input_low  INTEGER,
    output_high INTEGER,
    output_low  INTEGER,
    reasoning_high INTEGER,
    reasoning_low  INTEGER,
    total_high INTEGER,
    total_low  INTEGER,
    nano_usd_high INTEGER,
    nano_usd_low  INTEGER,
    PRIMARY KEY (run_id, attempt, account, model, day)
) STRICT, WITHOUT ROWID;

-- Receipts whose cost nobody knows.
CREATE TABLE open_receipts (
    receipt INTEGER PRIMARY KEY REFERENCES receipts (id)
) STRICT;

CREATE TRIGGER receipts_summed AFTER INSERT ON receipts BEGIN
    INSERT INTO usage_sums (run_id, attempt, account, model, day, calls)
    VALUES (NEW.run_id, NEW.attempt, NEW.account, ifnull(NEW.model, ''), NEW.arrived_day, 1)
    ON CONFLICT DO UPDATE SET calls = calls + 1;
    INSERT INTO open_receipts (receipt) VALUES (NEW.id);
END;

CREATE TRIGGER entries_summed AFTER INSERT ON entries BEGIN
    INSERT INTO usage_sums (
        run_id, attempt, account, model, day, calls,
        cache_write_high, cache_write_low,
        cached_input_high, cached_input_low,
        input_high, input_low,
        output_high, output_low,
        reasoning_high, reasoning_low,
        total_high, total_low,
        nano_usd_high, nano_usd_low)
    SELECT run_id, attempt, account, ifnull(model, ''), NEW.arrived_day, 0,
           NEW.cache_write >> 32, NEW.cache_write & 4294967295,
           NEW.cached_input >> 32, NEW.cached_input & 4294967295,
           NEW.all_input >> 32, NEW.all_input & 4294967295,
           NEW.output >> 32, NEW.output & 4294967295,
           NEW.reasoning >> 32, NEW.reasoning & 4294967295,
           NEW.all_tokens >> 32, NEW.all_tokens & 4294967295,
           NEW.nano_usd >> 32, NEW.nano_usd & 4294967295
    FROM receipts WHERE id = NEW.receipt
    ON CONFLICT DO UPDATE SET
        cache_write_high = coalesce(cache_write_high + excluded.cache_write_high, cache_write_high, excluded.cache_write_high),
        cache_write_low = coalesce(cache_write_low + excluded.cache_write_low, cache_write_low, excluded.cache_write_low),
        cached_input_high = coalesce(cached_input_high + excluded.cached_input_high, cached_input_high, excluded.cached_input_high),
        cached_input_low = coalesce(cached_input_low + excluded.cached_input_low, cached_input_low, excluded.cached_input_low),
        input_high = coalesce(input_high + excluded.input_high, input_high, excluded.input_high),
        input_low = coalesce(input_low + excluded.input_low, input_low, excluded.input_low),
        output_high = coalesce(output_high + excluded.output_high, output_high, excluded.output_high),
        output_low = coalesce(output_low + excluded.output_low, output_low, excluded.output_low),
        reasoning_high = coalesce(reasoning_high + excluded.reasoning_high, reasoning_high, excluded.reasoning_high),
        reasoning_low = coalesce(reasoning_low + excluded.reasoning_low, reasoning_low, excluded.reasoning_low),
        total_high = coalesce(total_high + excluded.total_high, total_high, excluded.total_high),
        total_low = coalesce(total_low + excluded.total_low, total_low, excluded.total_low),
        nano_usd_high = coalesce(nano_usd_high + excluded.nano_usd_high, nano_usd_high, excluded.nano_usd_high),
        nano_usd_low = coalesce(nano_usd_low + excluded.nano_usd_low, nano_usd_low, excluded.nano_usd_low);
    DELETE FROM open_receipts WHERE receipt = NEW.receipt;
    -- It stands as its last entry that is not taken back says.
    INSERT INTO open_receipts (receipt)
    SELECT NEW.receipt WHERE (
        SELECT status FROM entries AS live
        WHERE receipt = NEW.receipt AND reverses IS NULL
          AND NOT EXISTS (SELECT 1 FROM entries AS back WHERE back.reverses = live.id)
        ORDER BY id DESC LIMIT 1
    ) IN ('pending_cost', 'unknown');
END;

-- What both come to when they are added up anew.
CREATE VIEW usage_sums_anew AS
    SELECT run_id, attempt, account, ifnull(model, '') AS model, arrived_day AS day, count(*) AS calls,
           NULL AS cache_write_high, NULL AS cache_write_low, NULL AS cached_input_high, NULL AS cached_input_low, NULL AS input_high, NULL AS input_low, NULL AS output_high, NULL AS output_low, NULL AS reasoning_high, NULL AS reasoning_low, NULL AS total_high, NULL AS total_low, NULL AS nano_usd_high, NULL AS nano_usd_low
    FROM receipts GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT run_id, attempt, account, ifnull(model, ''), entries.arrived_day, 0,
           sum(entries.cache_write >> 32), sum(entries.cache_write & 4294967295),
           sum(entries.cached_input >> 32), sum(entries.cached_input & 4294967295),
           sum(entries.all_input >> 32), sum(entries.all_input & 4294967295),
           sum(entries.output >> 32), sum(entries.output & 4294967295),
           sum(entries.reasoning >> 32), sum(entries.reasoning & 4294967295),
           sum(entries.all_tokens >> 32), sum(entries.all_tokens & 4294967295),
           sum(entries.nano_usd >> 32), sum(entries.nano_usd & 4294967295)
    FROM entries JOIN receipts ON receipts.id = entries.receipt GROUP BY 1, 2, 3, 4, 5;

CREATE VIEW open_receipts_anew AS
    SELECT id AS receipt FROM receipts
    WHERE NOT EXISTS (SELECT 1 FROM entries WHERE entries.receipt = receipts.id)
    UNION ALL
    SELECT receipt FROM entries AS live
    WHERE status IN ('pending_cost', 'unknown')
      AND NOT EXISTS (SELECT 1 FROM entries AS back WHERE back.reverses = live.id)
      AND NOT EXISTS (
          SELECT 1 FROM entries AS later
          WHERE later.receipt = live.receipt AND later.id > live.id AND later.reverses IS NULL
            AND NOT EXISTS (SELECT 1 FROM entries AS back WHERE back.reverses = later.id));

INSERT INTO open_receipts (receipt) SELECT receipt FROM open_receipts_anew;
INSERT INTO usage_sums
SELECT run_id, attempt, account, model, day, sum(calls),
       sum(cache_write_high), sum(cache_write_low), sum(cached_input_high), sum(cached_input_low), sum(input_high), sum(input_low), sum(output_high), sum(output_low), sum(reasoning_high), sum(reasoning_low), sum(total_high), sum(total_low), sum(nano_usd_high), sum(nano_usd_low)
FROM usage_sums_anew GROUP BY 1, 2, 3, 4, 5;

-- An event need not repeat its receipt: what it says follows from the receipt and its entries up to this one.
CREATE TABLE outbox_slim (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- receipt.STATUS
    kind    TEXT    NOT NULL CHECK (kind LIKE 'receipt.%'),
    receipt INTEGER NOT NULL REFERENCES receipts (id),
    entry   INTEGER REFERENCES entries (id),
    made_us INTEGER NOT NULL
) STRICT;
INSERT INTO outbox_slim (id, kind, receipt, entry, made_us) SELECT id, kind, receipt, entry, made_us FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_slim RENAME TO outbox;
CREATE TRIGGER outbox_stays BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER outbox_lasts BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
CREATE TRIGGER outbox_once BEFORE INSERT ON outbox WHEN EXISTS (SELECT 1 FROM outbox WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'there is an event of this number'); END;

-- Which line of the budget log each row of budgets is. Rows without one are still to be appended.
CREATE TABLE budget_log (
    seq    INTEGER PRIMARY KEY CHECK (seq >= 0),
    hash   TEXT    NOT NULL CHECK (length(hash) = 64),
    -- Null for the first line, which begins the log.
    budget INTEGER UNIQUE REFERENCES budgets (id),
    CHECK ((seq = 0) = (budget IS NULL))
) STRICT;
