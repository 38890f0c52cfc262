-- Resting → nothing (D7). Leased → leased and cancelled, without its next delivery (D8).
--
-- waits: true if it waits for a transaction that has locked the timer
-- returns 1 it rested | 2 it is leased | 0 no such timer | -1 locked
CREATE OR REPLACE FUNCTION tb.cancel_row(an_id text, waits boolean) RETURNS tb.answer
LANGUAGE plpgsql AS $$
DECLARE
  state tb.states;
BEGIN
  IF waits THEN
    PERFORM FROM tb.timers WHERE id = an_id FOR UPDATE;
  ELSE
    PERFORM FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  END IF;
  IF NOT FOUND THEN RETURN (-tb.is_there(an_id)::integer, NULL, NULL, NULL)::tb.answer; END IF;
  state := tb.state_of(an_id);
  IF state.fence IS NULL THEN
    DELETE FROM tb.timers WHERE id = an_id;
    IF state.id IS NOT NULL THEN DELETE FROM tb.states WHERE id = an_id; END IF;
    IF state.follows THEN DELETE FROM tb.nexts WHERE id = an_id; END IF;
    RETURN (1, NULL, NULL, NULL)::tb.answer;
  END IF;
  IF NOT state.cancelled OR state.follows THEN
    UPDATE tb.states SET cancelled = true, follows = false, plan = NULL WHERE id = an_id;
    IF state.follows THEN DELETE FROM tb.nexts WHERE id = an_id; END IF;
  END IF;
  RETURN (2, NULL, NULL, NULL)::tb.answer;
END $$;

-- Locks a timer, and compares it with a condition.
--
-- condition: the name of a header and its value in the last insert, or null if it must not be set; or an
--   object with the `label` that the timer must have
-- returns 0 the condition is met | 7 it is not met, or no such timer | -1 locked
CREATE OR REPLACE FUNCTION tb.check_last(an_id text, condition jsonb) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  last jsonb;
  own text[];
  value text;
  state tb.states;
BEGIN
  SELECT headers, labels INTO last, own FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN CASE WHEN tb.is_there(an_id) THEN -1 ELSE 7 END; END IF;
  IF jsonb_typeof(condition) = 'object' THEN
    RETURN CASE WHEN condition ->> 'label' = ANY (own) THEN 0 ELSE 7 END;
  END IF;
  state := tb.state_of(an_id);
  IF state.follows THEN
    SELECT headers INTO last FROM tb.nexts WHERE id = an_id;
  ELSIF state.cancelled THEN
    -- It ends with its attempt.
    RETURN 7;
  END IF;
  IF jsonb_typeof(last) = 'array' THEN
    SELECT pair ->> 1 INTO value FROM jsonb_array_elements(last) AS pair
      WHERE pair ->> 0 = condition ->> 0 LIMIT 1;
  ELSE
    value := last ->> (condition ->> 0);
  END IF;
  RETURN CASE WHEN value IS NOT DISTINCT FROM condition ->> 1 THEN 0 ELSE 7 END;
END $$;

-- Resting → resting with another due and planned time, no attempts and no order (D9).
--
-- returns 1 done | 0 no such timer, or it is leased | 4 out of range | -1 locked
CREATE OR REPLACE FUNCTION tb.reset_row(an_id text, a_due bigint, wait bigint, at bigint)
RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  state tb.states;
BEGIN
  IF wait IS NOT NULL THEN a_due := coalesce(at, tb.coming()) + wait; END IF;
  IF a_due NOT BETWEEN 0 AND 253402300799999 THEN RETURN (4, NULL, NULL, NULL)::tb.answer; END IF;
  PERFORM FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN (-tb.is_there(an_id)::integer, NULL, NULL, NULL)::tb.answer; END IF;
  state := tb.state_of(an_id);
  IF state.fence IS NOT NULL THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
  UPDATE tb.timers SET due = a_due, planned = a_due WHERE id = an_id;
  IF state.paused OR state.run_now OR state.follows THEN
    UPDATE tb.states SET due = a_due, planned = a_due, attempt = 0, error = '',
      paused = paused OR run_now, run_now = false, plan = NULL
      WHERE id = an_id RETURNING * INTO state;
  ELSIF state.id IS NOT NULL THEN
    DELETE FROM tb.states WHERE id = an_id;
  END IF;
  RETURN (1, tb.parked(a_due, coalesce(state.paused, false)), NULL, NULL)::tb.answer;
END $$;

