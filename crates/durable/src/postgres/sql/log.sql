-- The log of attempts. It may be renamed or dropped, and is then created again.

-- Creates the table of the log unless it exists. It belongs to the owner of the store, as all objects
-- of a store do, and the roles that may use the dead letters may use it.
CREATE OR REPLACE FUNCTION tb.create_log() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
  IF to_regclass('tb.attempt_log') IS NOT NULL THEN RETURN; END IF;
  PERFORM set_config('role', pg_get_userbyid(relowner), true) FROM pg_class
    WHERE oid = 'tb.store'::regclass;
  CREATE TABLE IF NOT EXISTS tb.attempt_log (
    number bigint PRIMARY KEY,
    added bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    attempt text NOT NULL,
    UNIQUE (id, number)
  );
  PERFORM tb.grant_like_letters('tb.attempt_log');
END $$;

SELECT tb.create_log();

-- Adds attempts to the log, and deletes the oldest beyond its bounds.
--
-- ids, jsons: the attempts, by column
-- most, age: the maximum number, and the maximum age in milliseconds
-- at: the time in milliseconds, or NULL for the server's
CREATE OR REPLACE FUNCTION tb.log_add(
  ids text[], jsons text[], most bigint, age bigint, at bigint
) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET lock_timeout = '1s' AS $$
DECLARE
  now bigint := coalesce(at, tb.clock());
BEGIN
  -- A sequence would also count attempts that were not added, and the bound counts by numbers.
  FOR tries IN 1..100 LOOP
    BEGIN
      INSERT INTO tb.attempt_log (number, added, id, attempt)
        SELECT place + (SELECT coalesce(max(number), 0) FROM tb.attempt_log), now, an_id, json
        FROM unnest(ids, jsons) WITH ORDINALITY AS adding (an_id, json, place);
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      -- Another process has added attempts meanwhile.
      IF tries = 100 THEN RAISE; END IF;
    END;
  END LOOP;
  -- The oldest are found by their numbers, so no query reads all rows. A row that is locked stays.
  DELETE FROM tb.attempt_log WHERE number = ANY (ARRAY(
    SELECT number FROM tb.attempt_log WHERE number < greatest(
      (SELECT max(number) FROM tb.attempt_log) - most + 1,
      (SELECT number FROM tb.attempt_log WHERE added >= now - age ORDER BY number LIMIT 1))
    FOR UPDATE SKIP LOCKED));
END $$;

-- Returns the latest attempts, of a timer or, with NULL, of all.
CREATE OR REPLACE FUNCTION tb.log_latest(an_id text, most bigint) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET lock_timeout = '1s' AS $$
BEGIN
  IF an_id IS NULL THEN
    RETURN QUERY SELECT attempt FROM tb.attempt_log ORDER BY number DESC LIMIT most;
  ELSE
    RETURN QUERY SELECT attempt FROM tb.attempt_log WHERE id = an_id
      ORDER BY number DESC LIMIT most;
  END IF;
END $$;
