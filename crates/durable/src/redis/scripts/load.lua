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

-- Calls `visit` with the members of a sorted set from a score on, and their scores, until it returns
-- true, and then returns true. The steps double, so few members are read in vain.
local function each(name, score, visit)
  local skip, step = 0, 16
  repeat
    local some = redis.call('ZRANGEBYSCORE', name, whole(score), '+inf', 'WITHSCORES', 'LIMIT', skip,
      step)
    for place = 1, #some, 2 do
      if visit(some[place], tonumber(some[place + 1])) then return true end
    end
    local complete = #some < step * 2
    skip, step = skip + step, step * 2
  until complete
end

local keys, more, beyond = {}, 0, -1
each(SLICES, math.floor(from / SLICE), function(start, number)
  local name = ARGV[1] .. 's:' .. start
  if number > math.floor(until_ / SLICE) then
    beyond = tonumber(redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')[2] or -1)
    return true
  end
  return each(name, from, function(id, due)
    if due > until_ then
      beyond = due
      return true
    elseif due > from or first == '' or not before(id) then
      if #keys == limit * 2 then
        more = 1
        return true
      end
      keys[#keys + 1] = id
      keys[#keys + 1] = due
    end
  end)
end)
return {now, more, beyond, keys}
