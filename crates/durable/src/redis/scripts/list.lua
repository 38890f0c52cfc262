-- Reads the records of whole buckets until there are enough. Changes nothing.
--
-- ARGV[6] the first bucket, ARGV[7] the number of buckets
-- ARGV[8] enough records, ARGV[9] enough bytes
-- returns {1 if it stopped before the last bucket, {id, record, own, later, …}}, bucket by bucket,
--   with the long payloads or ''; the first bucket does not count

local first, buckets = tonumber(ARGV[6]), tonumber(ARGV[7])
local enough, heavy = tonumber(ARGV[8]), tonumber(ARGV[9])
local found, count, length = {}, 0, 0
for bucket = first, buckets - 1 do
  each_timer(ARGV[1] .. 'b:' .. bucket, function(id, record, own, later)
    local last = #found
    found[last + 1], found[last + 2], found[last + 3], found[last + 4] = id, record, own, later
    if bucket > first then
      count, length = count + 1, length + #id + #record + #own + #later
    end
  end)
  if count >= enough or length >= heavy then return {1, found} end
end
return {0, found}
