-- Returns a fencing token that is greater than all before. It is also greater than those that were
-- granted more than a second ago and lost by a failover to a standby that did not have them yet,
-- because the sequence is moved on to the number of seconds since 1970, with 20 bits for the leases
-- of each second.
CREATE OR REPLACE FUNCTION tb.next_fence() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  token bigint := nextval('tb.fences');
  least_token bigint := floor(extract(epoch FROM clock_timestamp()))::bigint << 20;
BEGIN
  IF token >= least_token THEN RETURN token; END IF;
  -- Another transaction that has locked the row has just done it, and may take long to end.
  PERFORM FROM tb.store FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN token; END IF;
  -- Some more, because others take tokens meanwhile and the sequence must not be set back.
  PERFORM setval('tb.fences', least_token + 65536) FROM tb.fences WHERE last_value < least_token;
  RETURN nextval('tb.fences');
END $$;

-- Resting and due → leased, with one more attempt (D13). Leased with an expired lease → leased again
-- (D14).
--
-- takes_over: true if a paused store grants an expired lease
-- is_paused: true if the store is paused
-- returns 0 no such timer | 1 not due, paused, or leased until then | 2 leased | 3 leased, and it was
--   taken over | 4 the store is paused | 5 no such timer, although it has a state | -1 locked
CREATE OR REPLACE FUNCTION tb.lease_row(
  an_id text, takes_over boolean, is_paused boolean, at bigint
) RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  timer record;
  state tb.states;
  now bigint;
  token bigint;
  key bigint;
  ends bigint;
BEGIN
  SELECT due, planned, lease INTO timer FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    IF tb.is_there(an_id) THEN RETURN (-1, NULL, NULL, NULL)::tb.answer; END IF;
    DELETE FROM tb.leases WHERE id = an_id;
    PERFORM attempt FROM tb.states WHERE id = an_id;
    RETURN (CASE WHEN FOUND THEN 5 ELSE 0 END, NULL, NULL, NULL)::tb.answer;
  END IF;
  now := coalesce(at, tb.clock());
  SELECT * INTO state FROM tb.states WHERE id = an_id;
  key := coalesce(state.key, timer.due);
  IF state.fence IS NOT NULL THEN
    SELECT until INTO ends FROM tb.leases WHERE id = an_id AND fence = state.fence;
    key := coalesce(ends, key);
  END IF;
  IF key > now THEN
    DELETE FROM tb.leases WHERE id = an_id AND fence IS DISTINCT FROM state.fence;
    RETURN (1, key, NULL, NULL)::tb.answer;
  END IF;
  IF is_paused AND NOT (takes_over AND state.fence IS NOT NULL) THEN
    RETURN (4, NULL, NULL, NULL)::tb.answer;
  END IF;
  token := tb.next_fence();
  ends := now + timer.lease;
  IF state.id IS NULL THEN
    INSERT INTO tb.states (id, due, planned, fence, attempt, paused, cancelled, follows, error)
      VALUES (an_id, ends, timer.planned, token, 1, false, false, false, '');
    RETURN (2, ends, token, key)::tb.answer;
  ELSIF state.fence IS NOT NULL THEN
    -- A renewal, for which the row of the timer is not locked, writes the same row. The one that comes
    -- second sees the other.
    INSERT INTO tb.leases AS lease (id, fence, until) VALUES (an_id, token, ends)
      ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, until = excluded.until
      WHERE lease.fence <> state.fence OR lease.until <= now;
    IF NOT FOUND THEN
      SELECT until INTO key FROM tb.leases WHERE id = an_id;
      RETURN (1, key, NULL, NULL)::tb.answer;
    END IF;
  END IF;
  UPDATE tb.states SET fence = token, due = ends, attempt = attempt + (state.fence IS NULL)::integer
    WHERE id = an_id;
  RETURN (CASE WHEN state.fence IS NULL THEN 2 ELSE 3 END, ends, token, key)::tb.answer;
END $$;

-- Leased under this fencing token → leased for as long again, from now on (D15). Needs no lock that a
-- caller's transaction can hold.
--
-- returns 0 the lease was taken over | 1 held | 2 held, and the timer was cancelled; with the length
--   of the lease in place of a fencing token
CREATE OR REPLACE FUNCTION tb.renew_row(an_id text, token bigint, at bigint)
RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  held record;
  ends bigint;
