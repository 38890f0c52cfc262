-- Adds attempts to the log, and deletes the oldest beyond its bounds.
--
-- KEYS[1] the log
-- ARGV[1] the maximum number of attempts, ARGV[2] the maximum age in milliseconds
-- ARGV[3] the time in milliseconds, or '' for the server's
-- ARGV[4…] the JSON of each attempt
--
-- The id of an entry is the latest time so far, and a number, so an attempt is found by its age, and
-- none is rejected after the clock was set back.

local time = redis.call('TIME')
local now = tonumber(ARGV[3]) or time[1] * 1000 + math.floor(time[2] / 1000)
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local latest = math.max(now, newest and tonumber(string.match(newest[1], '^%d+')) or 0)
local rejected
for place = 4, #ARGV do
  local id = redis.pcall('XADD', KEYS[1], string.format('%d-*', latest), 'attempt', ARGV[place])
  if type(id) == 'table' then
    rejected = id
    break
  end
end
-- A full memory rejects additions, but no deletion, and must not keep attempts beyond the bounds.
redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%d', math.max(0, now - tonumber(ARGV[2]))))
return rejected
