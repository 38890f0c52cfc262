-- Leased under this fencing token with an unreadable record → as it was before the lease (D20).
-- Scripts cannot compute the checksum, so a worker compares it once it has the lease.
--
-- id, bucket, fence
-- due: the due time before the lease; was: the token before it, or 0; counted: 1 if the lease
--   counted an attempt
-- returns 1 | 0 the lease was taken over or the timer does not exist, nothing changed

local function restore(id, bucket, under, due, was, counted)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return 0 end
  local flags, before, planned, leased, attempt = head(found)
  if not flags then return CORRUPT end
  if leased ~= tonumber(under) then return 0 end
  due, was = tonumber(due), tonumber(was)
  move(id, before, indexed(flags, due, was))
  local record = pack('<BBI6I6I6I4', LAYOUT, flags, due, planned, was, attempt - tonumber(counted))
  call('HSET', bucket, id, record .. sub(found, 25))
  count_lease(leased, was)
  return 1
end
