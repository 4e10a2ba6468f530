-- The ledger: what each call of a run came to. Rows are added, and never changed or removed.

-- A call that was about to go upstream: from then on money may have been spent.
CREATE TABLE receipts (
    id               INTEGER PRIMARY KEY,
    -- Both together are its name, for ever: of an audit file, RUN/ATTEMPT/CALL.
    source_system    TEXT    NOT NULL CHECK (source_system <> ''),
    source_reference TEXT    NOT NULL CHECK (source_reference <> ''),
    -- Of what the source says: the same name with another hash is refused.
    payload_hash     TEXT    NOT NULL CHECK (length(payload_hash) = 64),
    run_id           TEXT    NOT NULL,
    attempt          INTEGER NOT NULL CHECK (attempt >= 0),
    call             INTEGER NOT NULL CHECK (call > 0),
    call_id          TEXT    NOT NULL,
    account          TEXT    NOT NULL CHECK (account <> ''),
    graph_id         TEXT    NOT NULL,
    method           TEXT    NOT NULL,
    path             TEXT    NOT NULL,
    model            TEXT,
    stream           INTEGER NOT NULL CHECK (stream IN (0, 1)),
    reserved_usd     TEXT,
    -- Microseconds since 1970, and the UTC day of that: when it was so, and when we heard of it.
    origin_us        INTEGER NOT NULL,
    origin_day       TEXT    NOT NULL CHECK (length(origin_day) = 10),
    arrived_us       INTEGER NOT NULL,
    arrived_day      TEXT    NOT NULL CHECK (length(arrived_day) = 10),
    UNIQUE (source_system, source_reference)
) STRICT;

CREATE INDEX receipts_of_run ON receipts (run_id, attempt);
CREATE INDEX receipts_of_account ON receipts (account);

-- What came of a receipt. Its amount is the sum of its entries.
CREATE TABLE entries (
    id               INTEGER PRIMARY KEY,
    receipt          INTEGER NOT NULL REFERENCES receipts (id),
    source_system    TEXT    NOT NULL CHECK (source_system <> ''),
    source_reference TEXT    NOT NULL CHECK (source_reference <> ''),
    payload_hash     TEXT    NOT NULL CHECK (length(payload_hash) = 64),
    status           TEXT    NOT NULL CHECK (status IN ('posted', 'pending_cost', 'voided', 'unknown', 'settled', 'reversed')),
    -- An entry is taken back once, by one with the opposite numbers that says why.
    reverses         INTEGER UNIQUE REFERENCES entries (id),
    cause            TEXT    CHECK (cause <> ''),
    result           TEXT,
    ended            TEXT,
    http_status      INTEGER,
    litellm_call_id  TEXT,
    response_id      TEXT,
    model_served     TEXT,
    -- Tokens.
    input            INTEGER,
    output           INTEGER,
    cached_input     INTEGER,
    cache_write      INTEGER,
    reasoning        INTEGER,
    total            INTEGER,
    -- In the source's own words, and in nano-USD, rounded half-even.
    cost_usd         TEXT,
    nano_usd         INTEGER,
    price_source     TEXT    NOT NULL,
    null_reason      TEXT,
    origin_us        INTEGER NOT NULL,
    origin_day       TEXT    NOT NULL CHECK (length(origin_day) = 10),
    arrived_us       INTEGER NOT NULL,
    -- The period that it counts in, however late it came.
    arrived_day      TEXT    NOT NULL CHECK (length(arrived_day) = 10),
    UNIQUE (source_system, source_reference),
    CHECK ((status = 'reversed') = (reverses IS NOT NULL)),
    CHECK (reverses IS NULL OR (reverses < id AND cause IS NOT NULL)),
    CHECK ((cost_usd IS NULL) = (nano_usd IS NULL)),
    CHECK (status <> 'posted' OR nano_usd IS NOT NULL),
    CHECK (status NOT IN ('pending_cost', 'voided', 'unknown') OR nano_usd IS NULL),
    CHECK (
        CASE WHEN reverses IS NULL
            THEN min(ifnull(nano_usd, 0), ifnull(input, 0), ifnull(output, 0), ifnull(cached_input, 0),
                     ifnull(cache_write, 0), ifnull(reasoning, 0), ifnull(total, 0)) >= 0
            ELSE max(ifnull(nano_usd, 0), ifnull(input, 0), ifnull(output, 0), ifnull(cached_input, 0),
                     ifnull(cache_write, 0), ifnull(reasoning, 0), ifnull(total, 0)) <= 0
        END
    )
) STRICT;

