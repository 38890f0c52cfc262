-- Definitions that precede all scripts.
--
-- KEYS[1] index of slices, KEYS[2] last replies, KEYS[3] counters, KEYS[4] ages of the replies,
--   then the keys of the script
-- ARGV[1] the prefix of all keys of the partition
-- ARGV[2] the time in milliseconds, or '' for the server's
-- ARGV[3] the process, ARGV[4] the number of its batch, or '' if nothing is changed
-- ARGV[5] the channel of notices

local SLICES, ANSWERS, COUNTERS, AGES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SLICE = 600000    -- the length of a slice, in milliseconds
local PARKED = 281474976710656  -- the distance of the keys of paused timers behind all others

-- Formats a whole number.
local function whole(number) return string.format('%d', number) end

local function present()
  if ARGV[2] ~= '' then return tonumber(ARGV[2]) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
