-- Counts the keys in ranges of due times. Changes nothing.
--
-- ARGV[6] the number up to which the keys of a range are counted
-- ARGV[7…] the ranges, each with its first due time and the first one beyond it
-- returns {number, …}
--
-- A slice that is not empty and lies within a range has a key of it, so few slices are enough.

local most, counts = tonumber(ARGV[6]), {}
for place = 7, #ARGV, 2 do
  local from, beyond, count = tonumber(ARGV[place]), tonumber(ARGV[place + 1]), 0
  local first, last = math.floor(from / SLICE), math.floor((beyond - 1) / SLICE)
  local slices = redis.call('ZRANGEBYSCORE', SLICES, whole(first), whole(last), 'LIMIT', 0, most + 2)
  for _, slice in ipairs(slices) do
    local name = ARGV[1] .. 's:' .. slice
    count = count + redis.call('ZCOUNT', name, whole(from), '(' .. whole(beyond))
    if count >= most then break end
  end
  counts[#counts + 1] = math.min(count, most)
end
return counts
