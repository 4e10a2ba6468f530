-- The program that drives an attempt: a command that ends with its run, or the daemon.
ALTER TABLE runs ADD COLUMN driver TEXT NOT NULL DEFAULT 'once' CHECK (driver IN ('once', 'daemon'));

-- Tokens of the API. The value is at the client only.
CREATE TABLE tokens (
    id           TEXT    PRIMARY KEY CHECK (id GLOB 'tok_?*'),
    -- SHA-256 of the value.
    hash         TEXT    NOT NULL UNIQUE CHECK (length(hash) = 64),
    owner        TEXT    NOT NULL CHECK (owner <> ''),
    role         TEXT    NOT NULL CHECK (role IN ('admin', 'owner', 'viewer', 'chat', 'metrics')),
    -- JSON: the accounts that its runs may be billed to.
    accounts     TEXT    NOT NULL CHECK (json_valid(accounts)),
    label        TEXT,
    created_us   INTEGER NOT NULL,
    expires_us   INTEGER NOT NULL CHECK (expires_us > created_us),
    last_used_us INTEGER,
    revoked_us   INTEGER
) STRICT, WITHOUT ROWID;

-- Registered agents. The state changes by compare-and-swap alone.
CREATE TABLE agents (
    owner              TEXT    NOT NULL CHECK (owner <> ''),
    agent_id           TEXT    NOT NULL CHECK (agent_id <> ''),
    name               TEXT,
    zone_id            TEXT,
    billing_account_id TEXT    NOT NULL CHECK (billing_account_id <> ''),
    allow_sandbox      INTEGER NOT NULL CHECK (allow_sandbox IN (0, 1)),
    -- JSON: host directories that its runs may read.
    grants             TEXT    NOT NULL CHECK (json_valid(grants)),
    state              TEXT    NOT NULL CHECK (state IN ('UNKNOWN', 'CONNECTED', 'IDLE', 'SUSPENDED')),
    -- Number of moves into CONNECTED.
    generation         INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    suspended_by_admin INTEGER NOT NULL DEFAULT 0 CHECK (suspended_by_admin IN (0, 1)),
    last_heartbeat_us  INTEGER,
    metadata           TEXT    NOT NULL CHECK (json_valid(metadata)),
    -- 1: removed at the end of its run.
    ephemeral          INTEGER NOT NULL CHECK (ephemeral IN (0, 1)),
    created_us         INTEGER NOT NULL,
    updated_us         INTEGER NOT NULL,
    PRIMARY KEY (owner, agent_id),
    CHECK (suspended_by_admin = 0 OR state = 'SUSPENDED')
) STRICT, WITHOUT ROWID;

