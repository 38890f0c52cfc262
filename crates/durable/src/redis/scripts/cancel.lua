-- Resting → nothing (D7). Leased → leased and cancelled, without its repetition rule and its next
-- delivery (D8).
--
-- id, bucket
-- only: the record that must be there, or ''
-- label: the label that it must have, or ''
-- returns 1 it rested | 2 it is leased | 0 no such timer | 7 changed, or it lacks the label

local function cancel(id, bucket, only, label)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if only ~= '' and found ~= only then return 7 end
  if not found then return label == '' and 0 or 7 end
  local flags, due, _, leased = head(found)
  if not flags then return CORRUPT end
  if label ~= '' and not has_label(found, label) then return 7 end
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
  local lost = relabelled(found, nil)
  take(slice(due), id)
  remove(bucket, id, flags)
  relabel(id, lost, NONE)
  timers = timers - 1
  return 1
end
