-- Functions of the changing operations, which this file precedes. It follows common.lua. Each
-- operation has the numbers of its transitions in docs/DESIGN.md.
--
-- An operation is atomic. While a slot moves, access to a key that has already moved is an error,
-- and Redis rolls nothing back. An operation therefore reads all keys that it writes before its
-- first write, except for the first one. After that it touches no key that may have disappeared, as
-- a key does that becomes empty.
--
-- An operation returns a number or an array. A text is an error.

local call, floor, pack, read = redis.call, math.floor, struct.pack, struct.unpack
local byte, sub = string.byte, string.sub
local PREFIX = ARGV[1]
local NOTIFY_AHEAD = 45000      -- the distance from now up to which changes are published
local LATEST = 253402300799999
local LAYOUT = 8        -- of a record, as in bytes.rs
-- Flags of a record.
local NEXT, CANCELLED, PAUSED, LONG, RUN_NOW, PLAN, LABELS = 2, 4, 8, 16, 32, 64, 128
local CORRUPT = 'TBCORRUPT damaged record of a timer'

local now, coming = present()

-- Changes that a batch writes once, at its end.
local changed = false   -- true if it has changed anything
local timers = 0        -- the number of added timers
local leases = 0        -- the number of leases that began, less that of those that ended
local fence = nil       -- the last fencing token, if it was read
local retry = 0         -- the latest time of a retry that was planned
local held = nil        -- true if the partition is paused, once it was read
local added = {}        -- slices with added keys: their numbers, as texts → true
local left = {}         -- slices with removed keys: number → name

-- Returns an error as Redis would reply with it. Before Redis 7 it begins with a location.
local function failed(error)
  local text = string.gsub(error, '^@user_script: %d+: %-?', '')
  return string.find(text, '^%u%u') and text or 'ERR ' .. text
end

-- A record: layout 1 | flags 1 | due 6 | planned 6 | fence 6 | attempt 4 | lease 4 | error | plan 6?
-- | next? | rest.
-- Flag 1: the timer repeats. Flag 2: there is `next`, the record of the next delivery, preceded by
-- its length in four bytes. Flag 4: the timer was cancelled while it was leased. Flag 8: the timer is
-- paused. Flag 16: the payload is long, and in a field of its own. Flag 32: the timer is paused, and
-- its next attempt begins nevertheless. Flag 64: the delivery was ordered, and there is `plan`, its
-- planned time before that. Such a record has no `next`. Flag 128: the rest has labels after its sum,
-- preceded by their number, each by its length, in one byte. Fencing token 0: the timer rests. The error
-- is preceded by its length in two bytes.

local function has(flags, flag) return floor(flags / flag) % 2 == 1 end

local function with(flags, flag) return has(flags, flag) and flags or flags + flag end

local function without(flags, flag) return has(flags, flag) and flags - flag or flags end

-- Returns the time in the key of a timer. A paused timer that rests is parked behind all others,
-- unless it is to run now.
local function indexed(flags, due, fence_)
  return fence_ == 0 and has(flags, PAUSED) and not has(flags, RUN_NOW) and due + PARKED or due
end

-- Returns the flags, the time in the key, the planned time, fencing token, attempt and lease, or
-- nothing if it is not a record.
local function head(record)
  if #record < 30 then return nil end
  local layout, flags, due, planned, fence_, attempt, lease = read('<BBI6I6I6I4I4', record)
  if layout == LAYOUT then
    return flags, indexed(flags, due, fence_), planned, fence_, attempt, lease
  end
end

-- Returns the part of a record after its error, that is, `plan`, `next` and the rest.
local function tail(record) return sub(record, 31 + read('<I2', record, 29)) end

-- Returns the record of the next delivery or nil, the rest, and the plan or nil.
local function parts(record)
  local flags, after = byte(record, 2), tail(record)
  if has(flags, PLAN) then return nil, sub(after, 7), read('<I6', after) end
  if not has(flags, NEXT) then return nil, after end
  local length = read('<I4', after)
  return sub(after, 5, 4 + length), sub(after, 5 + length)
end

local function rest(record)
  local _, rest_ = parts(record)
  return rest_
end

-- Returns a record with other flags, up to its error.
local function front(record, flags)
  return pack('<BB', LAYOUT, flags) .. sub(record, 3, 30 + read('<I2', record, 29))
end

local NONE = {}
local MOST_LABELS = 8   -- the maximum number of labels, in case that a record is damaged

-- Returns the keys of the ids with each label of a record, as key → true.
local function label_keys(record)
  if not has(byte(record, 2), LABELS) then return NONE end
  local rest_, keys, at = rest(record), {}, 6
  for _ = 1, math.min(byte(rest_, 5) or 0, MOST_LABELS) do
    local length = byte(rest_, at) or 0
    keys[PREFIX .. 'l:' .. sub(rest_, at + 1, at + length)] = true
    at = at + 1 + length
  end
  return keys
end

