-- Nothing → resting (D1). If the id exists, `existing` decides: the timer is kept (D2), refused (D4)
-- or replaced (D5). A timer that is kept but may end with its running attempt gets the new one as its
-- next delivery (D3).
--
-- id, bucket
-- existing: 'keep', 'replace' or 'refuse', the policy if the id exists
-- given: the due time, or + and a delay
-- place: the number of the slice, or '' with a delay
-- record: the whole record, into which the due and planned time are written with a delay
-- own: its payload if that is long, or ''
-- over: the record that must be there, or ''; not with 'refuse'
-- returns 0 new | 1 kept | 2 replaced | 3 refused | 4 out of range | 5 next | 7 changed;
--   {0 or 2, due} for a delay

local function insert(id, bucket, existing, given, place, record, own, over)
  local due, answer = time(given), 0
  if due > LATEST then return 4 end
  local delayed = place == ''
  if delayed then
    given, place = whole(due), slice(due)
    record = planned_at(record, due)
  end
  bucket = PREFIX .. 'b:' .. bucket
  local found = existing ~= 'refuse' and call('HGET', bucket, id)
  if over ~= '' and found ~= over then return 7 end
  if found and existing == 'keep' then
    local flags, before, planned, leased = head(found)
    if not flags then return CORRUPT end
    -- What is kept will be delivered, even if its key was lost.
    if not is_indexed(id, before) then
      put(slice(before), before, id)
      notify_if_near(id, before)
    end
    -- It rests, repeats, has a next delivery already, or is the same delivery.
    local same = planned == due and not has(flags, CANCELLED)
    if leased == 0 or flags % 4 ~= 0 or same then return 1 end
    record = front(found, without(flags, PLAN) + NEXT) .. pack('<I4', #record) .. record .. rest(found)
    call('HSET', bucket, id, record)
    if own ~= '' then call('HSET', bucket, LATER .. id, own) end
    changed = true
    return 5
  end
  if found then
    local flags, before, _, leased = head(found)
    if not flags then return CORRUPT end
    local lost, got = relabelled(found, record)
    move(id, before, due)
    store(bucket, id, flags, record, own, '')
    relabel(id, lost, got)
    count_lease(leased, 0)
    answer = 2
  else
    local name = named(place)
    local _, got = relabelled(nil, record)
    local new = call('ZADD', name, 'NX', given, id) == 1
    changed = true
    local made = redis.pcall('HSETNX', bucket, id, record)
    if made ~= 1 then
      -- The id exists, or the bucket has moved. The write of the key is reverted.
      if new then call('ZREM', name, id) end
      return made == 0 and 3 or failed(made.err)
    end
    if own ~= '' then call('HSET', bucket, OWN .. id, own) end
    relabel(id, NONE, got)
    added[place] = true
    timers = timers + 1
  end
  notify_if_near(id, due)
  return delayed and {answer, due} or answer
end
