-- Inserts a timer as part of the caller's transaction, from any client.
--
--   BEGIN;
--   INSERT INTO orders …;
--   SELECT reminders.insert('order 7', 'unpaid', delay => '1 day');
--   COMMIT;
--
-- The transaction cannot be prepared (PREPARE TRANSACTION) if a worker has to be notified, as it has of
-- a timer that is due within twelve seconds of the end of the transaction, unless `notify` is false.
--
-- payload, payload_json, payload_bytes: the payload as a text, in JSON, or as it is; one of them
-- existing: what happens to a timer with this id, 'refuse' (an error, unique_violation), 'keep',
--   'replace' or 'update'
-- due or delay: the time; with `every` alone, one interval from now
-- headers: an object of texts, or an array of pairs
-- notify: false if no worker is notified, so that a timer that is due soon may be late by two seconds
-- returns 'new', 'kept', 'replaced', 'next' or 'updated'
CREATE OR REPLACE FUNCTION tb.insert(
  id text,
  payload text DEFAULT NULL,
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
  headers jsonb DEFAULT NULL,
  payload_json jsonb DEFAULT NULL,
  payload_bytes bytea DEFAULT NULL,
  notify boolean DEFAULT true
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_variable
DECLARE
  by_rule boolean := due IS NULL AND delay IS NULL;
  fixed bigint := 0;
BEGIN
  IF num_nonnulls(payload, payload_json, payload_bytes) > 1 THEN
    RAISE EXCEPTION 'payload, payload_json and payload_bytes exclude each other'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF due IS NOT NULL AND delay IS NOT NULL THEN
    RAISE EXCEPTION 'due and delay exclude each other' USING ERRCODE = 'invalid_parameter_value';
  ELSIF NOT isfinite(due) THEN
    RAISE EXCEPTION 'due must be a time, and is %', due USING ERRCODE = 'invalid_parameter_value';
  ELSIF by_rule AND every IS NULL THEN
    RAISE EXCEPTION 'due, delay or every is needed (the first time of a cron rule is not computed)'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF due IS NOT NULL THEN
    fixed := greatest(ceil(extract(epoch FROM due) * 1000), 0);
  ELSIF by_rule THEN
    fixed := tb.coming() + tb.millis(every);
  END IF;
  RETURN tb.insert_checked((fixed, 0, tb.millis(backoff_first), tb.millis(backoff_most),
    tb.millis(every), tb.millis(time_to_live), tb.millis(misfire), attempts, tb.millis(lease),
    backoff_jitter, id, cron, zone, headers,
    coalesce(payload_bytes, convert_to(coalesce(payload, payload_json::text, ''), 'UTF8')),
    NULL)::tb.timers,
    tb.millis(delay), by_rule, existing, notify);
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
    lease integer, lives bigint, every bigint, cron text, zone text, misfire bigint, headers jsonb,
    labels jsonb, notify boolean);
  RETURN tb.insert_checked((coalesce(o.due, 0), 0, o.first, o.most, o.every, o.lives, o.misfire,
    o.attempts, o.lease, o.jitter, id, o.cron, o.zone, o.headers, payload,
    tb.labels_of(o.labels))::tb.timers, o.wait,
    o.by_rule, o.existing, o.notify);
END $$;

