-- Resting → resting with another due and planned time, no attempts and no order (D9).
--
-- id, bucket
-- given: the due time, or + and a delay
-- returns {1 done | 0 no resting timer | 4 out of range, due}

local function reset(id, bucket, given)
  local due = time(given)
  if due > LATEST then return {4, 0} end
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return {0, 0} end
  local flags, before, _, leased, _, lease = head(found)
  if not flags then return CORRUPT end
  if leased ~= 0 then return {0, 0} end
  local after = sub(tail(found), has(flags, PLAN) and 7 or 1)
  flags = without(without(flags, RUN_NOW), PLAN)
  local key = indexed(flags, due, 0)
  move(id, before, key)
  local record = pack('<BBI6I6I6I4I4I2', LAYOUT, flags, due, due, 0, 0, lease, 0) .. after
  call('HSET', bucket, id, record)
  notify_if_near(id, key)
  return {1, key}
end
