-- Reads the keys in a range of due times, oldest first. Changes nothing.
--
-- ARGV[6] the due time and ARGV[7] the id of the first key, ARGV[8] the last due time, ARGV[9] the
--   limit
-- returns {now, 1 if there are more, the due time of the first key beyond or -1, {id, due, …}}

-- A write without an effect, which fails on a master that has become a replica.
redis.call('PERSIST', SLICES)
local now = present()
local from, first, until_, limit = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

-- Returns true if an id comes before the first one. Lua's own order depends on the locale.
local function before(id)
  for place = 1, math.min(#id, #first) do
    local one, other = string.byte(id, place), string.byte(first, place)
    if one ~= other then return one < other end
  end
  return #id < #first
end

local keys = {}
local low, high = whole(math.floor(from / SLICE)), whole(math.floor(until_ / SLICE))
for _, start in ipairs(redis.call('ZRANGEBYSCORE', SLICES, low, high)) do
  local name, skip = ARGV[1] .. 's:' .. start, 0
  repeat
    local some = redis.call('ZRANGEBYSCORE', name, whole(from), whole(until_), 'WITHSCORES',
      'LIMIT', skip, limit)
    for place = 1, #some, 2 do
      local id, due = some[place], tonumber(some[place + 1])
      if due > from or first == '' or not before(id) then
        if #keys == limit * 2 then return {now, 1, -1, keys} end
        keys[#keys + 1] = id
        keys[#keys + 1] = due
      end
    end
    skip = skip + limit
  until #some < limit * 2
  local beyond = redis.call('ZRANGEBYSCORE', name, '(' .. whole(until_), '+inf', 'WITHSCORES',
    'LIMIT', 0, 1)
  if beyond[2] then return {now, 0, tonumber(beyond[2]), keys} end
end
local further = redis.call('ZRANGEBYSCORE', SLICES, '(' .. high, '+inf', 'LIMIT', 0, 1)
if not further[1] then return {now, 0, -1, keys} end
local beyond = redis.call('ZRANGE', ARGV[1] .. 's:' .. further[1], 0, 0, 'WITHSCORES')
return {now, 0, tonumber(beyond[2] or -1), keys}
