-- The records of buckets from one on, whole buckets, until there are enough. Changes nothing.
--
-- ARGV[6] the first bucket, [7] how many buckets there are, [8] how many records are enough
-- answers {id, record, …}, bucket by bucket, the first bucket not counted as enough

local first, buckets, enough = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local found, count = {}, 0
for bucket = first, buckets - 1 do
  local some = redis.call('HGETALL', ARGV[1] .. 'b:' .. bucket)
  for _, part in ipairs(some) do found[#found + 1] = part end
  if bucket > first then count = count + #some / 2 end
  if count >= enough then break end
end
return found
