-- What all scripts share; it stands before each of them.
--
-- KEYS[1] index of slices, KEYS[2] answers of late, KEYS[3] counters; then what each script says
-- ARGV[1] what all keys of the partition begin with
-- ARGV[2] the time, in milliseconds, or '': the server's
-- ARGV[3] the token of this call; ARGV[4] '1': it is asked again, its answer having been lost
-- ARGV[5] the channel of notices
--
-- A script reads every key before it writes any: while a slot moves, a key that has gone ahead ends
-- the script, and then nothing is written yet.

local SLICES, ANSWERS, COUNTERS = KEYS[1], KEYS[2], KEYS[3]
local SLICE = 600000    -- how long a slice is, in milliseconds
local TOLD = 30000      -- how far ahead a change is told to the workers
local KEPT = 4096       -- how many answers are kept at least
local LATEST = 253402300799999

local function whole(number) return string.format('%.0f', number) end

local function present()
  if ARGV[2] ~= '' then return tonumber(ARGV[2]) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The present rounded up: what is due a while after it has waited for so long.
local function coming()
  if ARGV[2] ~= '' then return tonumber(ARGV[2]) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.ceil(time[2] / 1000)
end

-- The answer that this call has had already, or nil.
local function answered()
  if ARGV[4] ~= '1' then return nil end
  for _, kept in ipairs(redis.call('LRANGE', ANSWERS, 0, -1)) do
    if string.sub(kept, 1, #ARGV[3]) == ARGV[3] then
      return cmsgpack.unpack(string.sub(kept, #ARGV[3] + 1))
    end
  end
  return nil
end

-- Keeps the answer of a call that has changed something.
local function keep(answer)
  local length = redis.call('RPUSH', ANSWERS, ARGV[3] .. cmsgpack.pack(answer))
  if length > KEPT + 512 then redis.call('LTRIM', ANSWERS, -KEPT, -1) end
  return answer
end

-- A record: layout 1 | flags 1 | due 6 | planned 6 | fence 6 | attempt 4 | lease 4 | error | rest.
-- Flag 1: it repeats. Fence 0: it rests. The error has its length before it, of two bytes.
local function unpack_record(bytes)
  if #bytes < 30 then return nil end
  local record, layout, length = {}, nil, nil
  layout, record.flags, record.due, record.planned, record.fence, record.attempt, record.lease,
    length = struct.unpack('<BBI6I6I6I4I4I2', bytes)
  if layout ~= 1 then return nil end
  record.error = string.sub(bytes, 31, 30 + length)
  record.rest = string.sub(bytes, 31 + length)
  return record
end

local function pack_record(record)
  return struct.pack('<BBI6I6I6I4I4I2', 1, record.flags, record.due, record.planned, record.fence,
    record.attempt, record.lease, #record.error) .. record.error .. record.rest
end

local function slice(due) return ARGV[1] .. 's:' .. whole(math.floor(due / SLICE)) end

-- Reads the slice of a due time, so that it may be written.
local function touch(due) redis.call('EXISTS', slice(due)) end

-- Puts a timer's key in its slice, and tells the workers if it is near.
local function file(id, due, now)
  redis.call('ZADD', slice(due), whole(due), id)
  redis.call('ZADD', SLICES, whole(math.floor(due / SLICE)), whole(math.floor(due / SLICE)))
  if due <= now + TOLD then redis.call('PUBLISH', ARGV[5], whole(due) .. ':' .. id) end
end

-- Takes a timer's key out of its slice; a slice that is empty has gone, and leaves the index.
local function unfile(id, due)
  redis.call('ZREM', slice(due), id)
  if redis.call('EXISTS', slice(due)) == 0 then
    redis.call('ZREM', SLICES, whole(math.floor(due / SLICE)))
  end
end

local function refuse(what) return redis.error_reply('TBCORRUPT ' .. what) end
