-- Executes a batch of operations in order, each atomic by itself.
--
-- ARGV[6] 'settle' if a copy of this batch or of an earlier one may still arrive, or ''
-- ARGV[7…] the operations, each with its name and arguments, as words that are preceded by their
--   length in four bytes, because parsing many arguments costs Redis more than splitting one costs
--   Lua
-- returns {time, result, result, …}, with a text in place of the result of an operation that failed
--
-- A process has one batch per partition in flight at a time, with increasing numbers. The last
-- reply to a batch that changed something, or had to settle, is kept. A batch that is sent again
-- because its reply was lost gets the same reply, and one that was overtaken has no effect.

local FORGET = 3600000  -- the minimum time for which a reply is kept, in milliseconds
local AT_A_GO = 10      -- the number of old replies that a new process checks
local function taking(words, operation) return {operation, '<' .. string.rep('I4c0', words)} end
local OPERATIONS = {
  insert = taking(8, insert), cancel = taking(4, cancel), reset = taking(3, reset),
  lease = taking(4, lease), renew = taking(3, renew), finish = taking(8, finish),
  finish_bounded = taking(10, finish),
  redrive = taking(5, redrive),
  delete_letter = taking(1, delete_letter), discard = taking(3, discard), restore = taking(6, restore),
  run = taking(2, run), update = taking(8, update), pause = taking(4, pause), hold = taking(1, hold),
  copy_timer = taking(5, copy_timer), copy_letter = taking(2, copy_letter),
  -- An operation whose caller has timed out.
  nothing = taking(0, function() return 0 end),
}
local FIRST = 7         -- the first operation
local process, number = ARGV[3], tonumber(ARGV[4])

-- Returns the function of an operation, and its arguments.
local function parted(encoded)
  local name, after = read('<I4c0', encoded)
  local operation = OPERATIONS[name]
  return operation[1], read(operation[2], encoded, after)
end

local function run(operation, ...) return operation, pcall(operation, ...) end

-- Returns true if a lease was granted.
local function is_lease(operation, answer)
  return operation == lease and type(answer) == 'table' and answer[1] == 2
end

-- Returns the reply that this batch has had already.
local function again(answers)
  for count = 2, #answers do
    local operation, id, bucket = parted(ARGV[FIRST + count - 2])
    if is_lease(operation, answers[count]) then
      answers[count] = leased_already(answers[count], id, bucket)
    end
  end
  return answers
end

local last = call('HGET', ANSWERS, process)
if last then
  local was = read('<I6', last)
  if was == number then return again(cmsgpack.unpack(sub(last, 13))) end
  if was > number then return redis.error_reply('TBLATE a batch was overtaken') end
end

local answers, kept = {now}, {now}
for place = FIRST, #ARGV do
  local operation, done, answer = run(parted(ARGV[place]))
  if not done then answer = failed(answer) end
  local count = place - FIRST + 2
  answers[count], kept[count] = answer, answer
  -- A resend reads the record again, so it is not kept.
  if is_lease(operation, answer) then kept[count] = {unpack(answer, 1, 5)} end
end
if not changed and ARGV[6] == '' then
  -- A write without an effect, because a master that has become a replica must not reply from its
  -- own data.
  call('PERSIST', ANSWERS)
  return answers
end
-- The first write of a batch that has changed nothing. It removes, because a full memory rejects no
-- write after a removal.
if not changed then call('HDEL', ANSWERS, '') end

if timers ~= 0 then call('HINCRBY', COUNTERS, 'timers', timers) end
if leases ~= 0 then call('HINCRBY', COUNTERS, 'leased', leases) end
if fence then call('HSET', COUNTERS, 'fence', whole(fence)) end
if retry > 0 and retry > tonumber(call('HGET', COUNTERS, 'retried') or 0) then
  call('HSET', COUNTERS, 'retried', whole(retry))
end

local index = {}
for number_ in pairs(added) do
  index[#index + 1], index[#index + 2] = number_, number_
end
if #index > 0 then call('ZADD', SLICES, unpack(index)) end

-- An empty slice no longer exists, and is removed from the index.
local numbers, some = {}, {}
for number_, name in pairs(left) do
  numbers[#numbers + 1], some[#some + 1] = number_, name
end
if #some > 0 and redis.pcall('EXISTS', unpack(some)) ~= #some then
  for at, name in ipairs(some) do
    -- Fails if it was the last slice of the moving slot here. It may stay in the index.
    if redis.pcall('EXISTS', name) == 0 then redis.pcall('ZREM', SLICES, numbers[at]) end
  end
end

call('HSET', ANSWERS, process, pack('<I6I6', number, now) .. cmsgpack.pack(kept))
if not last then
  -- More replies are removed at a time than are added. An age is checked once an hour, and not
  -- written with each batch.
  call('ZADD', AGES, whole(now), process)
  local before = whole(now - FORGET)
  for _, old in ipairs(call('ZRANGEBYSCORE', AGES, '-inf', '(' .. before, 'LIMIT', 0, AT_A_GO)) do
    local answer, then_ = call('HGET', ANSWERS, old), 0
    if answer then _, then_ = read('<I6I6', answer) end
    if then_ < now - FORGET then
      call('HDEL', ANSWERS, old)
      call('ZREM', AGES, old)
    else
      call('ZADD', AGES, whole(then_), old)
    end
  end
end
return answers
