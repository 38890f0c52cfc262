-- Counts the timers of a store. Changes nothing.
CREATE OR REPLACE FUNCTION tb.stats(at bigint) RETURNS TABLE (
  now bigint, timers bigint, leased bigint, parked bigint, overdue bigint, oldest bigint,
  dead bigint, paused boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_variable
BEGIN
  now := coalesce(at, tb.clock());
  SELECT count(*) INTO timers FROM tb.timers;
  SELECT count(*) FILTER (WHERE state.fence IS NOT NULL),
      count(*) FILTER (WHERE state.fence IS NULL AND state.paused),
      count(*) FILTER (WHERE coalesce(lease.until, state.key) <= now)
    INTO leased, parked, overdue FROM tb.states AS state
    LEFT JOIN tb.leases AS lease ON lease.id = state.id AND lease.fence = state.fence;
  overdue := overdue + (SELECT count(*) FROM tb.timers AS timer WHERE timer.due <= now
    AND NOT EXISTS (SELECT FROM tb.states AS state WHERE state.id = timer.id));
  SELECT key.due INTO oldest FROM tb.keys(0, '', false, 9223372036854775807, 1, NULL) AS key;
  SELECT count(*) INTO dead FROM tb.letters;
  SELECT store.paused INTO paused FROM tb.store AS store;
  RETURN NEXT;
END $$;

-- Creates the index unless it exists. `IF NOT EXISTS` would lock the table although the index is there.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_index
    JOIN pg_catalog.pg_class AS class ON class.oid = indexrelid
    WHERE indrelid = 'tb.states'::regclass AND relname = 'states_retried')
  THEN
    CREATE INDEX states_retried ON tb.states (due) WHERE attempt > 0 AND fence IS NULL AND NOT paused;
  END IF;
END $$;

-- Returns the latest time for which a timer waits for a retry, or 0.
CREATE OR REPLACE FUNCTION tb.retries_until() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  RETURN (SELECT coalesce(max(due), 0) FROM tb.states
    WHERE attempt > 0 AND fence IS NULL AND NOT paused);
END $$;

-- Removes states, leases and next deliveries without a timer, and labels that no timer has.
CREATE OR REPLACE FUNCTION tb.remove_strays() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM tb.nexts AS next
    WHERE NOT EXISTS (SELECT FROM tb.timers AS timer WHERE timer.id = next.id);
  DELETE FROM tb.leases AS lease
    WHERE NOT EXISTS (SELECT FROM tb.timers AS timer WHERE timer.id = lease.id);
  DELETE FROM tb.states AS state
    WHERE NOT EXISTS (SELECT FROM tb.timers AS timer WHERE timer.id = state.id);
  DELETE FROM tb.labels AS entry WHERE NOT EXISTS (SELECT FROM tb.timers AS timer
    WHERE timer.id = entry.id AND entry.label = ANY (timer.labels));
END $$;
