-- Functions that the operations share. Each operation has the numbers of its transitions in
-- docs/DESIGN.md.
--
-- The functions that clients call set parameters of the planner, also for those that they call:
--
--   enable_seqscan, enable_bitmapscan   off, because these scans read the dead rows that a long
--     transaction keeps, and the planner prefers them while it takes a table for small
--   plan_cache_mode   force_generic_plan where a call has many short statements, because planning
--     one for the values of each call takes longer than executing it
--   jit   off, because the cost of a scan that cannot be avoided counts as so high that the plan
--     would be compiled in each call

-- Returns the time, rounded down, so that a timer is due if its due time is not greater. Clients call
-- it directly, with any search path, in which another operator may match these operands better.
CREATE OR REPLACE FUNCTION tb.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::bigint $$;

-- Returns the time, rounded up, from which a delay counts so that it passes completely.
CREATE OR REPLACE FUNCTION tb.coming() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Returns the part of the store that has a timer. Each part is loaded by one worker.
CREATE OR REPLACE FUNCTION tb.part(an_id text) RETURNS integer LANGUAGE sql IMMUTABLE AS
  $$ SELECT (hashtextextended(an_id, 0) & 63)::integer $$;

-- Returns the time in the key of a timer.
CREATE OR REPLACE FUNCTION tb.parked(due bigint, paused boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN paused THEN due + 281474976710656 ELSE due END $$;

-- Gives the roles that may use the dead letters the same rights for another table.
CREATE OR REPLACE FUNCTION tb.grant_like_letters(a_table regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  granted record;
BEGIN
  FOR granted IN
    SELECT privilege_type, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role
      FROM pg_class, aclexplode(relacl) WHERE oid = 'tb.letters'::regclass
        AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE 'GRANT ' || granted.privilege_type || ' ON ' || a_table || ' TO ' || granted.role;
  END LOOP;
END $$;

-- Returns true if a timer exists. If it does and `FOR UPDATE SKIP LOCKED` has not found it, another
-- transaction has locked it, which may not end for long.
CREATE OR REPLACE FUNCTION tb.is_there(an_id text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM planned FROM tb.timers WHERE id = an_id;
  RETURN FOUND;
END $$;
