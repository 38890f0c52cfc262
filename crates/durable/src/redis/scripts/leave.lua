-- Removes a worker. Its partitions become free, and the other workers are notified.
--
-- KEYS[1] the workers by the time of their last heartbeat, KEYS[2] partition → its worker, KEYS[3]
--   the description of the store
-- ARGV[2] the time, or '' for the server's, ARGV[5] the channel of the store, ARGV[6] the worker
-- returns the number of partitions that it had

local found, freed = redis.call('HGETALL', KEYS[2]), 0
redis.call('EXISTS', KEYS[1])
local described = redis.call('HEXISTS', KEYS[3], 'layout') == 1
for place = 1, #found, 2 do
  if found[place + 1] == ARGV[6] then
    redis.call('HDEL', KEYS[2], found[place])
    freed = freed + 1
  end
end
redis.call('ZREM', KEYS[1], ARGV[6])
if described then new_round(KEYS[3], present(), ARGV[6]) end
if freed > 0 then redis.call('PUBLISH', ARGV[5], 'left') end
return freed