-- Resting or paused → the same and due now (D27). A delivery that has not begun is planned for now, and
-- keeps its former planned time as its plan.
--
-- returns 1 done, or it is due already | 0 no such timer | 8 it is leased | -1 locked
CREATE OR REPLACE FUNCTION tb.run_row(an_id text, at bigint) RETURNS tb.answer
LANGUAGE plpgsql AS $$
DECLARE
  timer record;
  state tb.states;
  now bigint;
BEGIN
  SELECT due, planned INTO timer FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN (-tb.is_there(an_id)::integer, NULL, NULL, NULL)::tb.answer; END IF;
  state := tb.state_of(an_id);
  IF state.fence IS NOT NULL THEN RETURN (8, NULL, NULL, NULL)::tb.answer; END IF;
  now := coalesce(at, tb.clock());
  IF coalesce(state.key, timer.due) <= now THEN
    RETURN (1, coalesce(state.key, timer.due), NULL, NULL)::tb.answer;
  ELSIF state.id IS NULL THEN
    INSERT INTO tb.states (id, due, planned, attempt, paused, cancelled, follows, error)
      VALUES (an_id, timer.due, timer.planned, 0, false, false, false, '') RETURNING * INTO state;
  END IF;
  IF state.attempt > 0 OR state.due <> state.planned THEN
    -- The delivery has begun, so this is its next attempt.
    state.due := least(state.due, now);
  ELSE
    IF NOT state.follows THEN state.plan := coalesce(state.plan, state.planned); END IF;
    state.due := now;
    state.planned := now;
  END IF;
  UPDATE tb.states SET due = state.due, planned = state.planned, plan = state.plan, paused = false,
    run_now = paused OR run_now WHERE id = an_id;
  RETURN (1, state.due, NULL, NULL)::tb.answer;
END $$;

-- Any state → the same, paused and without an order (D10), or not paused (D11).
--
-- returns 1 done | 0 no such timer | -1 locked
CREATE OR REPLACE FUNCTION tb.pause_row(an_id text, pauses boolean) RETURNS tb.answer
LANGUAGE plpgsql AS $$
DECLARE
  timer record;
  state tb.states;
BEGIN
  SELECT due, planned INTO timer FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN (-tb.is_there(an_id)::integer, NULL, NULL, NULL)::tb.answer; END IF;
  state := tb.state_of(an_id);
  IF state.id IS NOT NULL THEN
    -- Unless its attempt is running or an attempt has counted, the delivery returns to its plan.
    IF pauses AND state.fence IS NULL AND state.attempt = 0 AND state.plan IS NOT NULL THEN
      state.due := state.plan;
      state.planned := state.plan;
      state.plan := NULL;
    END IF;
    UPDATE tb.states SET due = state.due, planned = state.planned, plan = state.plan, paused = pauses,
      run_now = false WHERE id = an_id RETURNING * INTO state;
    RETURN (1, state.key, NULL, NULL)::tb.answer;
  END IF;
  IF pauses THEN
    INSERT INTO tb.states (id, due, planned, attempt, paused, cancelled, follows, error)
      VALUES (an_id, timer.due, timer.planned, 0, true, false, false, '');
  END IF;
  RETURN (1, tb.parked(timer.due, pauses), NULL, NULL)::tb.answer;
END $$;

-- Pauses the store after the batches that have begun, or resumes it (D12). Each batch locks a row of
-- `batches` first, for which it shares the lock of the table until its end.
CREATE OR REPLACE FUNCTION tb.pause_store(pauses boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
  LOCK TABLE tb.batches IN EXCLUSIVE MODE;
  UPDATE tb.store SET paused = pauses;
  PERFORM pg_notify('tb_channel', 'pause');
END $$;

-- Timer that cannot be read, or a state without a timer → nothing (D24).
--
-- unreadable: true if the caller could not read the timer
-- returns 1 done | 0 no such timer, or it can be read
CREATE OR REPLACE FUNCTION tb.discard_row(an_id text, unreadable boolean) RETURNS tb.answer
LANGUAGE plpgsql AS $$
DECLARE
  removed boolean;
BEGIN
  PERFORM FROM tb.timers WHERE id = an_id FOR UPDATE;
  removed := FOUND;
  IF removed AND NOT unreadable THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
  DELETE FROM tb.timers WHERE id = an_id;
  DELETE FROM tb.states WHERE id = an_id;
  removed := removed OR FOUND;
  DELETE FROM tb.nexts WHERE id = an_id;
  removed := removed OR FOUND;
  RETURN (removed::integer, NULL, NULL, NULL)::tb.answer;
END $$;
