-- Resting → nothing. A leased one loses its rule of repetition.
--
-- KEYS[4] the bucket of the id
-- ARGV[6] id
-- answers 1 if it rested, else 0

local had = answered()
if had then return had end
local id = ARGV[6]
local found = redis.call('HGET', KEYS[4], id)
if not found then return 0 end
local record = unpack_record(found)
if not record then return refuse('the record of a timer') end
if record.fence ~= 0 then
  if record.flags % 2 == 1 then
    record.flags = record.flags - 1
    redis.call('HSET', KEYS[4], id, pack_record(record))
  end
  return 0
end
touch(record.due)
redis.call('HDEL', KEYS[4], id)
redis.call('HINCRBY', COUNTERS, 'timers', -1)
unfile(id, record.due)
return keep(1)
