-- Workers of chat sessions: runs that get the later turns of their session as messages.
ALTER TABLE chats ADD COLUMN worker INTEGER NOT NULL DEFAULT 0 CHECK (worker IN (0, 1));
-- Time at which the worker was told to end: it gets no more turns.
ALTER TABLE chats ADD COLUMN worker_ended_us INTEGER;

-- The turns that such a run has answered.
CREATE TABLE chat_turns (
    run_id         TEXT    NOT NULL REFERENCES chats (run_id),
    turn           INTEGER NOT NULL CHECK (turn >= 1),
    -- Its message; null for the first turn, with which the run began.
    message_id     TEXT    UNIQUE REFERENCES messages (id),
    -- 1 if a client that was cut off may come back to it.
    resumable      INTEGER NOT NULL CHECK (resumable IN (0, 1)),
    -- Newest event before it.
    begin_seq      INTEGER NOT NULL CHECK (begin_seq >= 0),
    created_us     INTEGER NOT NULL,
    -- Interrupts since its client has left, and the time of the last one.
    interrupts     INTEGER NOT NULL DEFAULT 0 CHECK (interrupts >= 0),
    interrupted_us INTEGER,
    -- Time at which its message was taken back: the worker never had it.
    withdrawn_us   INTEGER,
    PRIMARY KEY (run_id, turn),
    CHECK ((turn = 1) = (message_id IS NULL)),
    CHECK ((interrupts = 0) = (interrupted_us IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_turns_by_age ON chat_turns (created_us);

-- Of an interrupt whose text begins no turn: what a worker does then.
ALTER TABLE messages ADD COLUMN afterwards TEXT CHECK (afterwards IN ('wait', 'end'));
