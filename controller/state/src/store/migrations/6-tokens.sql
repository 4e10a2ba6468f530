-- Tokens with one meaning: all input, with what prompt caches read and wrote, and a total. Entries of the Messages API
-- from before have no total, and an input without those two classes. Rows are never changed, so the columns work it out.
ALTER TABLE entries ADD COLUMN all_input INTEGER GENERATED ALWAYS AS (
    CASE WHEN total IS NOT NULL OR coalesce(input, cached_input, cache_write) IS NULL THEN input
         ELSE ifnull(input, 0) + ifnull(cached_input, 0) + ifnull(cache_write, 0) END
) VIRTUAL;
ALTER TABLE entries ADD COLUMN all_tokens INTEGER GENERATED ALWAYS AS (
    CASE WHEN total IS NOT NULL OR coalesce(input, output, cached_input, cache_write) IS NULL THEN total
         ELSE ifnull(input, 0) + ifnull(output, 0) + ifnull(cached_input, 0) + ifnull(cache_write, 0) END
) VIRTUAL;
