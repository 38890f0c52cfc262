-- Resting → resting, due and planned at another time, its attempts forgotten.
--
-- KEYS[4] the bucket of the id
-- ARGV[6] id, [7] 'at' or 'after', [8] that time or delay
-- answers {1 done | 0 there is none that rests | 4 beyond the last time, due}

local had = answered()
if had then return had end
local id, now = ARGV[6], present()
local due = tonumber(ARGV[8])
if ARGV[7] == 'after' then due = due + coming() end
if due > LATEST then return {4, 0} end
local found = redis.call('HGET', KEYS[4], id)
if not found then return {0, 0} end
local record = unpack_record(found)
if not record then return refuse('the record of a timer') end
if record.fence ~= 0 then return {0, 0} end
touch(record.due)
touch(due)
unfile(id, record.due)
record.due, record.planned, record.attempt, record.error = due, due, 0, ''
redis.call('HSET', KEYS[4], id, pack_record(record))
file(id, due, now)
return keep({1, due})
