-- Corrects the number of leases, unless leases began or ended since they were counted.
--
-- ARGV[6] the last fencing token and ARGV[7] the number of leases that the partition had,
-- ARGV[8] the right number
-- returns 1 if it was corrected, else 0

local counters = redis.call('HMGET', COUNTERS, 'fence', 'leased')
-- Each is compared as it is, even a negative number, because a lease that ends changes nothing else.
for place, counter in ipairs({tonumber(counters[1] or 0), tonumber(counters[2] or 0)}) do
  if counter ~= tonumber(ARGV[5 + place]) then return 0 end
end
-- A removal comes first, because a full memory rejects no write after it.
redis.call('HDEL', COUNTERS, '')
redis.call('HSET', COUNTERS, 'leased', ARGV[8])
return 1
