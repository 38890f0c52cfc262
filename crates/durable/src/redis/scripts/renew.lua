-- Leased under this fencing token → leased for as long again, from now on (D15).
--
-- id, bucket, fence
-- returns {1 renewed | 2 renewed, and the timer was cancelled, the length of the lease}
--   | {0, 0} the lease was taken over, nothing changed

local function renew(id, bucket, under)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return {0, 0} end
  local flags, before, _, leased, _, length = head(found)
  if not flags then return CORRUPT end
  if leased ~= tonumber(under) then return {0, 0} end
  local due = now + length
  move(id, before, due)
  call('HSET', bucket, id, sub(found, 1, 2) .. pack('<I6', due) .. sub(found, 9))
  -- A worker that has the key of the earlier end learns of the later one when it fires.
  if due < before then notify_if_near(id, due) end
  return {has(flags, CANCELLED) and 2 or 1, length}
end
