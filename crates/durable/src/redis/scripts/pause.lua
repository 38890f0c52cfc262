-- Any state → the same, paused (D10) or not (D11). A leased timer is paused once it rests.
--
-- id, bucket
-- pauses: '1' to pause it, '' to resume it
-- returns {1, due} done | {0, 0} no such timer

local function pause(id, bucket, pauses)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return {0, 0} end
  local flags, before, _, leased = head(found)
  if not flags then return CORRUPT end
  local after = without_order(flags)
  if is_paused(flags) ~= (pauses == '1') then after = after + (pauses == '1' and PAUSED or -PAUSED) end
  if after == flags then return {1, before} end
  local due = indexed(after, read('<I6', found, 3), leased)
  move(id, before, due)
  call('HSET', bucket, id, pack('<BB', LAYOUT, after) .. sub(found, 3))
  notify_if_near(id, due)
  return {1, due}
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
