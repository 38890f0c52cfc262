-- Timer with an unreadable record, or a missing one although the index has a key → nothing (D24).
--
-- id, bucket
-- found: the record as it was read, or ''
-- returns 1 if the record was as it was read, else 0

local function discard(id, bucket, found)
  bucket = PREFIX .. 'b:' .. bucket
  if (call('HGET', bucket, id) or '') ~= found then return 0 end
  -- Labels that cannot be read stay in their index.
  local lost = head(found) and pcall(label_keys, found) and relabelled(found, nil) or NONE
  -- The due time is no longer known.
  local had = false
  for _, number in ipairs(call('ZRANGE', SLICES, 0, -1)) do
    if call('ZSCORE', named(number), id) then
      take(number, id)
      had = true
      break
    end
  end
  if found == '' and not had then return 0 end
  if found ~= '' then
    call('HDEL', bucket, id, OWN .. id, LATER .. id)
    relabel(id, lost, NONE)
    local flags, _, _, leased = head(found)
    if flags then count_lease(leased, 0) end
  end
  timers = timers - 1
  changed = true
  return 1
end
