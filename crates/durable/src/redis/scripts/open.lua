-- Creates the store if it does not exist.
--
-- KEYS[1] the description of the store
-- ARGV[1] the layout, ARGV[2] the number of partitions if it is created, ARGV[3] a unique number
-- returns {layout, partitions, number} of the store

if redis.call('HEXISTS', KEYS[1], 'layout') == 0 then
  redis.call('HSET', KEYS[1], 'layout', ARGV[1], 'partitions', ARGV[2], 'number', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'layout', 'partitions', 'number')
