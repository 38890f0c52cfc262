-- The tables of a store, created once.
--
-- `timers` has the wide rows, which are written when a timer is inserted or rescheduled and deleted
-- at its end. `states` has what an attempt changes: a timer without a row there rests as it was
-- inserted, and for any other timer that row has the due time that counts. Leases, retries and
-- repetitions therefore leave dead rows in the small table only. `leases` has the leases that were
-- renewed or taken over.
--
-- **A transition locks the row of the timer in `timers`**, and only then changes its rows in `states`
-- and `nexts`. A caller's transaction may keep that lock for as long as it likes. The rows of `leases`
-- belong to workers, and no function that callers execute touches them, so an attempt is renewed
-- whatever is locked. A lease counts as long as the state has its fencing token.
--
-- The indexes by time have the ids in the collation "POSIX", whose order is that of "C". The planner
-- would otherwise look for an id in them, by reading them from end to end, while it takes a table
-- for empty. For the same reason a query for an id reads a column that these indexes lack.
--
-- All times are milliseconds since 1970. A paused timer that rests is parked 2^48 ms behind all
-- others, unless it is to run now (`run_now`). It is then not marked as paused until an attempt counts,
-- so that its key is among those of the others. A delivery that was ordered has the planned time that
-- it had before as its `plan`, unless it has a next delivery.

CREATE TABLE tb.store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  layout integer NOT NULL,
  revision integer NOT NULL,
  paused boolean NOT NULL DEFAULT false
);

CREATE TABLE tb.timers (
  due bigint NOT NULL CHECK (due BETWEEN 0 AND 253402300799999),
  planned bigint NOT NULL,
  first bigint NOT NULL CHECK (first >= 0),
  most bigint NOT NULL CHECK (most >= 0),
  every bigint CHECK (every > 0),
  lives bigint CHECK (lives >= 0),
  misfire bigint CHECK (misfire >= 0),
  attempts bigint NOT NULL CHECK (attempts BETWEEN 1 AND 4294967295),
  lease integer NOT NULL CHECK (lease BETWEEN 1 AND 86400000),
  jitter boolean NOT NULL,
  id text COLLATE "C" NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 512),
  cron text CHECK (octet_length(cron) <= 4096),
  zone text CHECK (octet_length(zone) <= 256),
  headers jsonb CHECK (octet_length(headers::text) <= 65536),
  payload bytea NOT NULL CHECK (octet_length(payload) <= 1048576),
  labels text[],
  PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02,
  autovacuum_analyze_scale_factor = 0.02);

CREATE INDEX timers_due ON tb.timers (due, id COLLATE "POSIX");

CREATE TABLE tb.states (
  due bigint NOT NULL,
  planned bigint NOT NULL,
  fence bigint,
  attempt bigint NOT NULL,
  key bigint NOT NULL GENERATED ALWAYS AS
    (CASE WHEN paused AND fence IS NULL THEN due + 281474976710656 ELSE due END) STORED,
  paused boolean NOT NULL,
  cancelled boolean NOT NULL,
  follows boolean NOT NULL,
  id text COLLATE "C" NOT NULL,
  error text NOT NULL,
  run_now boolean NOT NULL DEFAULT false,
  plan bigint,
  PRIMARY KEY (id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 10000, vacuum_truncate = off);

CREATE INDEX states_key ON tb.states (key, id COLLATE "POSIX");

-- The ends of leases that were renewed or taken over. A row whose fencing token differs from the
-- token of the state has no effect, and is deleted when the lease is requested again. A worker does this
-- at the latest when the row ends, because the ends are among its keys.
CREATE TABLE tb.leases (
  until bigint NOT NULL,
  fence bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  PRIMARY KEY (id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 10000, vacuum_truncate = off);

CREATE INDEX leases_until ON tb.leases (until, id COLLATE "POSIX");

-- The deliveries that were inserted while another one of the same timer was running.
CREATE TABLE tb.nexts (LIKE tb.timers INCLUDING CONSTRAINTS, PRIMARY KEY (id));

CREATE TABLE tb.letters (
  number bigint PRIMARY KEY,
  died bigint NOT NULL,
  attempt bigint NOT NULL,
  reason smallint NOT NULL,
  error text NOT NULL,
  LIKE tb.timers INCLUDING CONSTRAINTS
);

CREATE SEQUENCE tb.fences;
CREATE SEQUENCE tb.numbers;

-- The last reply to each process, so that a batch that is sent again is not executed again.
CREATE TABLE tb.batches (
  process bigint NOT NULL,
  number bigint NOT NULL,
  written timestamptz NOT NULL,
  now bigint NOT NULL,
  answers integer[] NOT NULL,
  dues bigint[] NOT NULL,
  fences bigint[] NOT NULL,
  befores bigint[] NOT NULL,
  PRIMARY KEY (process, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

CREATE INDEX batches_written ON tb.batches (written);

CREATE TABLE tb.workers (
  id bigint PRIMARY KEY,
  process bigint NOT NULL,
  listens boolean NOT NULL,
  beat bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
  vacuum_truncate = off);

-- Space for the rows that workers write, so that they can end timers on a disk that is full.
INSERT INTO tb.states (id, due, planned, attempt, paused, cancelled, follows, error)
  SELECT number::text || repeat('.', 60), 0, 0, 0, false, false, false, ''
  FROM generate_series(1, 2500) AS number;
INSERT INTO tb.batches
  SELECT number, 0, clock_timestamp(), 0, array_fill(0, ARRAY[16]), array_fill(0, ARRAY[16]),
    array_fill(0, ARRAY[16]), array_fill(0, ARRAY[16])
  FROM generate_series(1, 1000) AS number;
INSERT INTO tb.workers SELECT number, 0, false, 0 FROM generate_series(1, 50) AS number;
INSERT INTO tb.leases (id, until, fence)
  SELECT number::text || repeat('.', 60), 0, 0 FROM generate_series(1, 500) AS number;
DELETE FROM tb.workers;
DELETE FROM tb.states;
DELETE FROM tb.leases;
DELETE FROM tb.batches;

-- The outcome of an operation: its number, the time in the key of the timer, its fencing token, and
-- the time in the key before.
CREATE TYPE tb.answer AS (answer integer, due bigint, fence bigint, before bigint);