local function has_label(record, label)
  return label_keys(record)[PREFIX .. 'l:' .. label] ~= nil
end

-- Returns the keys of labels that a timer loses and gets by a change of its record, which both may
-- be nil, and reads these keys.
local function relabelled(before, after)
  local lost, got = before and label_keys(before) or NONE, after and label_keys(after) or NONE
  if lost == NONE and got == NONE then return NONE, NONE end
  local lost_only, got_only = {}, {}
  for key in pairs(lost) do if not got[key] then lost_only[#lost_only + 1] = key end end
  for key in pairs(got) do if not lost[key] then got_only[#got_only + 1] = key end end
  for _, key in ipairs(lost_only) do call('EXISTS', key) end
  for _, key in ipairs(got_only) do call('EXISTS', key) end
  return lost_only, got_only
end

-- Writes what `relabelled` has returned.
local function relabel(id, lost, got)
  for _, key in ipairs(lost) do call('ZREM', key, id) end
  for _, key in ipairs(got) do call('ZADD', key, 0, id) end
end

local LETTERS, DEAD, NAMES = PREFIX .. 'letters', PREFIX .. 'dead', PREFIX .. 'names'

-- Returns the members of a dead letter in the index by id and by label: the name, a byte that no name has,
-- and the number, in the order of numbers.
local function letter_names(number, id, record)
  local suffix = string.format('\255%020d', number)
  local names = {'i:' .. id .. suffix}
  for key in pairs(label_keys(record)) do names[#names + 1] = sub(key, #PREFIX + 1) .. suffix end
  return names
end

-- Returns the same for a letter as it is stored. A letter that cannot be read has none, so its members
-- stay and lead to no letter.
local function stored_names(number, letter)
  local readable, names = pcall(function()
    local id, _, record = read('<I2c0I4c0', letter, 8)
    return letter_names(number, id, sub(letter, record))
  end)
  return readable and names or NONE
end

-- Writes a dead letter under a free number.
local function put_letter(number, letter, names)
  call('HSET', LETTERS, whole(number), letter)
  call('ZADD', DEAD, whole(number), whole(number))
  for _, name in ipairs(names) do call('ZADD', NAMES, 0, name) end
end

-- Removes a dead letter.
local function remove_letter(number, names)
  call('HDEL', LETTERS, number)
  call('ZREM', DEAD, number)
  if #names > 0 then call('ZREM', NAMES, unpack(names)) end
end

-- Returns a record with another due and planned time.
local function planned_at(record, due)
  return sub(record, 1, 2) .. pack('<I6I6', due, due) .. sub(record, 15)
end

-- Writes a record and its long payloads, in place of one with these flags, or of none.
local function store(bucket, id, before, record, own, later)
  if own ~= '' then
    call('HSET', bucket, id, record, OWN .. id, own)
  else
    call('HSET', bucket, id, record)
    if before and has(before, LONG) then call('HDEL', bucket, OWN .. id) end
  end
  if later ~= '' then
    call('HSET', bucket, LATER .. id, later)
  elseif before and has(before, NEXT) then
    call('HDEL', bucket, LATER .. id)
  end
end

-- Removes a record with these flags, and its long payloads.
local function remove(bucket, id, flags)
  if has(flags, LONG) or has(flags, NEXT) then
    call('HDEL', bucket, id, OWN .. id, LATER .. id)
  else
    call('HDEL', bucket, id)
  end
end

-- Returns a due time. A value that begins with + is a delay.
local function time(given)
  if byte(given) == 43 then return coming + tonumber(given) end
  return tonumber(given)
end

-- Returns the number of the slice of a due time as a text, because Redis and Lua are slow to format
-- numbers.
local function slice(due) return whole(floor(due / SLICE)) end

local function named(number) return PREFIX .. 's:' .. number end

-- Counts the lease of a record whose fencing token changes.
local function count_lease(before, after)
  leases = leases + (after == 0 and 0 or 1) - (before == 0 and 0 or 1)
end

-- Returns true if the index has the key of a timer.
local function is_indexed(id, due)
  local number = slice(due)
  local score = call('ZSCORE', named(number), id)
  return score and tonumber(score) == due and call('ZSCORE', SLICES, number) ~= false
end

-- Adds a key to its slice, which must have been read.
local function put(number, due, id)
  call('ZADD', named(number), whole(due), id)
  added[number], changed = true, true
end

-- Removes a key from its slice, as the first write.
local function take(number, id)
  local name = named(number)
  call('ZREM', name, id)
  left[number], changed = name, true
end

-- Removes nothing, as the first write, because a full memory rejects no write after a removal.
local function relieve(number)
  if not changed then call('ZREM', named(number), '') end
end

-- Moves a key, as the first write. Within a slice this is one step, because the slice might
-- disappear between two.
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

-- Publishes a key that is due soon on the channel of its partition.
local function notify_if_near(id, due)
  if due <= now + NOTIFY_AHEAD then call('PUBLISH', ARGV[5], whole(due) .. ':' .. id) end
end
