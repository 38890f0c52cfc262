-- Resting → nothing. A leased one loses its rule of repetition.
--
-- id, bucket
-- answers 1 if it rested, else 0

local function cancel(id, bucket)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return 0 end
  local flags, due, _, leased = head(found)
  if not flags then return CORRUPT end
  if leased ~= 0 then
    if flags % 2 == 1 then
      relieve(slice(due))
      call('HSET', bucket, id, pack('<BB', LAYOUT, flags - 1) .. sub(found, 3))
      changed = true
    end
    return 0
  end
  take(slice(due), id)
  call('HDEL', bucket, id)
  timers = timers - 1
  return 1
end
