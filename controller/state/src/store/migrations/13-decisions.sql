-- Time since which the clocks of a run stand still, and the time for which they have in all.
ALTER TABLE sandboxes ADD COLUMN clocks_stopped_us INTEGER;
ALTER TABLE sandboxes ADD COLUMN stopped_total_us INTEGER NOT NULL DEFAULT 0 CHECK (stopped_total_us >= 0);

-- What the system asks a person. Only the daemon makes these.
CREATE TABLE approvals (
    id          TEXT    PRIMARY KEY CHECK (id GLOB 'apr-?*'),
    run_id      TEXT    NOT NULL REFERENCES sandboxes (run_id),
    attempt     INTEGER NOT NULL CHECK (attempt >= 0),
    kind        TEXT    NOT NULL CHECK (kind IN ('cap', 'publish')),
    -- The cap, its value, and the value that is proposed: a number, or nano-USD.
    cap         TEXT    CHECK (cap IN ('max_calls', 'max_tokens', 'max_cost_usd')),
    old_value   INTEGER CHECK (old_value >= 0),
    new_value   INTEGER,
    -- JSON: further typed fields that a person sees. The digest is over all of them.
    subject     TEXT    NOT NULL CHECK (json_valid(subject)),
    -- SHA-256 of the canonical approval.
    digest      TEXT    NOT NULL CHECK (length(digest) = 64),
    created_us  INTEGER NOT NULL,
    expires_us  INTEGER NOT NULL CHECK (expires_us > created_us),
    -- Time since which a call waits for it; null while the run works.
    held_us     INTEGER,
    -- expired: nobody decided in time, which denies it. changed: what it asks about is no longer so.
    decision    TEXT    CHECK (decision IN ('approve', 'deny', 'cancel', 'expired', 'changed')),
    decided_by  TEXT    CHECK (decided_by <> ''),
    reason      TEXT,
    -- The value of the cap that an approval sets.
    raised_to   INTEGER,
    decided_us  INTEGER,
    -- Time at which the sidecar had the decision.
    applied_us  INTEGER,
    CHECK ((kind = 'cap') = (cap IS NOT NULL)),
    CHECK ((cap IS NULL) = (old_value IS NULL) AND (cap IS NULL) = (new_value IS NULL)),
    CHECK (new_value IS NULL OR new_value > old_value),
    CHECK ((decision IS NULL) = (decided_us IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (raised_to IS NULL OR (decision IS 'approve' AND raised_to > old_value)),
    CHECK (applied_us IS NULL OR decision IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_of_run ON approvals (run_id, created_us);
CREATE INDEX approvals_open ON approvals (expires_us) WHERE decision IS NULL;
CREATE UNIQUE INDEX approvals_one_open ON approvals (run_id, attempt, cap) WHERE decision IS NULL AND cap IS NOT NULL;
CREATE INDEX approvals_unapplied ON approvals (run_id) WHERE decision IS NOT NULL AND applied_us IS NULL;
-- The first decision stays.
CREATE TRIGGER approvals_once BEFORE UPDATE ON approvals
WHEN OLD.decision IS NOT NULL AND (NEW.decision IS NOT OLD.decision OR NEW.raised_to IS NOT OLD.raised_to
    OR NEW.digest IS NOT OLD.digest OR NEW.decided_by IS NOT OLD.decided_by)
BEGIN SELECT RAISE(ABORT, 'an approval is decided once'); END;

-- What an approval adds to the hold of an attempt. Rows are added, and never changed or removed.
CREATE TABLE hold_raises (
    id       INTEGER PRIMARY KEY,
    hold     INTEGER NOT NULL REFERENCES holds (id),
    nano_usd INTEGER NOT NULL CHECK (nano_usd > 0),
    approval TEXT    NOT NULL UNIQUE REFERENCES approvals (id),
    made_us  INTEGER NOT NULL
) STRICT;
CREATE INDEX hold_raises_of_hold ON hold_raises (hold);
CREATE TRIGGER hold_raises_stay BEFORE UPDATE ON hold_raises BEGIN SELECT RAISE(ABORT, 'a raise is never changed'); END;
CREATE TRIGGER hold_raises_last BEFORE DELETE ON hold_raises BEGIN SELECT RAISE(ABORT, 'a raise is never removed'); END;

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
