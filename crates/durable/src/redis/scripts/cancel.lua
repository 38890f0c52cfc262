-- Resting → nothing (D7). Leased → leased and cancelled, without its repetition rule and its next
-- delivery (D8).
--
-- id, bucket
-- only: the record that must be there, or ''
-- returns 1 it rested | 2 it is leased | 0 no such timer | 7 changed

local function cancel(id, bucket, only)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if only ~= '' and found ~= only then return 7 end
  if not found then return 0 end
  local flags, due, _, leased = head(found)
  if not flags then return CORRUPT end
  if leased ~= 0 then
    if flags % 8 ~= CANCELLED then
      relieve(slice(due))
      local after = without(flags - flags % 8 + CANCELLED, PLAN)
      call('HSET', bucket, id, front(found, after) .. rest(found))
      if has(flags, NEXT) then call('HDEL', bucket, LATER .. id) end
      changed = true
    end
    return 2
  end
  take(slice(due), id)
  remove(bucket, id, flags)
  timers = timers - 1
  return 1
end
