-- Resting → nothing. A leased timer loses its repetition rule and its next delivery.
--
-- id, bucket
-- returns 1 if it rested, else 0

local function cancel(id, bucket)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return 0 end
  local flags, due, _, leased = head(found)
  if not flags then return CORRUPT end
  if leased ~= 0 then
    if flags % 4 ~= 0 then
      relieve(slice(due))
      call('HSET', bucket, id, front(found, flags - flags % 4) .. rest(found))
      changed = true
    end
    return 0
  end
  take(slice(due), id)
  call('HDEL', bucket, id)
  timers = timers - 1
  return 1
end
