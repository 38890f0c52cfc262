-- Dead letter → nothing.
--
-- KEYS[4] the dead letters by number, KEYS[5] their order
-- ARGV[6] its number
-- answers 1 if there was one, else 0

local had = answered()
if had then return had end
redis.call('EXISTS', KEYS[5])
if redis.call('HDEL', KEYS[4], ARGV[6]) == 0 then return 0 end
redis.call('ZREM', KEYS[5], ARGV[6])
return keep(1)
