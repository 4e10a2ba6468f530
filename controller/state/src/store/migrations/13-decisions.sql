-- What the system asks a person. Only the daemon makes these.
CREATE TABLE approvals (
    id          TEXT    PRIMARY KEY CHECK (id GLOB 'apr-?*'),
    run_id      TEXT    NOT NULL REFERENCES sandboxes (run_id),
    attempt     INTEGER NOT NULL CHECK (attempt >= 0),
    kind        TEXT    NOT NULL CHECK (kind IN ('cap', 'publish')),
    -- JSON: the typed fields that a person sees. The digest is over all of them.
    subject     TEXT    NOT NULL CHECK (json_valid(subject)),
    -- SHA-256 of the canonical approval.
    digest      TEXT    NOT NULL CHECK (length(digest) = 64),
    created_us  INTEGER NOT NULL,
    expires_us  INTEGER NOT NULL CHECK (expires_us > created_us),
    decision    TEXT    CHECK (decision IN ('approve', 'deny', 'cancel', 'expired', 'changed')),
    decided_by  TEXT    CHECK (decided_by <> ''),
    reason      TEXT,
    -- JSON: what an approval changed.
    effect      TEXT    CHECK (json_valid(effect)),
    decided_us  INTEGER,
    CHECK ((decision IS NULL) = (decided_us IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_of_run ON approvals (run_id, created_us);
CREATE INDEX approvals_open ON approvals (expires_us) WHERE decision IS NULL;

-- What an agent asks a person. An answer is data for the agent, and changes nothing else.
CREATE TABLE questions (
    id          TEXT    PRIMARY KEY CHECK (id GLOB 'qst-?*'),
    run_id      TEXT    NOT NULL REFERENCES sandboxes (run_id),
    attempt     INTEGER NOT NULL CHECK (attempt >= 0),
    question    TEXT    NOT NULL CHECK (length(question) BETWEEN 1 AND 1000),
    -- JSON: the answers to choose from; empty for a free text.
    options     TEXT    NOT NULL CHECK (json_valid(options)),
    created_us  INTEGER NOT NULL,
    expires_us  INTEGER NOT NULL CHECK (expires_us > created_us),
    state       TEXT    NOT NULL CHECK (state IN ('open', 'answered', 'expired')),
    answer      TEXT,
    answered_by TEXT    CHECK (answered_by <> ''),
    answered_us INTEGER,
    CHECK ((state = 'answered') = (answer IS NOT NULL)),
    CHECK ((answer IS NULL) = (answered_by IS NULL)),
    CHECK ((answer IS NULL) = (answered_us IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX questions_of_run ON questions (run_id, created_us);
CREATE INDEX questions_open ON questions (expires_us) WHERE state = 'open';
