-- A batch of operations, in their order, each whole or not at all for itself.
--
-- ARGV[6] 'settle', if a copy of this batch or of one before it may still come, or ''
-- ARGV[7] and so on: the operations, each its name and what it takes, in words which each have their
-- length before them, of four bytes: Redis is slower to make many arguments than Lua is to part one
-- answers {time, answer, answer, …}, as a text where an operation has failed
--
-- A process has one batch of a partition on its way at a time, of increasing numbers, and the
-- answer to the last that changed anything, or was to settle, is kept. So a batch that is asked
-- again, its answer having been lost, is answered as before; and one that was overtaken does nothing
-- any more.

local FORGET = 3600000  -- how long the answer to a process is kept at least, in milliseconds
local AT_A_GO = 10      -- how many old answers are looked at when a new process comes
local function taking(words, operation) return {operation, '<' .. string.rep('I4c0', words)} end
local OPERATIONS = {
  insert = taking(6, insert), cancel = taking(2, cancel), reset = taking(3, reset),
  lease = taking(3, lease), finish = taking(8, finish), redrive = taking(4, redrive),
  delete_letter = taking(1, delete_letter), discard = taking(3, discard), mark = taking(6, mark),
  -- An operation whose caller does not wait any more.
  nothing = taking(0, function() return 0 end),
}
local FIRST = 7         -- where the operations begin
local process, number = ARGV[3], tonumber(ARGV[4])

-- Returns the function of an operation, and its arguments.
local function parted(encoded)
  local name, after = read('<I4c0', encoded)
  local operation = OPERATIONS[name]
  return operation[1], read(operation[2], encoded, after)
end

local function run(operation, ...) return operation, pcall(operation, ...) end

-- Returns true if a lease was given.
local function is_lease(operation, answer)
  return operation == lease and type(answer) == 'table' and answer[1] == 2
end

-- The answer to this batch, which it has had already.
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
  -- A record is found again where it lies.
  if is_lease(operation, answer) then kept[count] = {unpack(answer, 1, 5)} end
end
if not changed and ARGV[6] == '' then
  -- A write of nothing: a master that has become a replica answers no questions by what it knows.
  call('PERSIST', ANSWERS)
  return answers
end
-- As the first write, of a batch that has changed nothing: a full memory refuses none that follows.
if not changed then call('HDEL', ANSWERS, '') end

if timers ~= 0 then call('HINCRBY', COUNTERS, 'timers', timers) end
if fence then call('HSET', COUNTERS, 'fence', whole(fence)) end

local index = {}
for number_ in pairs(added) do
  index[#index + 1], index[#index + 2] = number_, number_
end
if #index > 0 then call('ZADD', SLICES, unpack(index)) end

-- A slice that is empty has gone, and leaves the index.
local numbers, some = {}, {}
for number_, name in pairs(left) do
  numbers[#numbers + 1], some[#some + 1] = number_, name
end
if #some > 0 and redis.pcall('EXISTS', unpack(some)) ~= #some then
  for at, name in ipairs(some) do
    -- An error if it was the last that the moving slot had here: it may stay in the index.
    if redis.pcall('EXISTS', name) == 0 then redis.pcall('ZREM', SLICES, numbers[at]) end
  end
end

call('HSET', ANSWERS, process, pack('<I6I6', number, now) .. cmsgpack.pack(kept))
if not last then
  -- More go at a time than come. An age is looked at once an hour, and not written with each batch.
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
