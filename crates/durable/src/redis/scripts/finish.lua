-- Leased under this fencing token → the next delivery, which was inserted meanwhile or belongs to
-- the repetition, or nothing (D16). A failed attempt leads to a retry (D17) or adds a dead letter
-- (D18). A cancelled timer that is not done has no other attempt and becomes no letter (D19).
--
-- id, bucket, fence
-- how: 'done', 'dead', 'retry', or 'again' if the attempt is not counted
-- given: the next planned time of a repetition or '' (done, dead); + and the wait (retry, again)
-- error; reason of a dead letter; clear: 1 if the letter must not repeat
-- most, age: the bounds of the dead letters, given to `finish_bounded` only
-- returns {1 accepted | 2 cancelled, the next due time or 0 if it was removed}
--   | {0, 0} the lease was taken over, nothing changed

-- Adds a dead letter for a record, with another error.
local function add_letter(number, id, flags, head_, error, record, own, reason)
  local letter = pack('<I6BI2', now, reason, #id) .. id .. pack('<I4', #own) .. own
    .. pack('<BB', LAYOUT, flags) .. head_ .. pack('<I2', #error) .. error .. rest(record)
  call('HSET', COUNTERS, 'dead', whole(number))
  put_letter(number, letter, letter_names(number, id, record))
end

local AT_ONCE = 2       -- the maximum number of letters that are deleted when one is written
local AHEAD = 16        -- the number of the oldest letters that are read for that, at most

-- Returns the oldest letters that are beyond the bounds once one more is written (D23), each with its
-- number and its names. A letter that cannot be read, or was written when the clock was ahead, has no age,
-- and keeps none of those behind it. Without bounds there is no age.
local function excess(most, age)
  local beyond = {}
  if not age then return beyond end
  local count = call('ZCARD', DEAD) + 1
  for _, number in ipairs(call('ZRANGE', DEAD, 0, AHEAD - 1)) do
    local letter = call('HGET', LETTERS, number) or ''
    local died = #letter < 6 and math.huge or read('<I6', letter)
    if count - #beyond > tonumber(most) or died < now - tonumber(age) then
      beyond[#beyond + 1] = {number, stored_names(number, letter)}
    elseif died <= now then
      break
    end
    if #beyond == AT_ONCE then break end
  end
  return beyond
end

local function finish(id, bucket, under, how, given, error, reason, clear, most, age)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return {0, 0} end
  local flags, before, planned, leased, attempt, length = head(found)
  if not flags then return CORRUPT end
  if leased ~= tonumber(under) then return {0, 0} end
  local cancelled = how ~= 'done' and has(flags, CANCELLED)
  local retried = not cancelled and (how == 'retry' or how == 'again')
  -- A delivery that was inserted after a cancel has nothing to do with the one before.
  local pauses = has(flags, PAUSED) and not has(flags, CANCELLED)
  local due, record, answer = nil, nil, cancelled and 2 or 1
  local own, later = '', ''
  if not retried then record = parts(found) end
  if record then
    local kept
    kept, due = head(record)
    if not kept then return CORRUPT end
    if pauses then record = pack('<BB', LAYOUT, kept + PAUSED) .. sub(record, 3) end
    later = call('HGET', bucket, LATER .. id) or ''
  elseif retried or given ~= '' and flags % 2 == 1 then
    -- Unless a cancel in the meantime has ended the repetition.
    due = math.min(time(given), LATEST)
  end
  local lost, got = NONE, NONE
  if record or not due then lost, got = relabelled(found, record) end
  local last, beyond = nil, nil
  if how == 'dead' and not cancelled then
    last = tonumber(call('HGET', COUNTERS, 'dead') or 0)
    call('EXISTS', LETTERS, DEAD, NAMES)
    beyond = excess(most, age)
    if has(flags, LONG) then own = call('HGET', bucket, OWN .. id) or '' end
  end

  if retried then retry = math.max(retry, due) end
  -- An order stands until an attempt counts.
  local after = how == 'again' and flags or without(flags, RUN_NOW)
  local key = due and (pauses and not has(after, RUN_NOW) and due + PARKED or due)
  if due then move(id, before, key) else take(slice(before), id) end
  if last then
    local kept = flags % 2 * (1 - tonumber(clear)) + (has(flags, LONG) and LONG or 0)
      + (has(flags, LABELS) and LABELS or 0)
    local head_ = pack('<I6I6I6I4I4', before, planned, 0, attempt, length)
    add_letter(math.max(now * 1024, last + 1), id, kept, head_, error, found, own, tonumber(reason))
    -- The new letter stays, so none of its keys disappears.
    for _, letter in ipairs(beyond) do remove_letter(letter[1], letter[2]) end
  end
  count_lease(leased, 0)
  relabel(id, lost, got)
  if not due then
    remove(bucket, id, flags)
    timers = timers - 1
    return {answer, 0}
  end
  if record then
    store(bucket, id, flags, record, later, '')
  else
    local rest_ = tail(found)
    if how == 'again' then
      attempt = attempt - 1
    elseif how ~= 'retry' then
      planned, attempt, error = due, 0, ''
      after, rest_ = without(after, PLAN), rest(found)
    end
    record = pack('<BBI6I6I6I4I4I2', LAYOUT, after, due, planned, 0, attempt, length, #error)
    -- A long payload stays where it is.
    call('HSET', bucket, id, record .. error .. rest_)
  end
  notify_if_near(id, key)
  return {answer, key}
end