-- Runs of the daemon: one row for all attempts of a run. The table of runs has one for each attempt.
CREATE TABLE sandboxes (
    run_id                TEXT    PRIMARY KEY CHECK (run_id <> ''),
    owner                 TEXT    NOT NULL CHECK (owner <> ''),
    agent_id              TEXT    NOT NULL CHECK (agent_id <> ''),
    agent_ephemeral       INTEGER NOT NULL CHECK (agent_ephemeral IN (0, 1)),
    name                  TEXT    CHECK (name <> ''),
    project               TEXT    CHECK (project <> ''),
    account               TEXT    NOT NULL CHECK (account <> ''),
    state                 TEXT    NOT NULL
                          CHECK (state IN ('PENDING', 'CREATING', 'RUNNING', 'COMPLETING', 'COMPLETED', 'FAILED')),
    desired_state         TEXT    NOT NULL CHECK (desired_state IN ('running', 'paused', 'stopped')),
    outcome               TEXT    CHECK (outcome IN ('success', 'cancelled', 'failed')),
    failure_code          TEXT    CHECK (failure_code <> ''),
    error_message         TEXT,
    attempt               INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    max_retries           INTEGER NOT NULL CHECK (max_retries >= 0),
    -- JSON: failure codes that are retried besides those that always are.
    retry_on              TEXT    NOT NULL CHECK (json_valid(retry_on)),
    -- Time before which a pending run is not claimed.
    next_try_us           INTEGER NOT NULL DEFAULT 0,
    -- JSON of the API. The database does not read it.
    request               TEXT    NOT NULL CHECK (json_valid(request)),
    priority              INTEGER NOT NULL,
    -- JSON: label to value.
    labels                TEXT    NOT NULL CHECK (json_valid(labels)),
    -- The cap of all attempts, the cap of this one, and the amount that a run without a cap holds of a budget.
    cap_nano              INTEGER,
    attempt_cap_nano      INTEGER,
    hold_nano             INTEGER NOT NULL,
    -- The hold of this attempt on a budget.
    hold                  INTEGER REFERENCES holds (id),
    created_us            INTEGER NOT NULL,
    claimed_us            INTEGER,
    started_us            INTEGER,
    ended_us              INTEGER,
    -- Longest time from the first claim to the end, and that end. No event moves it.
    run_time_us           INTEGER NOT NULL CHECK (run_time_us > 0),
    deadline_us           INTEGER,
    paused_us             INTEGER,
    -- Work of any kind, and work that the controller saw itself: not a claim of the agent.
    last_work_us          INTEGER,
    last_observed_work_us INTEGER,
    last_heartbeat_us     INTEGER,
    heartbeat_status      TEXT,
    -- Number of changes.
    generation            INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    CHECK ((state IN ('COMPLETED', 'FAILED')) = (ended_us IS NOT NULL)),
    CHECK (state <> 'COMPLETED' OR outcome IN ('success', 'cancelled')),
    CHECK (state <> 'FAILED' OR outcome = 'failed'),
    CHECK (state NOT IN ('PENDING', 'CREATING', 'RUNNING') OR outcome IS NULL),
    CHECK ((outcome IS 'failed') = (failure_code IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX sandboxes_live_agent ON sandboxes (owner, agent_id) WHERE ended_us IS NULL;
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (owner, name) WHERE ended_us IS NULL AND name IS NOT NULL;
CREATE INDEX sandboxes_queue ON sandboxes (priority DESC, created_us, run_id) WHERE state = 'PENDING';
CREATE INDEX sandboxes_live ON sandboxes (state) WHERE ended_us IS NULL;
CREATE INDEX sandboxes_newest ON sandboxes (created_us, run_id);
CREATE INDEX sandboxes_of_owner ON sandboxes (owner, created_us, run_id);
CREATE INDEX sandboxes_of_name ON sandboxes (owner, name, created_us) WHERE name IS NOT NULL;
CREATE INDEX sandboxes_counts ON sandboxes (owner, state);
CREATE TRIGGER sandboxes_last BEFORE DELETE ON sandboxes BEGIN SELECT RAISE(ABORT, 'a run is never removed'); END;

CREATE TABLE sandbox_dependencies (
    run_id     TEXT NOT NULL REFERENCES sandboxes (run_id),
    depends_on TEXT NOT NULL REFERENCES sandboxes (run_id),
    PRIMARY KEY (run_id, depends_on)
) STRICT, WITHOUT ROWID;

-- Everything that happened, in the order of commits.
CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL UNIQUE CHECK (id GLOB 'evt_?*'),
    owner      TEXT    NOT NULL CHECK (owner <> ''),
    -- Empty for an event that is not about a run.
    sandbox_id TEXT    NOT NULL,
    attempt    INTEGER,
    agent_id   TEXT,
    zone_id    TEXT,
    event_type TEXT    NOT NULL
               CHECK (length(event_type) BETWEEN 1 AND 100 AND event_type NOT GLOB '*[^A-Za-z0-9_.]*'),
    -- Set by the credential. An agent reports only about itself.
    source     TEXT    NOT NULL CHECK (source IN ('agent', 'worker', 'system')),
    event_data TEXT    NOT NULL CHECK (length(CAST(event_data AS BLOB)) <= 100000 AND json_valid(event_data)),
    -- 1: the quota of its run may remove it. 0: only its age removes it.
    evictable  INTEGER NOT NULL CHECK (evictable IN (0, 1)),
    -- Size of the event and of its diff.
    bytes      INTEGER NOT NULL CHECK (bytes >= 0),
    created_us INTEGER NOT NULL,
    CHECK (source <> 'agent' OR event_type GLOB 'agent.?*'),
    CHECK (evictable = 0 OR (source <> 'system' AND event_type GLOB 'agent.?*'))
) STRICT;
CREATE INDEX events_of_run ON events (sandbox_id, seq);
CREATE INDEX events_of_type ON events (sandbox_id, event_type, seq);
CREATE INDEX events_of_owner ON events (owner, seq);
CREATE INDEX events_evictable ON events (owner, sandbox_id, seq, bytes) WHERE evictable = 1;
CREATE INDEX events_by_age ON events (evictable, created_us);
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER events_once BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'there is an event of this name'); END;

-- The whole diff of an event whose data has its beginning.
CREATE TABLE event_diffs (
    seq       INTEGER PRIMARY KEY REFERENCES events (seq) ON DELETE CASCADE,
    diff      TEXT    NOT NULL,
    -- 1: the end of the diff was cut off.
    truncated INTEGER NOT NULL CHECK (truncated IN (0, 1))
) STRICT;

-- What is kept and what was removed of each run; an empty sandbox_id for events that are not about a run.
CREATE TABLE event_totals (
    owner        TEXT    NOT NULL,
    sandbox_id   TEXT    NOT NULL,
    -- Size and number of the evictable events that are kept.
    bytes        INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    events       INTEGER NOT NULL DEFAULT 0 CHECK (events >= 0),
    -- The first and the last event that was ever removed.
    removed_from INTEGER,
    removed_to   INTEGER,
    PRIMARY KEY (owner, sandbox_id),
    CHECK ((removed_from IS NULL) = (removed_to IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX event_totals_removed ON event_totals (removed_to) WHERE removed_to IS NOT NULL;

-- Requests that are made at most once. The answer is not kept: a repetition is authorised anew, and gets the present state.
CREATE TABLE idempotency_keys (
    principal    TEXT    NOT NULL CHECK (principal <> ''),
    method       TEXT    NOT NULL,
    -- The route with its ids.
    route        TEXT    NOT NULL,
    key          TEXT    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    -- SHA-256 of the request.
    request_hash TEXT    NOT NULL CHECK (length(request_hash) = 64),
    -- The id of what was made; null while the request is served.
    object_id    TEXT    CHECK (object_id <> ''),
    created_us   INTEGER NOT NULL,
    PRIMARY KEY (principal, method, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (principal, created_us);
