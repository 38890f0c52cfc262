-- Nothing → resting (D1). If the id exists, `existing` decides: the timer is kept (D2), refused (D4),
-- replaced (D5) or updated (D6). A timer that is kept but may end with its running attempt gets the
-- new one as its next delivery (D3).
--
-- new: the row, with its due time unless there is a wait
-- wait: the delay, or NULL
-- by_rule: true if the due time is an occurrence of the rule
-- existing: 'keep', 'replace', 'update' or 'refuse'
-- waits: true if it waits for a transaction that has locked the timer
-- is_known: true if it does not, and the timer existed
-- returns 0 new | 1 kept | 2 replaced | 3 refused | 4 out of range | 5 next | 6 updated | -1 locked

CREATE OR REPLACE FUNCTION tb.insert_row(
  new tb.timers, wait bigint, by_rule boolean, existing text, at bigint, waits boolean,
  is_known boolean
) RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  found_timer record;
  state tb.states;
BEGIN
  IF wait IS NOT NULL THEN new.due := coalesce(at, tb.coming()) + wait; END IF;
  IF new.due NOT BETWEEN 0 AND 253402300799999 THEN RETURN (4, NULL, NULL, NULL)::tb.answer; END IF;
  new.planned := new.due;
  LOOP
    -- An insert would wait if the row is being changed.
    IF is_known THEN
      SELECT due, planned, every, cron, zone INTO found_timer FROM tb.timers WHERE id = new.id
        FOR UPDATE SKIP LOCKED;
      EXIT WHEN FOUND;
      IF tb.is_there(new.id) THEN RETURN (-1, NULL, NULL, NULL)::tb.answer; END IF;
    END IF;
    INSERT INTO tb.timers SELECT new.* ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN RETURN (0, new.due, NULL, NULL)::tb.answer; END IF;
    EXIT WHEN existing = 'refuse';
    is_known := NOT waits;
    CONTINUE WHEN is_known;
    SELECT due, planned, every, cron, zone INTO found_timer FROM tb.timers WHERE id = new.id FOR UPDATE;
    -- Otherwise it has ended meanwhile.
    EXIT WHEN FOUND;
  END LOOP;
  IF existing = 'refuse' THEN RETURN (3, NULL, NULL, NULL)::tb.answer; END IF;
  state := tb.state_of(new.id);
  IF existing = 'keep' THEN
    IF state.fence IS NULL OR state.follows
      OR (NOT state.cancelled AND (found_timer.every IS NOT NULL OR found_timer.cron IS NOT NULL
        OR state.planned = new.due))
    THEN
      RETURN (1, NULL, NULL, NULL)::tb.answer;
    END IF;
    PERFORM tb.write_next(new);
    RETURN (5, NULL, NULL, NULL)::tb.answer;
  ELSIF existing = 'replace' THEN
    IF state.follows THEN DELETE FROM tb.nexts WHERE id = new.id; END IF;
    IF state.id IS NOT NULL THEN DELETE FROM tb.states WHERE id = new.id; END IF;
    PERFORM tb.write_timer(new);
    RETURN (2, new.due, NULL, NULL)::tb.answer;
  END IF;
  RETURN tb.update_row(new, state, by_rule, wait IS NOT NULL);
END $$;

-- Returns the state of a timer whose row is locked, or NULL.
CREATE OR REPLACE FUNCTION tb.state_of(an_id text) RETURNS tb.states LANGUAGE plpgsql AS $$
DECLARE
  state tb.states;
  place tid;
BEGIN
  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT * INTO state FROM tb.states WHERE id = an_id;
    RETURN state;
  END IF;
  -- A state that began after this transaction, which cannot see it, is found by its id. Nothing is read
  -- from the index, because each insert into a page from which a serializable transaction has read
  -- counts as a conflict with it.
  BEGIN
    INSERT INTO tb.states (id, due, planned, attempt, paused, cancelled, follows, error)
      VALUES (an_id, 0, 0, 0, false, false, false, '') RETURNING ctid INTO place;
    DELETE FROM tb.states WHERE ctid = place;
    RETURN NULL;
  EXCEPTION WHEN unique_violation THEN
    -- Fails if the state has changed after this transaction began.
    SELECT * INTO state FROM tb.states WHERE id = an_id FOR UPDATE;
  END;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the timer % has changed', an_id USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN state;
