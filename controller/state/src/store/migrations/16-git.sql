-- Repositories of runs: what a run works on, and how far its branch has come. Runs of the daemon and one-shot runs have
-- rows here, so there is no reference to either table.
CREATE TABLE git_runs (
    run_id              TEXT    PRIMARY KEY,
    -- Without credentials: those are in the files of the projects alone.
    url                 TEXT    NOT NULL CHECK (url <> ''),
    base_branch         TEXT,
    branch              TEXT    NOT NULL CHECK (branch <> ''),
    ticket              TEXT,
    title               TEXT,
    publish             TEXT    NOT NULL CHECK (publish IN ('approve', 'auto', 'never')),
    wants_pull_request  INTEGER NOT NULL CHECK (wants_pull_request IN (0, 1)),
    -- Commits: the one that the run began with, the newest one that came out, and the one that the forge has.
    base_sha            TEXT,
    head_sha            TEXT,
    published_sha       TEXT,
    pull_request        INTEGER,
    pull_request_url    TEXT,
    merged_sha          TEXT,
    last_error          TEXT,
    -- Failed tries of the step that is next.
    retry_count         INTEGER NOT NULL DEFAULT 0,
    created_us          INTEGER NOT NULL,
    updated_us          INTEGER NOT NULL
) STRICT;
