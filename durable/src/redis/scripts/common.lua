-- Definitions that all scripts share; they stand before each of them.
--
-- KEYS[1] index of slices, KEYS[2] last answers, KEYS[3] counters, KEYS[4] how old the answers are;
-- then what each script says
-- ARGV[1] what all keys of the partition begin with
-- ARGV[2] the time, in milliseconds, or '': the server's
-- ARGV[3] the process and [4] the number of its batch; '' where nothing is changed
-- ARGV[5] the channel of notices

local SLICES, ANSWERS, COUNTERS, AGES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SLICE = 600000    -- how long a slice is, in milliseconds

-- A whole number as a text.
local function whole(number) return string.format('%d', number) end

local function present()
  if ARGV[2] ~= '' then return tonumber(ARGV[2]) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
