-- Leased under this fence, but its record cannot be read → as it was before, and marked. A worker
-- compares the checksum, which no script can, after it has the lease.
--
-- id, bucket, fence
-- due: when it was due before; was: the fence before, or 0; counted: 1 if the lease counted an attempt
-- answers 1 | 0 the lease was taken over, or there is none: nothing is changed

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
  return 1
end
