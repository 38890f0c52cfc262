-- Resting and due → leased, one attempt more. Leased, and the lease has run out → leased anew.
--
-- id, bucket
-- key: the due time in the key by which the timer was found
-- answers {0} there is none | {3} there is none, though the index has that key | {1, due} it is not due, or leased until then
--   | {2, fence, 1 if it was taken over, when it was due, the fence before or 0, record}

local MOST = 4194304    -- how many bytes of records one answer has, or one record
local given = 0         -- how many it has

local function lease(id, bucket, key)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then
    -- An error if the slice has gone ahead, as one that is empty may have: it has no such key.
    local score = redis.pcall('ZSCORE', named(slice(tonumber(key))), id)
    return {score == key and 3 or 0}
  end
  local flags, before, planned, leased, attempt, length = head(found)
  if not flags then return CORRUPT end
  if before > now then return {1, before} end
  -- A record too long for one answer is requested again, in a batch of its own.
  if given > 0 and given + #found > MOST then return 'TRYAGAIN the answer is long' end
  given = given + #found
  fence = fence or tonumber(call('HGET', COUNTERS, 'fence') or 0)
  local due, overrun = now + length, 1
  move(id, before, due)
  if leased == 0 then
    attempt, overrun = attempt + 1, 0
  end
  -- Also greater than any that a fail-over has lost.
  fence = math.max(fence + 1, now)
  local record = pack('<BBI6I6I6I4', LAYOUT, flags, due, planned, fence, attempt)
  record = record .. sub(found, 25)
  call('HSET', bucket, id, record)
  notify_if_near(id, due)
  return {2, fence, overrun, before, leased, record}
end

-- The answer of a lease that was given already, with its record; or what has become of it.
local function leased_already(answer, id, bucket)
  local found = call('HGET', PREFIX .. 'b:' .. bucket, id)
  if not found then return {0} end
  local flags, due, _, leased = head(found)
  if not flags then return CORRUPT end
  if leased ~= answer[2] then return {1, due} end
  answer[6] = found
  return answer
end
