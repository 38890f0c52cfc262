-- Dead letter → resting, due now.
--
-- KEYS[4] the bucket of its id, KEYS[5] the dead letters by number, KEYS[6] their order
-- ARGV[6] its number, [7] its id, [8] planned time, [9] flags, [10] lease, [11] error, [12] rest
-- answers {1, due} done | {0, 0} there is no such letter | {3, 0} there is a timer of its id

local had = answered()
if had then return had end
local number, id, now = ARGV[6], ARGV[7], present()
redis.call('EXISTS', KEYS[6])
if redis.call('HEXISTS', KEYS[5], number) == 0 then return {0, 0} end
if redis.call('HEXISTS', KEYS[4], id) == 1 then return {3, 0} end
touch(now)
redis.call('HDEL', KEYS[5], number)
redis.call('ZREM', KEYS[6], number)
redis.call('HSET', KEYS[4], id, pack_record({
  flags = tonumber(ARGV[9]), due = now, planned = tonumber(ARGV[8]), fence = 0, attempt = 0,
  lease = tonumber(ARGV[10]), error = ARGV[11], rest = ARGV[12],
}))
redis.call('HINCRBY', COUNTERS, 'timers', 1)
file(id, now, now)
return keep({1, now})