END $$;

-- Replaces the row of a timer.
CREATE OR REPLACE FUNCTION tb.write_timer(new tb.timers) RETURNS void LANGUAGE sql AS $$
  UPDATE tb.timers SET due = new.due, planned = new.planned, first = new.first, most = new.most,
    every = new.every, lives = new.lives, misfire = new.misfire, attempts = new.attempts,
    lease = new.lease, jitter = new.jitter, cron = new.cron, zone = new.zone,
    headers = new.headers, payload = new.payload, labels = new.labels
  WHERE id = new.id
$$;

-- Writes the next delivery of a timer that has a state.
CREATE OR REPLACE FUNCTION tb.write_next(new tb.timers) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM tb.nexts WHERE id = new.id;
  INSERT INTO tb.nexts SELECT new.*;
  UPDATE tb.states SET follows = true, plan = NULL WHERE id = new.id AND NOT follows;
END $$;

-- Any state → the same with another payload and other options (D6). If the time changes, a timer that
-- rests is due at the new time, and otherwise the new time is that of its next delivery.
CREATE OR REPLACE FUNCTION tb.update_row(
  new tb.timers, state tb.states, by_rule boolean, delayed boolean
) RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  current tb.timers;
  kept tb.timers;
  cancelled boolean := coalesce(state.cancelled, false);
  follows boolean := coalesce(state.follows, false);
  same boolean;
BEGIN
  SELECT * INTO kept FROM tb.timers WHERE id = new.id;
  current := kept;
  IF follows THEN
    SELECT * INTO current FROM tb.nexts WHERE id = new.id;
  ELSIF state.id IS NOT NULL THEN
    current.planned := coalesce(state.plan, state.planned);
  END IF;
  same := CASE
    -- A timer that was cancelled ends with its attempt.
    WHEN delayed OR (cancelled AND NOT follows) THEN false
    WHEN by_rule THEN current.every IS NOT DISTINCT FROM new.every
      AND current.cron IS NOT DISTINCT FROM new.cron
      AND current.zone IS NOT DISTINCT FROM new.zone
      -- A time beyond the next one of a cron expression was planned when the clock was ahead. The
      -- next one is still to come, unless it passed since it was computed and was delivered.
      AND (current.cron IS NULL OR current.planned <= new.due OR new.due <= tb.clock())
    ELSE current.planned = new.due
  END;
  IF state.fence IS NULL AND NOT follows AND NOT same THEN
    PERFORM tb.write_timer(new);
    IF state.paused OR state.run_now THEN
      UPDATE tb.states SET due = new.due, planned = new.due, attempt = 0, error = '', paused = true,
        run_now = false, plan = NULL WHERE id = new.id RETURNING * INTO state;
    ELSIF state.id IS NOT NULL THEN
      DELETE FROM tb.states WHERE id = new.id;
    END IF;
    RETURN (6, tb.parked(new.due, coalesce(state.paused, false)), NULL, NULL)::tb.answer;
  END IF;
  IF NOT same THEN
    PERFORM tb.write_next(new);
  ELSIF follows THEN
    current.payload := new.payload;
    PERFORM tb.write_next((current.due, current.planned, new.first, new.most, new.every, new.lives,
      new.misfire, new.attempts, new.lease, new.jitter, new.id, new.cron, new.zone, new.headers,
      new.payload, new.labels)::tb.timers);
  END IF;
  IF NOT cancelled THEN
    PERFORM tb.write_timer((kept.due, kept.planned, new.first, new.most, new.every, new.lives,
      new.misfire, new.attempts, new.lease, new.jitter, new.id, new.cron, new.zone, new.headers,
      new.payload, new.labels)::tb.timers);
  END IF;
  RETURN (6, coalesce(state.key, kept.due), NULL, NULL)::tb.answer;
END $$;
