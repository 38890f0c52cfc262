-- Corrects the number of leases, unless leases began or ended since they were counted.
--
-- ARGV[6] the last fencing token and ARGV[7] the number of leases that the partition had,
-- ARGV[8] the right number
-- returns 1 if it was corrected, else 0

local counters = redis.call('HMGET', COUNTERS, 'fence', 'leased')
local counted = math.max(tonumber(counters[2] or 0), 0)
if tonumber(counters[1] or 0) ~= tonumber(ARGV[6]) or counted ~= tonumber(ARGV[7]) then return 0 end
-- A removal comes first, because a full memory rejects no write after it.
redis.call('HDEL', COUNTERS, '')
redis.call('HSET', COUNTERS, 'leased', ARGV[8])
return 1