BEGIN
  SELECT state.cancelled, timer.lease INTO held FROM tb.states AS state, tb.timers AS timer
    WHERE state.id = an_id AND state.fence = token AND timer.id = an_id;
  IF NOT FOUND THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
  INSERT INTO tb.leases AS lease (id, fence, until)
    VALUES (an_id, token, coalesce(at, tb.clock()) + held.lease)
    ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, until = excluded.until
    -- Otherwise it was taken over meanwhile.
    WHERE lease.fence <= token
    RETURNING until INTO ends;
  IF NOT FOUND THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
  RETURN (1 + held.cancelled::integer, ends, held.lease, NULL)::tb.answer;
END $$;

-- Leased under this fencing token → the next delivery, which was inserted meanwhile or belongs to the
-- repetition, or nothing (D16). A failed attempt leads to a retry (D17) or adds a dead letter (D18). A
-- cancelled timer that is not done has no other attempt and becomes no letter (D19).
--
-- how: 'done', 'dead', 'retry', or 'again' if the attempt is not counted
-- planned_next: the next planned time of a repetition, or NULL (done, dead)
-- wait: the wait (retry, again)
-- reason: that of a dead letter
-- clear: true if the letter must not repeat
-- most, age: the bounds of the dead letters, or NULL
-- returns 0 the lease was taken over | 1 accepted | 2 cancelled, with the next due time, or NULL if it
--   was removed | -1 locked
CREATE OR REPLACE FUNCTION tb.finish_row(
  an_id text, token bigint, how text, planned_next bigint, wait bigint, an_error text,
  a_reason integer, clear boolean, most_letters bigint, age bigint, at bigint
) RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  timer record;
  state tb.states;
  next tb.timers;
  outcome integer := 1;
  stays boolean;
BEGIN
  SELECT every, cron, lease INTO timer FROM tb.timers WHERE id = an_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN (-tb.is_there(an_id)::integer, NULL, NULL, NULL)::tb.answer; END IF;
  SELECT * INTO state FROM tb.states WHERE id = an_id;
  IF state.fence IS DISTINCT FROM token THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
  -- A lease is renewed after a third of its length. A row that is left has no effect.
  IF coalesce(at, tb.clock()) > state.due - timer.lease + timer.lease / 5 THEN
    DELETE FROM tb.leases WHERE id = an_id;
  END IF;
  IF how <> 'done' AND state.cancelled THEN
    outcome := 2;
    planned_next := NULL;
  ELSIF how IN ('retry', 'again') THEN
    -- An order stands until an attempt counts.
    UPDATE tb.states SET fence = NULL, error = an_error,
      attempt = greatest(attempt - (how = 'again')::integer, 0),
      paused = paused OR (run_now AND how = 'retry'), run_now = run_now AND how = 'again',
      due = least(coalesce(at, tb.coming()) + wait, 253402300799999)
      WHERE id = an_id RETURNING * INTO state;
    RETURN (1, state.key, NULL, NULL)::tb.answer;
  ELSIF how = 'dead' THEN
    PERFORM tb.add_letter(state, an_error, a_reason, clear, coalesce(at, tb.clock()));
    PERFORM tb.trim_letters(most_letters, age, coalesce(at, tb.clock()));
  END IF;
  -- A delivery that was inserted after a cancel has nothing to do with the one before.
  stays := (state.paused OR state.run_now) AND NOT state.cancelled;
  IF state.follows THEN
    SELECT * INTO next FROM tb.nexts WHERE id = an_id;
    PERFORM tb.write_timer(next);
    DELETE FROM tb.nexts WHERE id = an_id;
    planned_next := next.due;
  ELSIF planned_next IS NULL OR state.cancelled OR (timer.every IS NULL AND timer.cron IS NULL) THEN
    DELETE FROM tb.timers WHERE id = an_id;
    DELETE FROM tb.states WHERE id = an_id;
    RETURN (outcome, NULL, NULL, NULL)::tb.answer;
  ELSE
    -- A worker of an older version does not know the plan.
    planned_next := coalesce(state.plan, planned_next);
  END IF;
  IF state.follows AND NOT stays THEN
    DELETE FROM tb.states WHERE id = an_id;
  ELSE
    UPDATE tb.states SET fence = NULL, due = planned_next, planned = planned_next, attempt = 0,
      error = '', paused = stays, run_now = false, plan = NULL, cancelled = false, follows = false
      WHERE id = an_id;
  END IF;
  RETURN (outcome, tb.parked(planned_next, stays), NULL, NULL)::tb.answer;
END $$;
