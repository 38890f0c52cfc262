-- Leased under this fence → what comes next.
--
-- KEYS[4] the bucket of the id, KEYS[5] the dead letters by number, KEYS[6] their order
-- ARGV[6] id, [7] fence, [8] 'done', 'retry' or 'dead'
-- ARGV[9] next planned time of a repetition, or '' (done, dead); how long to wait (retry)
-- ARGV[10] error, [11] reason of a dead letter, [12] flags to take off its record
-- answers {1, due} due again | {2, 0} gone | {0, 0} the lease was taken over: nothing is changed

local had = answered()
if had then return had end
local id, now = ARGV[6], present()
local found = redis.call('HGET', KEYS[4], id)
if not found then return {0, 0} end
local record = unpack_record(found)
if not record then return refuse('the record of a timer') end
if record.fence ~= tonumber(ARGV[7]) then return {0, 0} end
touch(record.due)
local due = nil
if ARGV[8] == 'retry' then
  due = math.min(coming() + tonumber(ARGV[9]), LATEST)
elseif ARGV[9] ~= '' and record.flags % 2 == 1 then
  -- Unless a cancel in the meantime has ended the repetition.
  due = tonumber(ARGV[9])
end
if due then touch(due) end
local last = nil
if ARGV[8] == 'dead' then
  last = tonumber(redis.call('HGET', COUNTERS, 'dead') or 0)
  redis.call('EXISTS', KEYS[5], KEYS[6])
end

unfile(id, record.due)
record.fence = 0
if last then
  local number = math.max(now * 1024, last + 1)
  local flags, before = record.flags, record.error
  record.flags, record.error = flags - flags % 2 * tonumber(ARGV[12]), ARGV[10]
  local letter = struct.pack('<I6BI2', now, tonumber(ARGV[11]), #id) .. id .. pack_record(record)
  record.flags, record.error = flags, before
  redis.call('HSET', COUNTERS, 'dead', whole(number))
  redis.call('HSET', KEYS[5], whole(number), letter)
  redis.call('ZADD', KEYS[6], whole(number), whole(number))
end
if not due then
  redis.call('HDEL', KEYS[4], id)
  redis.call('HINCRBY', COUNTERS, 'timers', -1)
  return keep({2, 0})
end
if ARGV[8] == 'retry' then
  record.error = ARGV[10]
else
  record.planned, record.attempt, record.error = due, 0, ''
end
record.due = due
redis.call('HSET', KEYS[4], id, pack_record(record))
file(id, due, now)
return keep({1, due})
