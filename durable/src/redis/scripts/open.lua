-- Makes the store, if there is none of that name.
--
-- KEYS[1] what is written of the store
-- ARGV[1] the layout, [2] how many partitions it is to have, [3] a number that no other store has
-- answers {layout, partitions, number} as they are

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'layout', ARGV[1], 'partitions', ARGV[2], 'number', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'layout', 'partitions', 'number')
