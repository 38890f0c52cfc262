-- Functions that the operations share.

-- Returns the time, rounded down, so that a timer is due if its due time is not greater.
CREATE OR REPLACE FUNCTION tb.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Returns the time, rounded up, from which a delay counts so that it passes completely.
CREATE OR REPLACE FUNCTION tb.coming() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Returns the part of the store that has a timer. Each part is loaded by one worker.
CREATE OR REPLACE FUNCTION tb.part(an_id text) RETURNS integer LANGUAGE sql IMMUTABLE AS
  $$ SELECT (hashtextextended(an_id, 0) & 63)::integer $$;

-- Returns the time in the key of a timer.
CREATE OR REPLACE FUNCTION tb.parked(due bigint, paused boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN paused THEN due + 281474976710656 ELSE due END $$;
