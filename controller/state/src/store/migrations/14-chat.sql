-- Runs of chats: the credential that a chat came with, and its end user.
CREATE TABLE chats (
    run_id      TEXT    PRIMARY KEY REFERENCES sandboxes (run_id),
    -- token:ID, session:ID or uid:N. A chat token sees its own chats alone.
    principal   TEXT    NOT NULL CHECK (principal <> ''),
    -- The client's word for its own user: metadata, never an account.
    end_user    TEXT,
    -- Turns of one conversation have the same word.
    session_id  TEXT,
    -- 1 if a client that was cut off may come back to it.
    resumable   INTEGER NOT NULL CHECK (resumable IN (0, 1)),
    created_us  INTEGER NOT NULL
) STRICT;
CREATE INDEX chats_of_principal ON chats (principal, created_us);

-- Caps of a chat token, for each day (UTC). Null for the defaults.
ALTER TABLE tokens ADD COLUMN runs_per_day INTEGER CHECK (runs_per_day > 0);
ALTER TABLE tokens ADD COLUMN cost_per_day_nano INTEGER CHECK (cost_per_day_nano > 0);
