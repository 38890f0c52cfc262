-- The heartbeat of a worker, with the keys of the parts that it owns.
--
-- A worker that has not sent a heartbeat for five seconds counts as dead. Each part belongs to the
-- live worker that wins it by a hash of both, so all workers agree as far as they agree about who is
-- alive, and a new worker takes from each of the others. They may disagree for a second. A part then
-- has two owners, of which each timer's lease accepts one, but never none.
--
-- from_due, from_id, after: the keys begin with this one, or after it
-- until: the last due time, at most ten seconds from now
-- most: the maximum number of keys

CREATE OR REPLACE FUNCTION tb.load(
  me bigint, a_process bigint, a_listens boolean, from_due bigint, from_id text, after boolean,
  until bigint, most integer, at bigint
) RETURNS TABLE (
  now bigint, paused boolean, parts integer[], last bigint, dues bigint[], ids text[]
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off AS $$
#variable_conflict use_variable
DECLARE
  alive bigint[];
BEGIN
  now := coalesce(at, tb.clock());
  PERFORM tb.beat(me, a_process, a_listens, now);
  -- Once, because each heartbeat leaves a dead row that a long transaction keeps.
  SELECT array_agg(worker.id) INTO alive FROM tb.workers AS worker WHERE worker.beat >= now - 5000;
  SELECT array_agg(part ORDER BY part) INTO parts FROM generate_series(0, 63) AS part
    WHERE me = (SELECT worker FROM unnest(alive) AS worker
      ORDER BY hashint8extended(worker, part), worker LIMIT 1);
  parts := coalesce(parts, '{}');
  last := least(until, now + 10000);
  SELECT store.paused INTO paused FROM tb.store AS store;
  IF paused OR cardinality(parts) = 0 THEN RETURN NEXT; RETURN; END IF;
  SELECT array_agg(key.due), array_agg(key.id) INTO dues, ids
    FROM tb.keys(from_due, from_id, after, last, most, CASE WHEN cardinality(parts) < 64 THEN parts END)
      AS key;
  RETURN NEXT;
END $$;

-- Returns the first keys of some parts, or of all, that have been overdue for a while. They begin where
-- the keys of `tb.load` would, and are due before `until`.
CREATE OR REPLACE FUNCTION tb.late(
  from_due bigint, from_id text, after boolean, until bigint, age bigint, most integer,
  parts integer[], at bigint
) RETURNS TABLE (dues bigint[], ids text[]) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off AS $$
#variable_conflict use_variable
DECLARE
  now bigint := coalesce(at, tb.clock());
BEGIN
  SELECT array_agg(key.due), array_agg(key.id) INTO dues, ids
    FROM tb.keys(from_due, from_id, after, least(until, now - age), most, parts) AS key;
  RETURN NEXT;
END $$;

-- Returns up to `enough` keys in order, of some parts or of all.
CREATE OR REPLACE FUNCTION tb.keys(
  from_due bigint, from_id text, after boolean, last bigint, enough integer, parts integer[]
) RETURNS TABLE (due bigint, id text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    (SELECT timer.due, timer.id FROM tb.timers AS timer
      WHERE (timer.due, timer.id COLLATE "POSIX") >= (from_due, from_id) AND timer.due <= last
        AND NOT (after AND timer.due = from_due AND timer.id = from_id)
        AND (parts IS NULL OR tb.part(timer.id) = ANY (parts))
        -- Not as a join, whose plan could read all states.
        AND (SELECT state.attempt FROM tb.states AS state WHERE state.id = timer.id) IS NULL
      ORDER BY timer.due, timer.id COLLATE "POSIX" LIMIT enough)
    UNION ALL
    (SELECT state.key, state.id FROM tb.states AS state
      WHERE (state.key, state.id COLLATE "POSIX") >= (from_due, from_id) AND state.key <= last
        AND NOT (after AND state.key = from_due AND state.id = from_id)
        AND (parts IS NULL OR tb.part(state.id) = ANY (parts))
        AND (state.fence IS NULL OR state.fence IS DISTINCT FROM
          (SELECT lease.fence FROM tb.leases AS lease WHERE lease.id = state.id))
      ORDER BY state.key, state.id COLLATE "POSIX" LIMIT enough)
    UNION ALL
    (SELECT lease.until, lease.id FROM tb.leases AS lease
      WHERE (lease.until, lease.id COLLATE "POSIX") >= (from_due, from_id) AND lease.until <= last
        AND NOT (after AND lease.until = from_due AND lease.id = from_id)
        AND (parts IS NULL OR tb.part(lease.id) = ANY (parts))
      ORDER BY lease.until, lease.id COLLATE "POSIX" LIMIT enough)
    ORDER BY 1, 2 LIMIT enough;
END $$;

-- Writes the heartbeat of a worker, twice a second at most, and removes dead ones.
CREATE OR REPLACE FUNCTION tb.beat(me bigint, a_process bigint, a_listens boolean, now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM tb.workers WHERE id = me AND beat BETWEEN now - 500 AND now;
  IF FOUND THEN RETURN; END IF;
  -- A heartbeat need not survive the server.
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO tb.workers (id, process, listens, beat) VALUES (me, a_process, a_listens, now)
    -- A request of a worker that has left may arrive after that.
    ON CONFLICT (id) DO UPDATE SET beat = now WHERE workers.beat >= 0;
  DELETE FROM tb.workers WHERE id IN
    (SELECT id FROM tb.workers
      WHERE beat BETWEEN 0 AND now - 5001 OR beat < 0 AND -beat NOT BETWEEN now - 60000 AND now
      FOR UPDATE SKIP LOCKED);
  -- The clock was set back. These workers have from now on as much time as the others.
  UPDATE tb.workers SET beat = now WHERE id IN
    (SELECT id FROM tb.workers WHERE beat > now AND id <> me FOR UPDATE SKIP LOCKED);
END $$;

-- Removes a worker. For a minute it is remembered by the negative time.
CREATE OR REPLACE FUNCTION tb.leave(worker bigint, at bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now bigint := coalesce(at, tb.clock());
BEGIN
  INSERT INTO tb.workers (id, process, listens, beat) VALUES (worker, 0, false, -now)
    ON CONFLICT (id) DO UPDATE SET listens = false, beat = -now;
  PERFORM pg_notify('tb_channel', 'left');
END $$;
