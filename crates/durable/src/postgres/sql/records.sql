-- The view of timers, which precedes the functions.

-- A store that an older version has created lacks these columns. `IF NOT EXISTS` would lock the
-- table although they are there.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
    WHERE attrelid = 'tb.states'::regclass AND attname = 'run_now')
  THEN
    ALTER TABLE tb.states ADD COLUMN run_now boolean NOT NULL DEFAULT false;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
    WHERE attrelid = 'tb.states'::regclass AND attname = 'plan')
  THEN
    ALTER TABLE tb.states ADD COLUMN plan bigint;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
    WHERE attrelid = 'tb.timers'::regclass AND attname = 'labels')
  THEN
    ALTER TABLE tb.timers ADD COLUMN labels text[];
    ALTER TABLE tb.nexts ADD COLUMN labels text[];
    ALTER TABLE tb.letters ADD COLUMN labels text[];
  END IF;
END $$;

-- A timer as it is, with the delivery that follows.
CREATE OR REPLACE VIEW tb.records AS
SELECT timer.id, coalesce(lease.until, state.key, timer.due) AS key, state.fence,
  coalesce(state.cancelled, false) AS cancelled,
  coalesce(state.paused OR state.run_now, false) AS paused,
  coalesce(lease.until, state.due, timer.due) AS due, coalesce(state.planned, timer.planned) AS planned,
  coalesce(state.attempt, 0) AS attempt, coalesce(state.error, '') AS error,
  timer.first, timer.most, timer.jitter, timer.attempts, timer.lease, timer.lives,
  CASE WHEN state.cancelled THEN NULL ELSE timer.every END AS every,
  CASE WHEN state.cancelled THEN NULL ELSE timer.cron END AS cron,
  CASE WHEN state.cancelled THEN NULL ELSE timer.zone END AS zone,
  timer.misfire, timer.headers::text AS headers, timer.payload,
  next.due AS next_due, next.planned AS next_planned, next.first AS next_first,
  next.most AS next_most, next.jitter AS next_jitter, next.attempts AS next_attempts,
  next.lease AS next_lease, next.lives AS next_lives, next.every AS next_every,
  next.cron AS next_cron, next.zone AS next_zone, next.misfire AS next_misfire,
  next.headers::text AS next_headers, next.payload AS next_payload,
  coalesce(state.run_now, false) AS run_now, state.plan, timer.labels, next.labels AS next_labels
FROM tb.timers AS timer
LEFT JOIN tb.states AS state ON state.id = timer.id
LEFT JOIN tb.leases AS lease ON lease.id = state.id AND lease.fence = state.fence
LEFT JOIN tb.nexts AS next ON next.id = state.id AND state.follows;

