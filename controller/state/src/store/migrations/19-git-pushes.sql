-- Pushes to a forge that have begun, and are not known to have ended: after a crash, the forge may have their commits. There
-- is no reference to a run, as in git_runs.
CREATE TABLE git_pushes (
    -- In the order in which they began.
    id      INTEGER PRIMARY KEY,
    run_id  TEXT    NOT NULL,
    branch  TEXT    NOT NULL CHECK (branch <> ''),
    sha     TEXT    NOT NULL CHECK (sha <> ''),
    UNIQUE (run_id, branch, sha)
) STRICT;
