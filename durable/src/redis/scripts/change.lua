-- Functions that the changing operations share; they stand before them, after common.lua.
--
-- An operation is whole or not at all. While a slot moves, a key that is not here (any more) is an
-- error, and Redis undoes nothing. So an operation reads all keys that it writes before it writes
-- the first; that one alone need not be read. And once it has written, it touches no key that may
-- have gone by then, as one does that becomes empty.
--
-- An operation answers a number or an array; what it answers as a text is an error.

local call, floor, pack, read = redis.call, math.floor, struct.pack, struct.unpack
local byte, sub = string.byte, string.sub
local PREFIX = ARGV[1]
local NOTIFY_AHEAD = 30000      -- how far ahead a change is told to the workers
local LATEST = 253402300799999
local LAYOUT = 2        -- of a record
local DAMAGED = 128     -- flag of a record that a worker could not read
local CORRUPT = 'TBCORRUPT damaged record of a timer'

-- The present, and the present rounded up: what is due a while after it has waited for so long.
local now, coming
if ARGV[2] ~= '' then
  now = tonumber(ARGV[2])
  coming = now
else
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
  coming = time[1] * 1000 + math.ceil(time[2] / 1000)
end

-- Changes that a batch writes once, at its end.
local changed = false   -- whether it has changed anything
local timers = 0        -- how many timers more there are
local fence = nil       -- the last fence, if any was given out
local added = {}        -- slices that something was put into: their numbers, as texts → true
local left = {}         -- slices that something has left: number → name

-- An error as Redis would answer it. Before Redis 7 it says first where it was.
local function failed(error)
  local text = string.gsub(error, '^@user_script: %d+: %-?', '')
  return string.find(text, '^%u%u') and text or 'ERR ' .. text
end

-- A record: layout 1 | flags 1 | due 6 | planned 6 | fence 6 | attempt 4 | lease 4 | error | next?
-- | rest.
-- Flag 1: it repeats. Flag 2: there is `next`, the record of the delivery that comes after this one,
-- with its length before it, of four bytes. Flag 128: it is damaged. Fence 0: it rests. The error has
-- its length before it, of two bytes.
--
-- Its flags, due time, planned time, fence, attempt and lease; nothing, if it is no record, or a
-- damaged one.
local function head(record)
  if #record < 30 then return nil end
  local layout, flags, due, planned, fence_, attempt, lease = read('<BBI6I6I6I4I4', record)
  if layout == LAYOUT and flags < DAMAGED then return flags, due, planned, fence_, attempt, lease end
end

-- Returns the part of a record after its error: `next` and the rest.
local function tail(record) return sub(record, 31 + read('<I2', record, 29)) end

-- The record of the delivery that comes next, or nil; and the rest.
local function parts(record)
  local after = tail(record)
  if floor(byte(record, 2) / 2) % 2 == 0 then return nil, after end
  local length = read('<I4', after)
  return sub(after, 5, 4 + length), sub(after, 5 + length)
end

local function rest(record)
  local _, rest_ = parts(record)
  return rest_
end

-- A record with other flags, up to where `next` stands.
local function front(record, flags)
  return pack('<BB', LAYOUT, flags) .. sub(record, 3, 30 + read('<I2', record, 29))
end

-- A due time: what was given, or, if a + stands before it, so long from now on.
local function time(given)
  if byte(given) == 43 then return coming + tonumber(given) end
  return tonumber(given)
end

-- The number of the slice of a due time, as a text: Redis and Lua are slow to write numbers.
local function slice(due) return whole(floor(due / SLICE)) end

local function named(number) return PREFIX .. 's:' .. number end

-- Puts a key into its slice, which has been read.
local function put(number, due, id)
  call('ZADD', named(number), whole(due), id)
  added[number], changed = true, true
end

-- Takes a key out of its slice, as the first write.
local function take(number, id)
  local name = named(number)
  call('ZREM', name, id)
  left[number], changed = name, true
end

-- A removal, though of nothing, as the first write: a full memory refuses none that follows.
local function relieve(number)
  if not changed then call('ZREM', named(number), '') end
end

-- Moves a key, as the first write. Within a slice in one step, as the slice might be gone between
-- two.
local function move(id, before, due)
  local from, to = slice(before), slice(due)
  if from == to then
    relieve(to)
    call('ZADD', named(to), whole(due), id)
    changed = true
    return
  end
  call('EXISTS', named(to))
  take(from, id)
  put(to, due, id)
end

-- Tells the workers of a key that is near.
local function notify_if_near(id, due)
  if due <= now + NOTIFY_AHEAD then call('PUBLISH', ARGV[5], whole(due) .. ':' .. id) end
end
