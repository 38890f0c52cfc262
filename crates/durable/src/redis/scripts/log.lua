-- Adds attempts to the log, and deletes the oldest beyond its bounds.
--
-- KEYS[1] the log
-- ARGV[1] the maximum number of attempts, ARGV[2] the maximum age in milliseconds
-- ARGV[3…] the attempts, each with the time of its end and its JSON
--
-- The id of an entry is the latest end so far, and a number, so an attempt is found by its age, and
-- none is rejected after the clock was set back.

local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local latest = newest and tonumber(string.match(newest[1], '^%d+')) or 0
local rejected
for place = 3, #ARGV, 2 do
  latest = math.max(latest, tonumber(ARGV[place]))
  local id = redis.pcall('XADD', KEYS[1], string.format('%d-*', latest), 'attempt', ARGV[place + 1])
  if type(id) == 'table' then
    rejected = id
    break
  end
end
-- A full memory rejects additions, but no deletion, and must not keep attempts beyond the bounds.
redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%d', math.max(0, latest - tonumber(ARGV[2]))))
return rejected
