-- Reads the records of whole buckets until there are enough, and looks up each in the index.
--
-- ARGV[6] the first bucket, ARGV[7] the number of buckets
-- ARGV[8] enough records, ARGV[9] enough bytes
-- ARGV[10] 'mend' to add missing keys to the index, or ''
-- returns {the next bucket or -1, the number of records with a lease, the number that the
--   partition has counted (or less than 0), its last fencing token, {id, record, own, later, 1 if the index
--   has its key, …}}, with the long payloads or ''

local first, buckets = tonumber(ARGV[6]), tonumber(ARGV[7])
local enough, heavy = tonumber(ARGV[8]), tonumber(ARGV[9])

local found, count, length, leased = {}, 0, 0, 0
local counters = call('HMGET', COUNTERS, 'leased', 'fence')
local function answer(next_)
  return {next_, leased, tonumber(counters[1] or 0), tonumber(counters[2] or 0), found}
end

local function add(id, record, own, later, indexed)
  local last = #found
  found[last + 1], found[last + 2], found[last + 3], found[last + 4] = id, record, own, later
  found[last + 5] = indexed and 1 or 0
  count, length = count + 1, length + #record + #own + #later
end

for bucket = first, buckets - 1 do
  local others = each_timer(PREFIX .. 'b:' .. bucket, function(id, record, own, later)
    local _, due, _, token = head(record)
    if due and token ~= 0 then leased = leased + 1 end
    local indexed = due and is_indexed(id, due)
    local readable, keys = pcall(label_keys, record)
    local unlabelled = {}
    for key in pairs(due and readable and keys or NONE) do
      if not call('ZSCORE', key, id) then unlabelled[#unlabelled + 1] = key end
    end
    if #unlabelled > 0 and ARGV[10] == 'mend' then
      if not changed then call('ZREM', unlabelled[1], '') end
      changed = true
      relabel(id, NONE, unlabelled)
    end
    if due and not indexed and ARGV[10] == 'mend' then
      local number = slice(due)
      relieve(number)
      call('ZADD', named(number), whole(due), id)
      call('ZADD', SLICES, number, number)
      changed = true
    end
    add(id, record, own, later, indexed and #unlabelled == 0)
  end)
  -- A long payload without a record is no timer, and its name is no text.
  for field in pairs(others) do add(field, '', '', '', false) end
  if (count >= enough or length >= heavy) and bucket < buckets - 1 then return answer(bucket + 1) end
end
if ARGV[10] == 'mend' then
  -- Lost records are still included in the number of timers.
  local sum = 0
  for bucket = 0, buckets - 1 do
    for _, id in ipairs(call('HKEYS', PREFIX .. 'b:' .. bucket)) do
      if (byte(id) or 0) < 254 then sum = sum + 1 end
    end
  end
  if not changed then call('HDEL', COUNTERS, '') end
  call('HSET', COUNTERS, 'timers', whole(sum))
end
return answer(-1)
