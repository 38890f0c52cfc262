-- Leased under this fencing token with an unreadable record → as it was before, and marked. Scripts
-- cannot compute the checksum, so a worker compares it once it has the lease.
--
-- id, bucket, fence
-- due: the due time before the lease; was: the token before it, or 0; counted: 1 if the lease
--   counted an attempt
-- returns 1 | 0 the lease was taken over or the timer does not exist, nothing changed

local function mark(id, bucket, under, due, was, counted)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return 0 end
  local flags, before, planned, leased, attempt = head(found)
  if not flags then return CORRUPT end
  if leased ~= tonumber(under) then return 0 end
  due = tonumber(due)
  move(id, before, due)
  flags, attempt = flags + DAMAGED, attempt - tonumber(counted)
  local record = pack('<BBI6I6I6I4', LAYOUT, flags, due, planned, tonumber(was), attempt)
  call('HSET', bucket, id, record .. sub(found, 25))
  -- A damaged record does not count, whether or not it was leased before.
  count_lease(leased, 0)
  return 1
end
