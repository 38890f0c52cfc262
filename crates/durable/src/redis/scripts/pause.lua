-- Any state → the same, paused and without an order (D10), or not paused (D11). A leased timer is paused
-- once it rests.
--
-- id, bucket
-- pauses: '1' to pause it, '' to resume it
-- only: the label that it must have, or ''
-- returns {1, due} done | {0, 0} no such timer | {7, 0} it lacks the label, or there is no such timer

local function pause(id, bucket, pauses, only)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found and only ~= '' then return {7, 0} end
  if not found then return {0, 0} end
  local flags, before, _, leased, attempt = head(found)
  if not flags then return CORRUPT end
  if only ~= '' and not has_label(found, only) then return {7, 0} end
  local after = without(flags, RUN_NOW)
  after = pauses == '1' and with(after, PAUSED) or without(after, PAUSED)
  local record = pack('<BB', LAYOUT, after) .. sub(found, 3)
  -- Unless its attempt is running or an attempt has counted, the delivery returns to its plan.
  if pauses == '1' and has(flags, PLAN) and leased == 0 and attempt == 0 then
    local _, rest_, plan = parts(found)
    after = without(after, PLAN)
    record = planned_at(front(found, after), plan) .. rest_
  end
  if after == flags then return {1, before} end
  local key = indexed(after, read('<I6', record, 3), leased)
  move(id, before, key)
  call('HSET', bucket, id, record)
  notify_if_near(id, key)
  return {1, key}
end

-- Pauses the partition, so that it grants no lease, or resumes it (D12).
--
-- pauses: '1' or ''
-- returns 1

local function hold(pauses)
  -- A removal comes first, because a full memory rejects no write after it.
  call('HDEL', COUNTERS, 'paused')
  if pauses == '1' then call('HSET', COUNTERS, 'paused', '1') end
  held, changed = pauses == '1', true
  return 1
end
