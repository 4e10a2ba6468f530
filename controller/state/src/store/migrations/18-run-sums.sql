-- What the calls of a run have used so far, by the events of their ends. The sums stay when the events are removed, and a
-- list of runs reads no event.
ALTER TABLE sandboxes ADD COLUMN calls INTEGER NOT NULL DEFAULT 0 CHECK (calls >= 0);
ALTER TABLE sandboxes ADD COLUMN unknown_costs INTEGER NOT NULL DEFAULT 0 CHECK (unknown_costs BETWEEN 0 AND calls);
-- Sum of the known costs; null without any.
ALTER TABLE sandboxes ADD COLUMN cost_nano INTEGER;

UPDATE sandboxes SET (calls, unknown_costs, cost_nano) = (
    SELECT count(*), count(*) - count(usd), CAST(round(sum(usd) * 1e9) AS INTEGER)
    FROM (SELECT CAST(json_extract(event_data, '$.cost.known.usd') AS REAL) AS usd FROM events
          WHERE sandbox_id = sandboxes.run_id AND event_type = 'llm.call' AND source = 'system')
) WHERE EXISTS (SELECT 1 FROM events WHERE sandbox_id = sandboxes.run_id AND event_type = 'llm.call' AND source = 'system');
