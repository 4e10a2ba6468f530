-- What accounts may spend, if the operator said so. Rows are added, and never changed or removed.
CREATE TABLE budgets (
    id         INTEGER PRIMARY KEY,
    account    TEXT    NOT NULL CHECK (account <> ''),
    -- set: from here on this much may be spent; added: so much more; removed: there is no limit any more.
    kind       TEXT    NOT NULL CHECK (kind IN ('set', 'added', 'removed')),
    nano_usd   INTEGER NOT NULL CHECK (nano_usd >= 0),
    -- The last entry of the ledger before it. What came until then is paid.
    entries_to INTEGER NOT NULL CHECK (entries_to >= 0),
    made_us    INTEGER NOT NULL,
    CHECK (kind <> 'removed' OR nano_usd = 0)
) STRICT;

CREATE INDEX budgets_of_account ON budgets (account);

-- What is kept of a budget for a run, from before anything of the run exists.
CREATE TABLE holds (
    id       INTEGER PRIMARY KEY,
    run_id   TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,
    account  TEXT    NOT NULL CHECK (account <> ''),
    nano_usd INTEGER NOT NULL CHECK (nano_usd >= 0),
    -- The budget that it was held of, what had been spent of that, and the last entry of the ledger that this counts:
    -- whoever asks later adds up from there.
    budget   INTEGER NOT NULL REFERENCES budgets (id),
    spent    INTEGER NOT NULL,
    counted  INTEGER NOT NULL CHECK (counted >= 0),
    made_us  INTEGER NOT NULL,
    UNIQUE (run_id, attempt),
    FOREIGN KEY (run_id, attempt) REFERENCES runs (run_id, attempt)
) STRICT;

CREATE INDEX holds_of_account ON holds (account);

-- A hold of which nothing is left, ever: what the run spent stands in the ledger. How much of the others is left
-- follows from the ledger, too.
CREATE TABLE hold_ends (
    hold     INTEGER PRIMARY KEY REFERENCES holds (id),
    -- settled: all is known; budget_set, budget_removed: the operator began anew when the run was over.
    why      TEXT    NOT NULL CHECK (why IN ('settled', 'budget_set', 'budget_removed')),
    ended_us INTEGER NOT NULL
) STRICT;

CREATE TRIGGER budgets_stay BEFORE UPDATE ON budgets BEGIN SELECT RAISE(ABORT, 'a budget is never changed'); END;
CREATE TRIGGER budgets_last BEFORE DELETE ON budgets BEGIN SELECT RAISE(ABORT, 'a budget is never removed'); END;
CREATE TRIGGER holds_stay BEFORE UPDATE ON holds BEGIN SELECT RAISE(ABORT, 'a hold is never changed'); END;
CREATE TRIGGER holds_last BEFORE DELETE ON holds BEGIN SELECT RAISE(ABORT, 'a hold is never removed'); END;
CREATE TRIGGER hold_ends_stay BEFORE UPDATE ON hold_ends BEGIN SELECT RAISE(ABORT, 'an end is never changed'); END;
CREATE TRIGGER hold_ends_last BEFORE DELETE ON hold_ends BEGIN SELECT RAISE(ABORT, 'an end is never removed'); END;

-- "INSERT OR REPLACE" would remove a row without a word.
CREATE TRIGGER budgets_once BEFORE INSERT ON budgets WHEN EXISTS (SELECT 1 FROM budgets WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'there is a budget of this number'); END;
CREATE TRIGGER holds_once BEFORE INSERT ON holds WHEN EXISTS (
    SELECT 1 FROM holds WHERE id = NEW.id OR (run_id = NEW.run_id AND attempt = NEW.attempt)
) BEGIN SELECT RAISE(ABORT, 'there is a hold of this run'); END;
CREATE TRIGGER hold_ends_once BEFORE INSERT ON hold_ends WHEN EXISTS (SELECT 1 FROM hold_ends WHERE hold = NEW.hold)
BEGIN SELECT RAISE(ABORT, 'the hold has ended'); END;

-- Keys that LiteLLM was asked to make for runs, by the names under which it deletes them. Written down before it is
-- asked. The keys themselves stand nowhere.
CREATE TABLE virtual_keys (
    alias      TEXT    PRIMARY KEY CHECK (alias <> ''),
    run_id     TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    upstream   TEXT    NOT NULL CHECK (upstream <> ''),
    asked_us   INTEGER NOT NULL,
    -- When LiteLLM takes it no more, deleted or not.
    expires_us INTEGER NOT NULL,
    FOREIGN KEY (run_id, attempt) REFERENCES runs (run_id, attempt)
) STRICT;

CREATE TABLE virtual_key_ends (
    alias    TEXT    PRIMARY KEY REFERENCES virtual_keys (alias),
    -- refused: it was not made; deleted; not_found: there is none; expired: it could not be deleted until then.
    why      TEXT    NOT NULL CHECK (why IN ('refused', 'deleted', 'not_found', 'expired')),
    ended_us INTEGER NOT NULL
) STRICT;
