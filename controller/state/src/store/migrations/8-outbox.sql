-- The outbox carries events of any kind. An event of the ledger refers to its receipt and entry, from which its content
-- follows; any other event has a subject and a payload.
CREATE TABLE outbox_of_any_kind (
    -- The order in which events were committed.
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Words joined by dots, such as receipt.STATUS.
    kind    TEXT    NOT NULL CHECK (length(kind) BETWEEN 1 AND 100 AND kind NOT GLOB '*[^A-Za-z0-9_.]*'),
    receipt INTEGER REFERENCES receipts (id),
    entry   INTEGER REFERENCES entries (id),
    -- The object that the event is about, such as RUN.ATTEMPT.
    subject TEXT    CHECK (subject <> ''),
    payload TEXT    CHECK (json_valid(payload)),
    made_us INTEGER NOT NULL,
    CHECK (receipt IS NOT NULL OR entry IS NULL),
    CHECK ((receipt IS NULL) = (subject IS NOT NULL)),
    CHECK ((receipt IS NULL) = (payload IS NOT NULL))
) STRICT;
INSERT INTO outbox_of_any_kind (id, kind, receipt, entry, made_us)
SELECT id, kind, receipt, entry, made_us FROM outbox ORDER BY id;
DROP TABLE outbox;
ALTER TABLE outbox_of_any_kind RENAME TO outbox;
CREATE TRIGGER outbox_stays BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER outbox_lasts BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
CREATE TRIGGER outbox_once BEFORE INSERT ON outbox WHEN EXISTS (SELECT 1 FROM outbox WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'there is an event of this number'); END;

-- Progress of each reader of the outbox. A reader may see an event again until it has acknowledged it.
CREATE TABLE outbox_consumers (
    consumer     TEXT    PRIMARY KEY CHECK (consumer <> ''),
    -- All events up to this one are delivered. Never decreases.
    acknowledged INTEGER NOT NULL DEFAULT 0 CHECK (acknowledged >= 0),
    -- Failed deliveries since then, the time before which none is tried again, and the reason of the last failure.
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_try_us  INTEGER NOT NULL DEFAULT 0,
    fault        TEXT    CHECK (fault <> ''),
    updated_us   INTEGER NOT NULL,
    CHECK ((attempts = 0) = (fault IS NULL))
) STRICT, WITHOUT ROWID;
