-- Executes a batch of operations in the order of their ids, in one transaction.
--
-- home: the process that the caller belongs to, whose workers need no notice
-- a_process, a_number: a lane of a process has one batch in flight at a time, with increasing numbers.
--   The reply to the last one is kept, so a batch that is sent again because its reply was lost gets
--   the same reply, and one that was overtaken is rejected.
-- settles: true if the batch is not executed any more, unless it was executed already. In the first
--   case there is no reply, and a copy of the batch that arrives later does nothing.
-- careful: true if each operation is executed by itself
-- at: the time, or NULL for the server's
-- most_letters, age: the bounds of the dead letters, or NULL
-- kinds …: the operations, by column
-- headers: an array of pairs or, with labels, an object with these as `headers` and an array of `labels`
--
-- No operation fails, unless the whole transaction does. **No operation waits for a transaction of a
-- caller.** One whose timer is locked has the answer -1. The lock of an id that another transaction has
-- inserted and not committed, and of a row that an administrator changes by hand, cannot be seen. Such
-- an operation fails after 10 ms, with the whole batch. If the batch is then sent again as careful, the
-- operation has the answer -1 after 2 ms, and so have all others after 32 of these.

CREATE OR REPLACE FUNCTION tb.batch(
  home bigint, a_process bigint, a_number bigint, settles boolean, careful boolean, at bigint,
  most_letters bigint, age bigint,
  kinds text[], ids text[], dues bigint[], waits bigint[], fences bigint[], hows text[],
  notes text[], flags boolean[], reasons integer[],
  firsts bigint[], mosts bigint[], everys bigint[], lives bigint[], misfires bigint[],
  attempts bigint[], leases integer[], jitters boolean[], crons text[], zones text[],
  headers text[], payloads bytea[]
) RETURNS TABLE (
  place integer, now bigint, answer integer, due bigint, part integer, fence bigint, before bigint,
  record tb.records
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10ms'
-- The payloads of a reply must not need a file.
SET work_mem = '512MB' AS $$
#variable_conflict use_column
DECLARE
  one tb.batches;
  waited integer := 0;
  last_number bigint;
  is_locked boolean;
  reply tb.batches;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'default_transaction_isolation must be read committed, and is %',
      current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
  END IF;
  -- The lane is locked by the row of its last reply. The number is read later, because a row that was
  -- replaced meanwhile is not found.
  PERFORM b.number FROM tb.batches AS b WHERE b.process = a_process
    ORDER BY b.number DESC LIMIT 1 FOR UPDATE NOWAIT;
  is_locked := FOUND;
  SELECT b.number INTO last_number FROM tb.batches AS b WHERE b.process = a_process
    ORDER BY b.number DESC LIMIT 1;
  IF last_number > a_number THEN
    RAISE EXCEPTION 'the batch was overtaken' USING ERRCODE = 'invalid_transaction_state';
  ELSIF last_number < a_number AND NOT is_locked THEN
    RAISE EXCEPTION 'another batch has just been executed' USING ERRCODE = 'object_in_use';
  END IF;
  IF last_number = a_number THEN
    -- A write, so that the commit waits for a synchronous standby. That of the first transaction
    -- stopped waiting if its connection was terminated.
    UPDATE tb.batches AS b SET written = clock_timestamp()
      WHERE b.process = a_process AND b.number = a_number RETURNING b.* INTO reply;
  ELSIF settles THEN
    PERFORM tb.reserve(a_process, a_number, at);
    DELETE FROM tb.batches AS b WHERE b.process = a_process AND b.number < a_number;
    RETURN;
  ELSE
    IF last_number IS NULL THEN PERFORM tb.reserve(a_process, a_number, at); END IF;
    IF NOT careful THEN
      reply := tb.operate(
        kinds, ids, dues, waits, fences, hows, notes, flags, reasons, firsts, mosts, everys,
        lives, misfires, attempts, leases, jitters, crons, zones, headers, payloads, most_letters,
        age, at);
    ELSE
      -- A lock that makes one operation fail does not stop the others.
      PERFORM set_config('lock_timeout', '2ms', true);
      FOR op IN 1 .. cardinality(kinds) LOOP
        one := NULL;
        IF waited < 32 THEN
          BEGIN
            one := tb.operate(
              kinds[op:op], ids[op:op], dues[op:op], waits[op:op], fences[op:op], hows[op:op],
              notes[op:op], flags[op:op], reasons[op:op], firsts[op:op], mosts[op:op],
              everys[op:op], lives[op:op], misfires[op:op], attempts[op:op], leases[op:op],
              jitters[op:op], crons[op:op], zones[op:op], headers[op:op], payloads[op:op],
              most_letters, age, at);
          EXCEPTION WHEN lock_not_available THEN
            waited := waited + 1;
          END;
        END IF;
        reply.answers[op] := coalesce(one.answers[1], -1);
        reply.dues[op] := one.dues[1];
        reply.fences[op] := one.fences[1];
        reply.befores[op] := one.befores[1];
      END LOOP;
    END IF;
    reply.now := coalesce(at, tb.clock());
    IF last_number IS NOT NULL THEN
      DELETE FROM tb.batches AS b WHERE b.process = a_process AND b.number = last_number;
      INSERT INTO tb.batches VALUES (a_process, a_number, clock_timestamp(), reply.now,
        reply.answers, reply.dues, reply.fences, reply.befores);
    ELSE
      UPDATE tb.batches AS b SET now = reply.now, answers = reply.answers, dues = reply.dues,
          fences = reply.fences, befores = reply.befores
        WHERE b.process = a_process AND b.number = a_number;
      -- Each lane leaves a row at its end.
      DELETE FROM tb.batches WHERE ctid = ANY (ARRAY(SELECT old.ctid FROM tb.batches AS old
        WHERE old.written < transaction_timestamp() - interval '7 days'
        ORDER BY old.written LIMIT 2 FOR UPDATE SKIP LOCKED));
    END IF;
    PERFORM tb.notify_near(home, reply.now, kinds, ids, reply.dues);
  END IF;
  RETURN QUERY
    SELECT o.place::integer, reply.now, o.answer, o.due, tb.part(o.id), o.fence, o.before,
      CASE WHEN o.kind = 'lease' AND o.answer IN (2, 3) THEN tb.leased_record(o.id, o.fence) END
    FROM unnest(reply.answers, reply.dues, reply.fences, reply.befores, ids, kinds)
      WITH ORDINALITY AS o (answer, due, fence, before, id, kind, place)
    -- A batch that was settled has no answers.
    WHERE o.answer IS NOT NULL ORDER BY o.place;
END $$;

-- Marks a batch as the last one of its lane, with an empty reply. Fails if a copy of the batch has just
-- done so.
CREATE OR REPLACE FUNCTION tb.reserve(a_process bigint, a_number bigint, at bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tb.batches VALUES (a_process, a_number, clock_timestamp(), coalesce(at, tb.clock()),
    '{}', '{}', '{}', '{}') ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this batch is being executed' USING ERRCODE = 'object_in_use';
  END IF;
END $$;

-- Executes operations in the order of their ids.
CREATE OR REPLACE FUNCTION tb.operate(
  kinds text[], ids text[], dues bigint[], waits bigint[], fences bigint[], hows text[],
  notes text[], flags boolean[], reasons integer[],
  firsts bigint[], mosts bigint[], everys bigint[], lives bigint[], misfires bigint[],
  attempts bigint[], leases integer[], jitters boolean[], crons text[], zones text[],
  headers text[], payloads bytea[], most_letters bigint, age bigint, at bigint
) RETURNS tb.batches LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  op record;
  one tb.answer;
  reply tb.batches;
  known text[];
  is_paused boolean;
  given_headers jsonb;
  given_labels text[];
BEGIN
  IF 'insert' = ANY (kinds) THEN
    known := ARRAY(SELECT id FROM tb.timers WHERE id = ANY (ids) AND planned IS NOT NULL);
  END IF;
  IF 'lease' = ANY (kinds) THEN SELECT paused INTO is_paused FROM tb.store; END IF;
  reply.answers := array_fill(0, ARRAY[cardinality(kinds)]);
  reply.dues := array_fill(NULL::bigint, ARRAY[cardinality(kinds)]);
  reply.fences := reply.dues;
  reply.befores := reply.dues;
  FOR op IN
    SELECT * FROM unnest(kinds, ids, dues, waits, fences, hows, notes, flags, reasons, firsts,
      mosts, everys, lives, misfires, attempts, leases, jitters, crons, zones, headers, payloads)
    WITH ORDINALITY AS o (kind, id, due, wait, fence, how, note, flag, reason, first, most, every,
      live, misfire, attempts, lease, jitter, cron, zone, headers, payload, place)
    ORDER BY o.id COLLATE "C", o.place
  LOOP
    given_headers := op.headers::jsonb;
    given_labels := NULL;
    IF jsonb_typeof(given_headers) = 'object' THEN
      given_labels := tb.labels_of(given_headers -> 'labels');
      given_headers := nullif(given_headers -> 'headers', 'null');
    END IF;
    -- A condition on the timer, which is locked from then on.
    IF op.kind IN ('insert', 'cancel', 'pause') AND op.note IS NOT NULL THEN
      reply.answers[op.place] := tb.check_last(op.id, op.note::jsonb);
      CONTINUE WHEN reply.answers[op.place] <> 0;
    END IF;
    CASE op.kind
      WHEN 'insert' THEN
        one := tb.insert_row((op.due, op.due, op.first, op.most, op.every, op.live, op.misfire,
          op.attempts, op.lease, op.jitter, op.id, op.cron, op.zone, given_headers,
          op.payload, given_labels)::tb.timers, op.wait, op.flag, op.how, at, false,
          op.id = ANY (known));
      WHEN 'lease' THEN one := tb.lease_row(op.id, op.flag, is_paused, at);
      WHEN 'finish' THEN
        one := tb.finish_row(op.id, op.fence, op.how, op.due, op.wait, op.note, op.reason,
          op.flag, most_letters, age, at);
      WHEN 'renew' THEN one := tb.renew_row(op.id, op.fence, at);
      WHEN 'cancel' THEN one := tb.cancel_row(op.id, false);
      WHEN 'reset' THEN one := tb.reset_row(op.id, op.due, op.wait, at);
      WHEN 'run' THEN one := tb.run_row(op.id, at);
      WHEN 'pause' THEN one := tb.pause_row(op.id, op.flag);
      WHEN 'redrive' THEN one := tb.redrive_letter(op.fence, at);
      WHEN 'delete' THEN one := tb.delete_letter(op.fence);
      WHEN 'discard' THEN one := tb.discard_row(op.id, op.flag);
      WHEN 'copy' THEN
        one := tb.copy_timer((op.due, op.wait, op.first, op.most, op.every, op.live, op.misfire,
          op.attempts, op.lease, op.jitter, op.id, op.cron, op.zone, given_headers,
          op.payload, given_labels)::tb.timers, op.fence, op.reason, op.note, op.how);
      WHEN 'plan' THEN one := tb.copy_plan(op.id, op.due);
      WHEN 'follow' THEN
        PERFORM tb.write_next((op.due, op.wait, op.first, op.most, op.every, op.live, op.misfire,
          op.attempts, op.lease, op.jitter, op.id, op.cron, op.zone, given_headers,
          op.payload, given_labels)::tb.timers);
        one := (0, NULL, NULL, NULL)::tb.answer;
      WHEN 'letter' THEN
        one := tb.copy_letter((op.fence, op.fence / 1024, op.reason, op.how::smallint, op.note,
          op.due, op.wait, op.first, op.most, op.every, op.live, op.misfire, op.attempts,
          op.lease, op.jitter, op.id, op.cron, op.zone, given_headers,
          op.payload, given_labels)::tb.letters);
      -- The caller has given up meanwhile.
      WHEN 'nothing' THEN one := (0, NULL, NULL, NULL)::tb.answer;
    END CASE;
    reply.answers[op.place] := one.answer;
    reply.dues[op.place] := one.due;
    reply.fences[op.place] := one.fence;
    reply.befores[op.place] := one.before;
  END LOOP;
  RETURN reply;
END $$;

-- Returns the timer that is leased under a fencing token. A join with the whole batch might read all
-- states, with the dead rows that a long transaction keeps.
CREATE OR REPLACE FUNCTION tb.leased_record(an_id text, token bigint) RETURNS tb.records
LANGUAGE plpgsql STABLE AS $$
DECLARE
  leased tb.records;
BEGIN
  SELECT * INTO leased FROM tb.records WHERE id = an_id AND fence = token;
  RETURN leased;
END $$;

-- Notifies the workers of other processes that are alive of keys in their window. The end of a lease is
-- not announced, because the owner of the timer asks for the lease, and has the end in the reply.
-- PostgreSQL executes commits with notices one after another.
CREATE OR REPLACE FUNCTION tb.notify_near(
  home bigint, now bigint, kinds text[], ids text[], dues bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM tb.workers WHERE listens AND process <> home AND beat >= now - 5000 LIMIT 1;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM pg_notify('tb_channel', concat_ws(':', home, tb.part(id), due, id))
    FROM unnest(kinds, ids, dues) AS changed (kind, id, due)
    WHERE due <= now + 12000 AND kind NOT IN ('lease', 'renew');
END $$;
