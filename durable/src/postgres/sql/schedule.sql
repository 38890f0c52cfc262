-- Inserts a timer as part of the caller's transaction, from any client.
--
--   BEGIN;
--   INSERT INTO orders …;
--   SELECT reminders.insert('order 7', 'unpaid', delay => '1 day');
--   COMMIT;
--
-- The transaction cannot be prepared (PREPARE TRANSACTION) if a worker has to be notified, as it has of
-- a timer that is due within half a minute.
--
-- existing: what happens to a timer with this id, 'refuse' (an error, unique_violation), 'keep',
--   'replace' or 'update'
-- due or delay: the time; with `every` alone, one interval from now
-- headers: an object of texts, or an array of pairs
-- returns 'new', 'kept', 'replaced', 'next' or 'updated'
CREATE OR REPLACE FUNCTION tb.insert(
  id text,
  payload bytea DEFAULT '',
  due timestamptz DEFAULT NULL,
  delay interval DEFAULT NULL,
  existing text DEFAULT 'refuse',
  attempts bigint DEFAULT 8,
  backoff_first interval DEFAULT '1 second',
  backoff_most interval DEFAULT '10 minutes',
  backoff_jitter boolean DEFAULT true,
  lease interval DEFAULT '15 seconds',
  time_to_live interval DEFAULT NULL,
  every interval DEFAULT NULL,
  cron text DEFAULT NULL,
  zone text DEFAULT NULL,
  misfire interval DEFAULT NULL,
  headers jsonb DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_variable
DECLARE
  wait bigint := tb.millis(delay);
  fixed bigint := greatest(ceil(extract(epoch FROM due) * 1000), 0);
  by_rule boolean := due IS NULL AND delay IS NULL;
BEGIN
  IF existing NOT IN ('refuse', 'keep', 'replace', 'update') THEN
    RAISE EXCEPTION 'existing must be refuse, keep, replace or update, and is %', existing
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF due IS NOT NULL AND delay IS NOT NULL THEN
    RAISE EXCEPTION 'due and delay exclude each other' USING ERRCODE = 'invalid_parameter_value';
  ELSIF by_rule AND every IS NULL THEN
    RAISE EXCEPTION 'due, delay or every is needed' USING ERRCODE = 'invalid_parameter_value';
  ELSIF (cron IS NULL) <> (zone IS NULL) OR (cron IS NOT NULL AND every IS NOT NULL) THEN
    RAISE EXCEPTION 'a rule is either cron with a zone, or every'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF misfire IS NOT NULL AND cron IS NULL AND every IS NULL THEN
    RAISE EXCEPTION 'misfire needs a rule' USING ERRCODE = 'invalid_parameter_value';
  ELSIF tb.millis(every) NOT BETWEEN 1 AND 3153600000000 THEN
    RAISE EXCEPTION 'every must be 1 ms to 36500 days' USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(headers::text) > 8192 OR NOT tb.are_headers(headers) THEN
    RAISE EXCEPTION 'headers must be an object of texts, or pairs of texts, of at most 4096 bytes'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF least(backoff_first, backoff_most, time_to_live, misfire) < '0'::interval THEN
    RAISE EXCEPTION 'backoff_first, backoff_most, time_to_live and misfire must not be negative'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF by_rule THEN fixed := tb.coming() + tb.millis(every); END IF;
  RETURN tb.insert_checked((coalesce(fixed, 0), 0, tb.millis(backoff_first),
    tb.millis(backoff_most), tb.millis(every), tb.millis(time_to_live), tb.millis(misfire),
    attempts, tb.millis(lease), backoff_jitter, id, cron, zone, headers, payload)::tb.timers, wait,
    by_rule, existing);
END $$;

-- The same with the options as `PostgresInsert` of the Rust crate writes them, in milliseconds.
CREATE OR REPLACE FUNCTION tb.insert_with(id text, payload bytea, options text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_variable
DECLARE
  o record;
BEGIN
  SELECT * INTO o FROM jsonb_to_record(options::jsonb) AS o (due bigint, wait bigint,
    by_rule boolean, existing text, first bigint, most bigint, jitter boolean, attempts bigint,
    lease integer, lives bigint, every bigint, cron text, zone text, misfire bigint, headers jsonb);
  RETURN tb.insert_checked((coalesce(o.due, 0), 0, o.first, o.most, o.every, o.lives, o.misfire,
    o.attempts, o.lease, o.jitter, id, o.cron, o.zone, o.headers, payload)::tb.timers, o.wait,
    o.by_rule, o.existing);
END $$;

-- Inserts a timer, and reports what a transaction cannot contain as an error.
CREATE OR REPLACE FUNCTION tb.insert_checked(
  new tb.timers, wait bigint, by_rule boolean, existing text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  one tb.answer := tb.insert_row(new, wait, by_rule, existing, NULL);
BEGIN
  IF one.answer = 3 THEN
    RAISE EXCEPTION 'a timer with the id % exists', quote_literal(new.id)
      USING ERRCODE = 'unique_violation';
  ELSIF one.answer = 4 THEN
    RAISE EXCEPTION 'the time is after the end of the year 9999'
      USING ERRCODE = 'datetime_field_overflow';
  END IF;
  PERFORM tb.notify_near(0, tb.clock(), ARRAY[new.id], ARRAY[one.due]);
  RETURN (ARRAY['new', 'kept', 'replaced', NULL, NULL, 'next', 'updated'])[one.answer + 1];
END $$;

-- Cancels a timer as part of the caller's transaction. Returns 'removed', 'running' (its attempt is
-- the last) or NULL if there is none.
CREATE OR REPLACE FUNCTION tb.cancel(id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  RETURN (ARRAY['removed', 'running'])[(tb.cancel_row(id)).answer];
END $$;

-- These are executed with the rights of the owner of the store, whatever the caller may do with its
-- tables. Each role that calls one therefore needs a grant, besides that for the schema. The fixed
-- search path ends with the schema of temporary objects, which would otherwise be the first, so that
-- no object of the caller is used.
REVOKE ALL ON FUNCTION tb.insert, tb.insert_with, tb.cancel FROM PUBLIC;

-- Converts a length of time to milliseconds, rounded up.
CREATE OR REPLACE FUNCTION tb.millis(length interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS
  $$ SELECT ceil(extract(epoch FROM length) * 1000)::bigint $$;

-- Returns true if workers can read the headers, or if there are none.
CREATE OR REPLACE FUNCTION tb.are_headers(headers jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE jsonb_typeof(headers)
    WHEN 'object' THEN NOT EXISTS
      (SELECT FROM jsonb_each(headers) WHERE jsonb_typeof(value) <> 'string')
    WHEN 'array' THEN NOT EXISTS
      (SELECT FROM jsonb_array_elements(headers) AS pair WHERE CASE
        WHEN jsonb_typeof(pair) = 'array' AND jsonb_array_length(pair) = 2
        THEN jsonb_typeof(pair -> 0) <> 'string' OR jsonb_typeof(pair -> 1) <> 'string'
        ELSE true END)
    ELSE headers IS NULL
  END
$$;
