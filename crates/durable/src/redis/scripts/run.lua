-- Resting or paused → the same and due now (D27). A timer that is due already is unchanged.
--
-- id, bucket
-- returns {1, due} done, or it is due already | {0, 0} no such timer | {8, 0} it is leased

local function run(id, bucket)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return {0, 0} end
  local flags, before, planned, leased, attempt = head(found)
  if not flags then return CORRUPT end
  if leased ~= 0 then return {8, 0} end
  if before <= now then return {1, before} end
  local due = read('<I6', found, 3)
  if has(flags, PAUSED) then flags = with(flags, RUN_NOW) end
  local record = pack('<BB', LAYOUT, flags) .. sub(found, 3)
  if attempt > 0 or due ~= planned then
    -- The delivery has begun, so this is its next attempt.
    due = math.min(due, now)
    record = sub(record, 1, 2) .. pack('<I6', due) .. sub(record, 9)
  else
    due = now
    record = planned_at(record, now)
    if not has(flags, NEXT) and not has(flags, PLAN) then
      record = front(record, flags + PLAN) .. pack('<I6', planned) .. tail(record)
    end
  end
  move(id, before, due)
  call('HSET', bucket, id, record)
  notify_if_near(id, due)
  return {1, due}
end
