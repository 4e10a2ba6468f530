-- Diffs have a quota of their own. The size of an event no longer has that of its diff.
ALTER TABLE event_diffs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0);
-- 1: the quota of its run has removed the diff, and its event is still there.
ALTER TABLE event_diffs ADD COLUMN removed INTEGER NOT NULL DEFAULT 0 CHECK (removed IN (0, 1));
UPDATE event_diffs SET bytes = length(CAST(diff AS BLOB));
ALTER TABLE event_totals ADD COLUMN diff_bytes INTEGER NOT NULL DEFAULT 0 CHECK (diff_bytes >= 0);
UPDATE event_totals SET diff_bytes = (
    SELECT coalesce(sum(event_diffs.bytes), 0) FROM events JOIN event_diffs ON event_diffs.seq = events.seq
    WHERE events.owner = event_totals.owner AND events.sandbox_id = event_totals.sandbox_id AND evictable = 1);

-- Progress of each webhook in the event log.
CREATE TABLE webhooks (
    name            TEXT    PRIMARY KEY CHECK (name <> ''),
    -- All events up to this one are in the outbox, or are not for this webhook. Never decreases.
    position        INTEGER NOT NULL CHECK (position >= 0),
    last_success_us INTEGER,
    last_failure_us INTEGER,
    -- Reason of the last failure, if no success came after it.
    fault           TEXT    CHECK (fault <> ''),
    updated_us      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Messages to webhooks: those that wait, and those that were given up.
CREATE TABLE webhook_messages (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook     TEXT    NOT NULL REFERENCES webhooks (name) ON DELETE CASCADE,
    -- The same for each try.
    id          TEXT    NOT NULL CHECK (id GLOB 'msg_?*'),
    seq         INTEGER NOT NULL,
    event_type  TEXT    NOT NULL,
    body        TEXT    NOT NULL CHECK (json_valid(body)),
    created_us  INTEGER NOT NULL,
    -- Failed tries, the time before which none is made, and the reason of the last failure.
    attempts    INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_try_us INTEGER NOT NULL,
    fault       TEXT    CHECK (fault <> ''),
    -- Time at which it was given up.
    dead_us     INTEGER,
    UNIQUE (webhook, seq),
    CHECK (dead_us IS NULL OR fault IS NOT NULL)
) STRICT;
CREATE INDEX webhook_messages_due ON webhook_messages (webhook, next_try_us, number) WHERE dead_us IS NULL;
CREATE INDEX webhook_messages_dead ON webhook_messages (webhook, dead_us) WHERE dead_us IS NOT NULL;
