-- Resting and due → leased, one attempt more. Leased, and the lease has run out → leased anew.
--
-- KEYS[4] the bucket of the id
-- ARGV[6] id
-- answers {0} there is none | {1, due, now} it is not due, or leased until then
--   | {2, fence, now, 1 if it was taken over, record}

local id, now = ARGV[6], present()
local found = redis.call('HGET', KEYS[4], id)
if not found then return {0} end
local record = unpack_record(found)
if not record then return refuse('the record of a timer') end
local had = answered()
if had and had[2] == record.fence then
  had[5] = found
  return had
end
if record.due > now then return {1, record.due, now} end
local fence = tonumber(redis.call('HGET', COUNTERS, 'fence') or 0) + 1
local due = now + record.lease
touch(record.due)
touch(due)
local overrun = 1
if record.fence == 0 then
  overrun = 0
  record.attempt = record.attempt + 1
end
unfile(id, record.due)
record.fence, record.due = fence, due
local bytes = pack_record(record)
redis.call('HSET', COUNTERS, 'fence', whole(fence))
redis.call('HSET', KEYS[4], id, bytes)
file(id, due, now)
keep({2, fence, now, overrun})
return {2, fence, now, overrun, bytes}