-- Inserts a timer, unless a worker could not read it. Reports as an error what a transaction cannot
-- contain.
CREATE OR REPLACE FUNCTION tb.insert_checked(
  new tb.timers, wait bigint, by_rule boolean, existing text, notify boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  one tb.answer;
BEGIN
  IF (existing IN ('refuse', 'keep', 'replace', 'update')) IS NOT true THEN
    RAISE EXCEPTION 'existing must be refuse, keep, replace or update, and is %', existing
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF (new.cron IS NULL) <> (new.zone IS NULL) OR num_nonnulls(new.cron, new.every) > 1 THEN
    RAISE EXCEPTION 'a rule is either cron with a zone, or every'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF new.misfire IS NOT NULL AND num_nonnulls(new.cron, new.every) = 0 THEN
    RAISE EXCEPTION 'misfire needs a rule' USING ERRCODE = 'invalid_parameter_value';
  ELSIF new.every NOT BETWEEN 1 AND 3153600000000 THEN
    RAISE EXCEPTION 'every must be 1 ms to 36500 days' USING ERRCODE = 'invalid_parameter_value';
  ELSIF least(new.first, new.most, new.lives, new.misfire) < 0 THEN
    RAISE EXCEPTION 'backoff_first, backoff_most, time_to_live and misfire must not be negative'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF NOT tb.are_headers(new.headers) THEN
    RAISE EXCEPTION 'headers must be an object of texts, or pairs of texts, of at most 4096 bytes'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF NOT tb.are_labels(new.labels) THEN
    RAISE EXCEPTION 'a timer has at most 8 labels of 1 to 64 bytes without control characters'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF NOT tb.is_cron(new.cron) THEN
    RAISE EXCEPTION 'cron must have 5 to 7 fields, or be a name such as @daily, and is %',
      quote_literal(left(new.cron, 80)) USING ERRCODE = 'invalid_parameter_value';
  ELSIF NOT tb.is_zone(new.zone) THEN
    RAISE EXCEPTION 'zone must be an IANA time zone, and is %', quote_literal(left(new.zone, 80))
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The trigger on the table decides at the end of the transaction.
  PERFORM set_config('tourbillon.notify', CASE WHEN notify THEN 'on' ELSE 'off' END, true);
  one := tb.insert_row(new, wait, coalesce(by_rule, false), existing, NULL, true, false);
  PERFORM set_config('tourbillon.notify', 'off', true);
  IF one.answer = 3 THEN
    RAISE EXCEPTION 'a timer with the id % exists', quote_literal(new.id)
      USING ERRCODE = 'unique_violation';
  ELSIF one.answer = 4 THEN
    RAISE EXCEPTION 'the time is after the end of the year 9999'
      USING ERRCODE = 'datetime_field_overflow';
  END IF;
  RETURN (ARRAY['new', 'kept', 'replaced', NULL, NULL, 'next', 'updated'])[one.answer + 1];
END $$;

-- Notifies workers at the end of a transaction of a timer that the transaction has inserted, if the
-- time is near by then. Pages of keys reach ten seconds ahead (`tb.load`), so a page that has a later
-- time is read after the commit.
--
-- The first timers of a transaction are named in a notice each. For more of them, workers load their
-- keys from the first minute that a notice names.
CREATE OR REPLACE FUNCTION tb.notify_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  now bigint := tb.clock();
  variable text;
  noted text;
  count integer;
  least_minute bigint;
BEGIN
  IF NEW.due > now + 12000 THEN RETURN NULL; END IF;
  variable := 'tourbillon.noted_' || TG_RELID;
  noted := current_setting(variable, true);
  IF coalesce(noted, '') = '' THEN
    noted := '0 9223372036854775807';
    -- A snapshot that is as old as the transaction may lack a worker.
    IF current_setting('transaction_isolation') = 'read committed' THEN
      PERFORM FROM tb.workers WHERE listens AND beat >= now - 5000 LIMIT 1;
      IF NOT FOUND THEN noted := 'none'; END IF;
    END IF;
  END IF;
  IF noted <> 'none' THEN
    count := split_part(noted, ' ', 1);
    least_minute := split_part(noted, ' ', 2);
    IF count < 64 THEN
      count := count + 1;
      PERFORM pg_notify('tb_channel', concat_ws(':', 0, tb.part(NEW.id), NEW.due, NEW.id));
    ELSIF NEW.due < least_minute THEN
      least_minute := NEW.due - NEW.due % 60000;
      PERFORM pg_notify('tb_channel', concat_ws(':', 'from', least_minute));
    END IF;
    noted := concat_ws(' ', count, least_minute);
  END IF;
  PERFORM set_config(variable, noted, true);
  RETURN NULL;
END $$;

REVOKE ALL ON FUNCTION tb.notify_commit FROM PUBLIC;

DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
    WHERE tgrelid = 'tb.timers'::regclass AND tgname = 'notify_commit')
  THEN
    CREATE CONSTRAINT TRIGGER notify_commit AFTER INSERT OR UPDATE OF due ON tb.timers
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
      WHEN (current_setting('tourbillon.notify', true) = 'on')
      EXECUTE FUNCTION tb.notify_commit();
  END IF;
END $$;

-- Cancels a timer as part of the caller's transaction. Returns 'removed', 'running' (its attempt is
-- the last) or NULL if there is none.
CREATE OR REPLACE FUNCTION tb.cancel(id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  RETURN (ARRAY['removed', 'running'])[(tb.cancel_row(id, true)).answer];
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
CREATE OR REPLACE FUNCTION tb.are_headers(headers jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  pairs jsonb;
  length bigint := 0;
BEGIN
  -- A character takes up to six bytes in JSON.
  IF headers IS NULL THEN RETURN true; END IF;
  IF octet_length(headers::text) > 65536 THEN RETURN false; END IF;
  CASE jsonb_typeof(headers)
    WHEN 'object' THEN
      SELECT jsonb_agg(jsonb_build_array(name, value)) INTO pairs
        FROM jsonb_each(headers) AS header (name, value);
    WHEN 'array' THEN pairs := headers;
    ELSE RETURN false;
  END CASE;
  FOR headers IN SELECT value FROM jsonb_array_elements(pairs) LOOP
    IF jsonb_typeof(headers) <> 'array' OR jsonb_array_length(headers) <> 2
      OR jsonb_typeof(headers -> 0) <> 'string' OR jsonb_typeof(headers -> 1) <> 'string'
      OR headers ->> 0 = ''
    THEN
      RETURN false;
    END IF;
    length := length + octet_length(headers ->> 0) + octet_length(headers ->> 1);
  END LOOP;
  RETURN length <= 4096;
END $$;

-- Returns true if workers can read the labels, or if there are none.
CREATE OR REPLACE FUNCTION tb.are_labels(labels text[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT labels IS NULL OR cardinality(labels) <= 8 AND NOT EXISTS (SELECT FROM unnest(labels) AS label
    WHERE label IS NULL OR octet_length(label) NOT BETWEEN 1 AND 64
      OR label ~ U&'[\0001-\001F\007F-\009F]')
$$;

-- Returns true for a text with the form of a cron expression, or if there is none.
CREATE OR REPLACE FUNCTION tb.is_cron(cron text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN cron IS NULL OR (octet_length(cron) <= 1024
    AND cron ~ '^\s*(@[a-z]+|([0-9A-Za-z*,/?#-]+\s+){4,6}[0-9A-Za-z*,/?#-]+)\s*$');
END $$;

-- Returns true for the name of a time zone, or if there is none. The list of the names is read only if
-- a name could as well be an abbreviation or the rule of a zone, because that takes milliseconds.
CREATE OR REPLACE FUNCTION tb.is_zone(zone text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF zone IS NULL OR zone = 'UTC' THEN RETURN true; END IF;
  IF octet_length(zone) > 256 THEN RETURN false; END IF;
  IF zone ~ '^[A-Za-z_]+/[A-Za-z_/]+$' THEN
    PERFORM now() AT TIME ZONE zone;
    RETURN true;
  END IF;
  PERFORM FROM pg_timezone_names AS known WHERE lower(known.name) = lower(zone);
  RETURN FOUND;
EXCEPTION WHEN invalid_parameter_value THEN
  RETURN false;
END $$;
