-- Resting and due → leased, with one more attempt (D13). Leased with an expired lease → leased again
-- (D14).
--
-- id, bucket
-- key: the due time in the key by which the timer was found
-- takes_over: '1' if a paused partition grants an expired lease, or ''
-- returns {0} no such timer
--   | {3} no such timer, although the index has the key
--   | {1, due} not due, paused, or leased until then
--   | {4} the partition is paused
--   | {2, fence, 1 if it was taken over, when it was due, the fence before or 0, record, own, later},
--     where `own` and `later` are the payloads of the record and of its next delivery if they are
--     long, or ''

local MOST = 4194304    -- the maximum number of bytes of records in a reply with several
local given = 0         -- the number so far

local function lease(id, bucket, key, takes_over)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then
    -- Fails if the slice has moved already, as an empty one may have. Then it has no such key.
    local score = redis.pcall('ZSCORE', named(slice(tonumber(key))), id)
    return {score == key and 3 or 0}
  end
  local flags, before, planned, leased, attempt, length = head(found)
  if not flags then return CORRUPT end
  if before > now then return {1, before} end
  if not fence then
    local counters = call('HMGET', COUNTERS, 'fence', 'paused')
    fence, held = tonumber(counters[1] or 0), counters[2] and true or false
  end
  if held and (takes_over == '' or leased == 0) then return {4} end
  -- A record that is too long for this reply is requested again, in a batch of its own.
  local length_ = #found
  if has(flags, LONG) then length_ = length_ + call('HSTRLEN', bucket, OWN .. id) end
  if has(flags, NEXT) then length_ = length_ + call('HSTRLEN', bucket, LATER .. id) end
  if given > 0 and given + length_ > MOST then return 'TRYAGAIN the answer is long' end
  given = given + length_
  local due, overrun = now + length, 1
  move(id, before, due)
  if leased == 0 then
    attempt, overrun = attempt + 1, 0
  end
  -- Also greater than any that a failover has lost.
  fence = math.max(fence + 1, now)
  local record = pack('<BBI6I6I6I4', LAYOUT, flags, due, planned, fence, attempt) .. sub(found, 25)
  call('HSET', bucket, id, record)
  count_lease(leased, fence)
  notify_if_near(id, due)
  return {2, fence, overrun, before, leased, record, long_payloads(bucket, id, record)}
end

-- Returns the result of a lease that was granted already, with its record, or the present state of
-- the timer.
local function leased_already(answer, id, bucket)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  if not found then return {0} end
  local flags, due, _, leased = head(found)
  if not flags then return CORRUPT end
  if leased ~= answer[2] then return {1, due} end
  answer[6] = found
  answer[7], answer[8] = long_payloads(bucket, id, found)
  return answer
end
