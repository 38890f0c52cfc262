-- Creates the indexes of dead letters by id and by label unless they exist, as an earlier revision lacks
-- them. `IF NOT EXISTS` would lock the table although they are there. The triggers are created before the
-- rows of present letters are written, so that none is left out.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_index
    JOIN pg_catalog.pg_class AS class ON class.oid = indexrelid
    WHERE indrelid = 'tb.letters'::regclass AND relname = 'letters_id')
  THEN
    CREATE INDEX letters_id ON tb.letters (id, number);
  END IF;
  IF to_regclass('tb.letter_labels') IS NULL THEN
    CREATE TABLE tb.letter_labels (
      label text COLLATE "C" NOT NULL,
      number bigint NOT NULL,
      PRIMARY KEY (label, number)
    );
    PERFORM tb.grant_like_letters('tb.letter_labels');
  END IF;
END $$;

-- Writes the labels of a dead letter, which never change, into their index. It is executed with the
-- rights of the owner of the store, like `index_labels`.
CREATE OR REPLACE FUNCTION tb.index_letter() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO tb.letter_labels SELECT unnest(NEW.labels), NEW.number ON CONFLICT DO NOTHING;
  ELSE
    DELETE FROM tb.letter_labels WHERE label = ANY (OLD.labels) AND number = OLD.number;
  END IF;
  RETURN NULL;
END $$;

REVOKE ALL ON FUNCTION tb.index_letter FROM PUBLIC;

DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
    WHERE tgrelid = 'tb.letters'::regclass AND tgname = 'letter_inserted')
  THEN
    CREATE TRIGGER letter_inserted AFTER INSERT ON tb.letters FOR EACH ROW
      WHEN (NEW.labels IS NOT NULL) EXECUTE FUNCTION tb.index_letter();
    CREATE TRIGGER letter_deleted AFTER DELETE ON tb.letters FOR EACH ROW
      WHEN (OLD.labels IS NOT NULL) EXECUTE FUNCTION tb.index_letter();
    INSERT INTO tb.letter_labels SELECT unnest(labels), number FROM tb.letters
      WHERE labels IS NOT NULL ON CONFLICT DO NOTHING;
  END IF;
END $$;

-- Writes the dead letter of D18. Its number may be taken, because logical replication copies the
-- letters and not the sequence. The sequence is then moved on. Another transaction may do the same
-- meanwhile and use greater numbers, in which case the next attempt moves it on again.
CREATE OR REPLACE FUNCTION tb.add_letter(
  state tb.states, an_error text, a_reason integer, clear boolean, now bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    IF tb.try_letter(state, an_error, a_reason, clear, now) THEN RETURN; END IF;
    PERFORM setval('tb.numbers', greatest(last_value, (SELECT max(number) FROM tb.letters)))
      FROM tb.numbers;
  END LOOP;
END $$;

-- Writes a dead letter, and returns false if its number is taken.
CREATE OR REPLACE FUNCTION tb.try_letter(
  state tb.states, an_error text, a_reason integer, clear boolean, now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tb.letters (number, died, attempt, reason, error, due, planned, first, most, every,
    lives, misfire, attempts, lease, jitter, id, cron, zone, headers, payload, labels)
  SELECT nextval('tb.numbers'), now, state.attempt, a_reason, an_error, state.due, state.planned,
    first, most, CASE WHEN clear THEN NULL ELSE every END, lives, misfire, attempts, lease, jitter,
    id, CASE WHEN clear THEN NULL ELSE cron END, CASE WHEN clear THEN NULL ELSE zone END, headers,
    payload, labels
  FROM tb.timers WHERE id = state.id
  ON CONFLICT (number) DO NOTHING;
  RETURN FOUND;
END $$;

-- Deletes up to two of the oldest letters beyond the bounds (D23). Workers apply a bound of more than
-- 1000 letters, because counting them takes long.
CREATE OR REPLACE FUNCTION tb.trim_letters(most_letters bigint, age bigint, now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  last_excess bigint;
BEGIN
  IF most_letters IS NULL AND age IS NULL THEN RETURN; END IF;
  IF most_letters <= 1000 THEN
    SELECT number INTO last_excess FROM tb.letters ORDER BY number DESC OFFSET most_letters LIMIT 1;
  END IF;
  -- Another transaction may delete the same ones.
  DELETE FROM tb.letters WHERE number IN (
    SELECT number FROM tb.letters WHERE number IN (
      SELECT number FROM (SELECT number, died FROM tb.letters ORDER BY number LIMIT 2) AS oldest
      WHERE number <= last_excess OR died < now - age)
    FOR UPDATE SKIP LOCKED);
END $$;

-- Dead letter → resting and due now (D21).
--
-- returns 1 done | 0 no such letter | 3 a timer with its id exists
CREATE OR REPLACE FUNCTION tb.redrive_letter(a_number bigint, at bigint) RETURNS tb.answer
LANGUAGE plpgsql AS $$
DECLARE
  letter tb.letters;
  now bigint;
BEGIN
  SELECT * INTO letter FROM tb.letters WHERE number = a_number FOR UPDATE;
  IF NOT FOUND THEN RETURN (0, NULL, NULL, NULL)::tb.answer; END IF;
  now := coalesce(at, tb.clock());
  INSERT INTO tb.timers (due, planned, first, most, every, lives, misfire, attempts, lease, jitter,
      id, cron, zone, headers, payload, labels)
    VALUES (now, letter.planned, letter.first, letter.most, letter.every, NULL, letter.misfire,
      letter.attempts, letter.lease, letter.jitter, letter.id, letter.cron, letter.zone,
      letter.headers, letter.payload, letter.labels)
    ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN RETURN (3, NULL, NULL, NULL)::tb.answer; END IF;
  DELETE FROM tb.letters WHERE number = a_number;
  IF letter.error <> '' THEN
    INSERT INTO tb.states (id, due, planned, attempt, paused, cancelled, follows, error)
      VALUES (letter.id, now, letter.planned, 0, false, false, false, letter.error);
  END IF;
  RETURN (1, now, NULL, NULL)::tb.answer;
END $$;

-- Dead letter → nothing (D22).
--
-- returns 1 done | 0 no such letter
CREATE OR REPLACE FUNCTION tb.delete_letter(a_number bigint) RETURNS tb.answer
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM tb.letters WHERE number = a_number;
  RETURN (FOUND::integer, NULL, NULL, NULL)::tb.answer;
END $$;
