-- Any state → the same with another payload and other options (D6). If the time changes, a timer that
-- rests is due at the new time, and otherwise the new time is that of its next delivery.
--
-- id, bucket
-- found: the record as it was read
-- record: the whole new record without `next`
-- own: its payload if that is long, or ''
-- next_: the whole record of the next delivery, or ''
-- later: its payload if that is long, or ''
-- given: + and a delay, from which the due and planned time of the next delivery or, if there is
--   none, of the record are computed; '' if they are known
-- returns {1, due} | {0, 0} the record has changed, nothing was done | {4, 0} out of range

local function update(id, bucket, found, record, own, next_, later, given)
  bucket = PREFIX .. 'b:' .. bucket
  if call('HGET', bucket, id) ~= found then return {0, 0} end
  if given ~= '' then
    local due = time(given)
    if due > LATEST then return {4, 0} end
    if next_ ~= '' then next_ = planned_at(next_, due) else record = planned_at(record, due) end
  end
  local was, before = head(found)
  local flags, due = head(record)
  if not before or not flags then return CORRUPT end
  if next_ ~= '' then
    record = front(record, flags + NEXT) .. pack('<I4', #next_) .. next_ .. rest(record)
  end
  local lost, got = relabelled(found, record)
  move(id, before, due)
  store(bucket, id, was, record, own, later)
  relabel(id, lost, got)
  notify_if_near(id, due)
  return {1, due}
end
