-- Notes that all partitions of the store are paused, or that they are about to be resumed (D12), and
-- makes all workers send a heartbeat.
--
-- KEYS[1] the description of the store
-- ARGV[5] the channel of the store, ARGV[6] '1' or ''
-- returns 1 if the store is paused now, else 0

redis.call('HDEL', KEYS[1], 'paused')
if ARGV[6] == '1' then redis.call('HSET', KEYS[1], 'paused', '1') end
redis.call('PUBLISH', ARGV[5], 'paused')
return redis.call('HEXISTS', KEYS[1], 'paused')
