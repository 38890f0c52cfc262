-- Counts the timers of a partition. Changes nothing.
--
-- returns {now, timers, leases, keys that are due, the time of the first key or -1, keys of paused
--   timers, dead letters}
--
-- Only the slices with keys that are due or paused are read, and of each one its length.

local now = present()
local function named(number) return ARGV[1] .. 's:' .. number end

local present_slice, parked_slice = math.floor(now / SLICE), math.floor(PARKED / SLICE)
local due, oldest = 0, nil
for _, number in ipairs(redis.call('ZRANGEBYSCORE', SLICES, '-inf', whole(present_slice))) do
  local name = named(number)
  oldest = oldest or redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')[2]
  if tonumber(number) < present_slice then
    due = due + redis.call('ZCARD', name)
  else
    due = due + redis.call('ZCOUNT', name, '-inf', whole(now))
  end
end
if not oldest then
  local range = {'(' .. whole(present_slice), '(' .. whole(parked_slice)}
  local number = redis.call('ZRANGEBYSCORE', SLICES, range[1], range[2], 'LIMIT', 0, 1)[1]
  oldest = number and redis.call('ZRANGE', named(number), 0, 0, 'WITHSCORES')[2]
end
local parked = 0
for _, number in ipairs(redis.call('ZRANGEBYSCORE', SLICES, whole(parked_slice), '+inf')) do
  parked = parked + redis.call('ZCARD', named(number))
end
local counters = redis.call('HMGET', COUNTERS, 'timers', 'leased')
local timers, leased = tonumber(counters[1] or 0), math.max(tonumber(counters[2] or 0), 0)
return {now, timers, leased, due, tonumber(oldest or -1), parked,
  redis.call('HLEN', ARGV[1] .. 'letters')}
