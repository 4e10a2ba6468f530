-- What was seen of audit files while they were written: a line's number and hash.
CREATE TABLE witnesses (
    run_id  TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq >= 0),
    head    TEXT    NOT NULL CHECK (length(head) = 64),
    -- Microseconds since 1970.
    seen_us INTEGER NOT NULL,
    PRIMARY KEY (run_id, attempt, seq)
) STRICT, WITHOUT ROWID;