CREATE INDEX entries_of_receipt ON entries (receipt);

-- What others are to be told, written with what it tells of. Whoever reads it notes how far.
CREATE TABLE outbox (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- receipt.STATUS
    kind    TEXT    NOT NULL CHECK (kind LIKE 'receipt.%'),
    receipt INTEGER NOT NULL REFERENCES receipts (id),
    entry   INTEGER REFERENCES entries (id),
    -- The receipt as it stands with this entry.
    body    TEXT    NOT NULL CHECK (json_valid(body)),
    made_us INTEGER NOT NULL
) STRICT;

-- Which audit files were read, and what they were worth. The newest of a run counts; a run is settled when that is
-- ended and trusted, and nothing of it is open.
CREATE TABLE readings (
    id      INTEGER PRIMARY KEY,
    run_id  TEXT    NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    worth   TEXT    NOT NULL CHECK (worth IN ('complete', 'incomplete', 'absent', 'tampered', 'conflict')),
    fault   TEXT    CHECK (fault <> ''),
    lines   INTEGER NOT NULL CHECK (lines >= 0),
    head    TEXT    CHECK (length(head) = 64),
    -- Whether no writer was left.
    ended   INTEGER NOT NULL CHECK (ended IN (0, 1)),
    read_us INTEGER NOT NULL
) STRICT;

CREATE INDEX readings_of_run ON readings (run_id, attempt);

CREATE TRIGGER receipts_stay BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'a receipt is never changed'); END;
CREATE TRIGGER receipts_last BEFORE DELETE ON receipts BEGIN SELECT RAISE(ABORT, 'a receipt is never removed'); END;
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is never changed'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is never removed'); END;
CREATE TRIGGER outbox_stays BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER outbox_lasts BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
CREATE TRIGGER readings_stay BEFORE UPDATE ON readings BEGIN SELECT RAISE(ABORT, 'a reading is never changed'); END;
CREATE TRIGGER readings_last BEFORE DELETE ON readings BEGIN SELECT RAISE(ABORT, 'a reading is never removed'); END;

-- "INSERT OR REPLACE" would remove a row without a word.
CREATE TRIGGER receipts_once BEFORE INSERT ON receipts WHEN EXISTS (
    SELECT 1 FROM receipts AS old
    WHERE old.id = NEW.id OR (old.source_system = NEW.source_system AND old.source_reference = NEW.source_reference)
) BEGIN SELECT RAISE(ABORT, 'there is a receipt of this name'); END;
CREATE TRIGGER entries_once BEFORE INSERT ON entries WHEN EXISTS (
    SELECT 1 FROM entries AS old
    WHERE old.id = NEW.id OR (old.source_system = NEW.source_system AND old.source_reference = NEW.source_reference)
) BEGIN SELECT RAISE(ABORT, 'there is an entry of this name'); END;
CREATE TRIGGER outbox_once BEFORE INSERT ON outbox WHEN EXISTS (SELECT 1 FROM outbox WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'there is an event of this number'); END;
CREATE TRIGGER readings_once BEFORE INSERT ON readings WHEN EXISTS (SELECT 1 FROM readings WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'there is a reading of this number'); END;

-- Of an entry that is taken back: the numbers are its own, the other way round.
CREATE TRIGGER entries_reverse_whole BEFORE INSERT ON entries WHEN NEW.reverses IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM entries AS old
    WHERE old.id = NEW.reverses AND old.receipt = NEW.receipt AND old.reverses IS NULL
      AND NEW.nano_usd IS -old.nano_usd AND NEW.cost_usd IS old.cost_usd
      AND NEW.input IS -old.input AND NEW.output IS -old.output AND NEW.total IS -old.total
      AND NEW.cached_input IS -old.cached_input AND NEW.cache_write IS -old.cache_write
      AND NEW.reasoning IS -old.reasoning
) BEGIN SELECT RAISE(ABORT, 'a reversing entry takes back one other entry of its receipt, whole'); END;
