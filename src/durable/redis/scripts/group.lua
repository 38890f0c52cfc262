-- A group of operations, in their order, each whole or not at all for itself.
--
-- ARGV[6] 'settle', if a copy of this group or of one before it may still come, or ''
-- ARGV[7] and so on: the operations, each by its name and what it takes
-- answers {time, answer, answer, …}, as a text where an operation has failed
--
-- A process has one group of a partition on its way at a time, of increasing numbers, and the
-- answer to the last that changed anything, or was to settle, is kept. So a group that is asked
-- again, its answer having been lost, is answered as before; and one that was overtaken does nothing
-- any more.

local FORGET = 3600000  -- how long the answer to a process is kept at least, in milliseconds
local VERBS = {
  schedule = {schedule, 6}, cancel = {cancel, 2}, reschedule = {reschedule, 3}, lease = {lease, 2},
  finish = {finish, 8}, redrive = {redrive, 4}, bury = {bury, 1},
  -- What nobody waits for any more.
  nothing = {function() return 0 end, 0},
}
local FIRST = 7         -- where the operations begin
local process, number = ARGV[3], tonumber(ARGV[4])

-- The answer to this group, which it has had already.
local function again(answers)
  local place = FIRST
  for count = 2, #answers do
    local verb, answer = ARGV[place], answers[count]
    if verb == 'lease' and type(answer) == 'table' and answer[1] == 2 then
      answers[count] = leased_already(answer, ARGV[place + 1], ARGV[place + 2])
    end
    place = place + 1 + VERBS[verb][2]
  end
  return answers
end

local last = call('HGET', ANSWERS, process)
if last then
  local was = read('<I6', last)
  if was == number then return again(cmsgpack.unpack(sub(last, 13))) end
  if was > number then return redis.error_reply('TBLATE a group was overtaken') end
end

local answers, kept = {now}, {now}
local place, count = FIRST, 1
while ARGV[place] do
  local verb = VERBS[ARGV[place]]
  local done, answer = pcall(verb[1], unpack(ARGV, place + 1, place + verb[2]))
  if not done then answer = failed(answer) end
  count = count + 1
  answers[count], kept[count] = answer, answer
  -- A record is found again where it lies.
  if verb[1] == lease and type(answer) == 'table' and answer[1] == 2 then
    kept[count] = {2, answer[2], answer[3]}
  end
  place = place + 1 + verb[2]
end
if not changed and ARGV[6] == '' then return answers end

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
  local all = call('HGETALL', ANSWERS)
  for at = 1, #all, 2 do
    local _, then_ = read('<I6I6', all[at + 1])
    if then_ < now - FORGET then call('HDEL', ANSWERS, all[at]) end
  end
end
return answers
