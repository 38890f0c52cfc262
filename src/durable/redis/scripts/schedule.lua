-- Nothing → resting; or, if the id exists, as was chosen.
--
-- KEYS[4] the bucket of the id
-- ARGV[6] id, [7] what to do if it exists: 'keep', 'replace' or 'refuse'
-- ARGV[8] 'at' or 'after', [9] that time or delay
-- ARGV[10] flags, [11] lease, [12] rest of the record
-- answers {0 new | 1 kept | 2 replaced | 3 refused | 4 beyond the last time, due}

local had = answered()
if had then return had end
local id, now = ARGV[6], present()
local due = tonumber(ARGV[9])
if ARGV[8] == 'after' then due = due + coming() end
if due > LATEST then return {4, 0} end
local found = redis.call('HGET', KEYS[4], id)
local before = nil
if found then
  if ARGV[7] == 'keep' then return {1, 0} end
  if ARGV[7] == 'refuse' then return {3, 0} end
  before = unpack_record(found)
  if not before then return refuse('the record of a timer') end
  touch(before.due)
end
touch(due)
local record = {
  flags = tonumber(ARGV[10]), due = due, planned = due, fence = 0, attempt = 0,
  lease = tonumber(ARGV[11]), error = '', rest = ARGV[12],
}
if before then unfile(id, before.due) else redis.call('HINCRBY', COUNTERS, 'timers', 1) end
redis.call('HSET', KEYS[4], id, pack_record(record))
file(id, due, now)
return keep({before and 2 or 0, due})
