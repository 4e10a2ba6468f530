-- One row for each start of a run, from before anything of it exists.
CREATE TABLE runs (
    run_id        TEXT    NOT NULL,
    attempt       INTEGER NOT NULL CHECK (attempt >= 0),
    phase         TEXT    NOT NULL CHECK (phase IN ('pending', 'creating', 'running', 'completing', 'closed')),
    account       TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    model         TEXT,
    image         TEXT    NOT NULL,
    -- Who drives it: a controller process. It is taken over when that one is gone, by the next generation.
    owner_pid     INTEGER NOT NULL,
    owner_start   INTEGER NOT NULL,
    owner_boot    TEXT    NOT NULL,
    generation    INTEGER NOT NULL DEFAULT 0,
    sidecar_pid   INTEGER,
    sidecar_start INTEGER,
    sidecar_boot  TEXT,
    -- JSON: what decided it; null while it is open.
    verdict       TEXT,
    error_code    TEXT,
    exit_code     INTEGER,
    -- Microseconds since 1970.
    created_us    INTEGER NOT NULL,
    updated_us    INTEGER NOT NULL,
    PRIMARY KEY (run_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_open ON runs (phase) WHERE phase <> 'closed';
