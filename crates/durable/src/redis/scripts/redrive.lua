-- Dead letter → resting, due now (D21).
--
-- number, id, bucket
-- record: the whole record, into which the due time is written
-- own: its payload if that is long, or ''
-- returns {1, due} done | {0, 0} the letter does not exist | {3, 0} a timer with its id exists

local function redrive(number, id, bucket, record, own)
  bucket = PREFIX .. 'b:' .. bucket
  local letter = call('HGET', LETTERS, number)
  if not letter then return {0, 0} end
  if call('HEXISTS', bucket, id) == 1 then return {3, 0} end
  local place = slice(now)
  call('EXISTS', DEAD, NAMES, named(place))
  local _, got = relabelled(nil, record)
  remove_letter(number, stored_names(number, letter))
  store(bucket, id, nil, sub(record, 1, 2) .. pack('<I6', now) .. sub(record, 9), own, '')
  relabel(id, NONE, got)
  put(place, now, id)
  timers = timers + 1
  notify_if_near(id, now)
  return {1, now}
end
