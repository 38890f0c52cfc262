-- Definitions that precede all scripts.
--
-- KEYS[1] index of slices, KEYS[2] last replies, KEYS[3] counters, KEYS[4] ages of the replies,
--   then the keys of the script
-- ARGV[1] the prefix of all keys of the partition
-- ARGV[2] the time in milliseconds, or '' for the server's
-- ARGV[3] the process, ARGV[4] the number of its batch, or '' if nothing is changed
-- ARGV[5] the channel of the partition

local SLICES, ANSWERS, COUNTERS, AGES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SLICE = 600000    -- the length of a slice, in milliseconds
local PARKED = 281474976710656  -- the distance of the keys of paused timers behind all others

-- The fields of a bucket with the long payloads of a timer are its id after one of these bytes, which
-- no text in UTF-8 has. The first is its own, the second that of its next delivery.
local OWN, LATER = '\255', '\254'

-- Returns the long payloads of a timer, each '' if there is none.
local function long_payloads(bucket, id, record)
  local flags, own, later = string.byte(record, 2) or 0, '', ''
  if math.floor(flags / 16) % 2 == 1 then own = redis.call('HGET', bucket, OWN .. id) or '' end
  if math.floor(flags / 2) % 2 == 1 then later = redis.call('HGET', bucket, LATER .. id) or '' end
  return own, later
end

-- Calls `visit` with the id, the record and the long payloads of each timer in a bucket. Returns the
-- other fields.
local function each_timer(bucket, visit)
  local fields, long = redis.call('HGETALL', bucket), {}
  for place = 1, #fields, 2 do
    if (string.byte(fields[place]) or 0) >= 254 then long[fields[place]] = fields[place + 1] end
  end
  for place = 1, #fields, 2 do
    local id, own, later = fields[place], '', ''
    if (string.byte(id) or 0) < 254 then
      if next(long) then
        own, later = long[OWN .. id] or '', long[LATER .. id] or ''
        long[OWN .. id], long[LATER .. id] = nil, nil
      end
      visit(id, fields[place + 1], own, later)
    end
  end
  return long
end

-- Formats a whole number.
local function whole(number) return string.format('%d', number) end

-- Returns the current time, and the current time rounded up, from which a delay counts so that it
-- passes completely.
local function present()
  if ARGV[2] ~= '' then return tonumber(ARGV[2]), tonumber(ARGV[2]) end
  local time = redis.call('TIME')
  local seconds, part = time[1] * 1000, time[2] / 1000
  return seconds + math.floor(part), seconds + math.ceil(part)
end
