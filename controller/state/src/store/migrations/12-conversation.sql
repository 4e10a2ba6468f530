-- Tokens by which the sidecar of one attempt reports to the daemon. The value is at the sidecar only.
CREATE TABLE run_tokens (
    -- SHA-256 of the value.
    hash       TEXT    PRIMARY KEY CHECK (length(hash) = 64),
    run_id     TEXT    NOT NULL CHECK (run_id <> ''),
    attempt    INTEGER NOT NULL CHECK (attempt >= 0),
    created_us INTEGER NOT NULL,
    UNIQUE (run_id, attempt)
) STRICT, WITHOUT ROWID;

-- What the daemon knows of the conversation of one attempt.
CREATE TABLE conversations (
    run_id         TEXT    NOT NULL REFERENCES sandboxes (run_id),
    attempt        INTEGER NOT NULL CHECK (attempt >= 0),
    -- Time of the first request of a worker: it takes the messages that can wait.
    worker_us      INTEGER,
    -- Number of the last entry that was read from the sidecar.
    injected       INTEGER NOT NULL DEFAULT 0 CHECK (injected >= 0),
    -- JSON: what the agent said when it was done.
    result         TEXT    CHECK (json_valid(result)),
    PRIMARY KEY (run_id, attempt)
) STRICT, WITHOUT ROWID;

-- Messages to running agents.
CREATE TABLE messages (
    -- The order in which they were sent.
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE CHECK (id GLOB 'msg-?*' OR id GLOB 'int-?*'),
    run_id        TEXT    NOT NULL REFERENCES sandboxes (run_id),
    content       TEXT    NOT NULL CHECK (length(content) BETWEEN 1 AND 20000),
    message_type  TEXT    NOT NULL CHECK (message_type IN ('user_message', 'interrupt', 'guardian_nudge', 'system')),
    -- 1: before all that are not.
    urgent        INTEGER NOT NULL CHECK (urgent IN (0, 1)),
    -- immediate: the sidecar adds it to the next call, also if the agent has a worker.
    inject_mode   TEXT    NOT NULL CHECK (inject_mode IN ('immediate', 'next_turn')),
    -- Of an intervention: its kind, and the source that its sender states.
    steering_type TEXT    CHECK (steering_type <> ''),
    source        TEXT    CHECK (source <> ''),
    -- The principal that sent it, or the rule.
    sender        TEXT    NOT NULL CHECK (sender <> ''),
    -- queued: nobody has it. leased: a worker has it until leased_until_us. offered: the sidecar has it for the next call.
    -- sent: a call with it was sent. delivered: a worker has acknowledged it, or a call with it was answered. lost: its place
    -- in the conversation is gone, or the run ended before. deleted: by its sender.
    state         TEXT    NOT NULL
                  CHECK (state IN ('queued', 'leased', 'offered', 'sent', 'delivered', 'deleted', 'lost')),
    leased_until_us INTEGER,
    -- JSON: where the sidecar of this attempt added it.
    anchor        TEXT    CHECK (json_valid(anchor)),
    anchor_attempt INTEGER,
    created_us    INTEGER NOT NULL,
    delivered_us  INTEGER,
    CHECK ((state = 'leased') = (leased_until_us IS NOT NULL)),
    CHECK ((anchor IS NULL) = (anchor_attempt IS NULL))
) STRICT;
CREATE INDEX messages_of_run ON messages (run_id, number);
CREATE INDEX messages_pending ON messages (run_id, urgent DESC, number)
    WHERE state IN ('queued', 'leased', 'offered', 'sent');
CREATE INDEX messages_injected ON messages (run_id, anchor_attempt) WHERE anchor_attempt IS NOT NULL;
