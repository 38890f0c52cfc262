-- Writes a timer as it is in another store, in place of an existing one (D25).
--
-- how: the letters `p` if it is paused, `r` if it is to run now, and `c` if it was cancelled, or NULL if it
--   has no state
CREATE OR REPLACE FUNCTION tb.copy_timer(
  new tb.timers, token bigint, an_attempt bigint, an_error text, how text
) RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  runs boolean := coalesce(how LIKE '%r%', false);
  pauses boolean := coalesce(how LIKE '%p%' AND NOT runs, false);
BEGIN
  PERFORM FROM tb.timers WHERE id = new.id FOR UPDATE;
  IF FOUND THEN
    PERFORM tb.write_timer(new);
  ELSE
    INSERT INTO tb.timers SELECT new.*;
  END IF;
  DELETE FROM tb.states WHERE id = new.id;
  DELETE FROM tb.leases WHERE id = new.id;
  DELETE FROM tb.nexts WHERE id = new.id;
  IF how IS NOT NULL THEN
    INSERT INTO tb.states (id, due, planned, fence, attempt, paused, run_now, cancelled, follows, error)
      VALUES (new.id, new.due, new.planned, token, an_attempt, pauses, runs, how LIKE '%c%', false,
        an_error);
  END IF;
  RETURN (0, tb.parked(new.due, pauses AND token IS NULL), NULL, NULL)::tb.answer;
END $$;

-- Writes the plan of a timer that was copied with a state.
CREATE OR REPLACE FUNCTION tb.copy_plan(an_id text, a_plan bigint) RETURNS tb.answer
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE tb.states SET plan = a_plan WHERE id = an_id;
  RETURN (0, NULL, NULL, NULL)::tb.answer;
END $$;

-- Writes a dead letter under the first free number from its own on, unless it exists already (D26).
CREATE OR REPLACE FUNCTION tb.copy_letter(new tb.letters) RETURNS tb.answer LANGUAGE plpgsql AS $$
DECLARE
  letter tb.letters;
BEGIN
  LOOP
    SELECT * INTO letter FROM tb.letters WHERE number = new.number;
    EXIT WHEN NOT FOUND;
    IF letter IS NOT DISTINCT FROM new THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
    new.number := new.number + 1;
  END LOOP;
  INSERT INTO tb.letters SELECT new.*;
  -- Other letters come after it. The lock keeps the sequence from being set back.
  PERFORM FROM tb.store FOR UPDATE;
  IF (SELECT last_value FROM tb.numbers) < new.number THEN
    PERFORM setval('tb.numbers', new.number);
  END IF;
  RETURN (0, NULL, NULL, NULL)::tb.answer;
END $$;
