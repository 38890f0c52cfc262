-- The heartbeat of a worker. Assigns its partitions.
--
-- KEYS[1] the workers by the time of their last heartbeat, KEYS[2] partition → its worker, KEYS[3]
--   the description of the store
-- ARGV[2] the time, or '' for the server's
-- ARGV[6] the worker, ARGV[7] the number of partitions, ARGV[8] the round of the worker's last
--   assignment, or '', ARGV[9] the time of its last heartbeat that got a reply, or ''
-- returns {now, {layout, partitions, number, '1' if the store is paused, the round}, {partition, …},
--   the number of workers}; a missing field of the description is nil, and the last two are nil if
--   the worker's assignment is still the same
--
-- After a while without a heartbeat a worker counts as dead, and its partitions are free. Only the
-- calling worker takes partitions. It takes free ones until it has its share rounded up, and then
-- from workers with more than the share rounded down, until it has that many. No worker gives
-- partitions away, so each partition always has an owner.
--
-- A new round begins when partitions have become free. If a worker takes partitions from another,
-- half a millisecond is added to the time of the other. A heartbeat is usual if its worker knows the
-- round and its own time in the list. The times differ after a reply was lost, and after the server
-- has lost writes. The cost of a usual heartbeat does not depend on the number of partitions.

local GONE = 5000       -- the time without a heartbeat until a worker counts as dead, in ms

local me, now, count, round, last = ARGV[6], present(), tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9])
local described = redis.call('HMGET', KEYS[3], 'layout', 'partitions', 'number', 'paused', 'round')
local mine = tonumber(redis.call('ZSCORE', KEYS[1], me))
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local usual = described[5] == round and mine and mine == last and mine <= now
  and tonumber(oldest[2]) >= now - GONE
local heard, found = {}, {}
if not usual then
  heard, found = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[2])
end

-- A full memory rejects this write, but none after a removal, and it is the workers that empty the
-- memory.
if type(redis.pcall('ZADD', KEYS[1], whole(now), me)) == 'table' then
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], whole(now), me)
end
if usual then return {now, described, false, false} end

local has, heard_at, workers, freed = {[me] = 0}, {}, 1, false
for place = 1, #heard, 2 do
  local worker, last = heard[place], tonumber(heard[place + 1])
  if worker ~= me then
    if last < now - GONE then
      redis.call('ZREM', KEYS[1], worker)
      freed = true
    else
      -- The clock was set back. This worker has from now on as much time as the others.
      if last > now then
        last = now + last % 1
        redis.call('ZADD', KEYS[1], last, worker)
      end
      has[worker], heard_at[worker], workers = 0, last, workers + 1
    end
  end
end

local owners = {}
for place = 1, #found, 2 do
  local owner = found[place + 1]
  if has[owner] then
    owners[tonumber(found[place])], has[owner] = owner, has[owner] + 1
  end
end
local function take(partition)
  redis.call('HSET', KEYS[2], partition, me)
  owners[partition], has[me] = me, has[me] + 1
end
local least, most = math.floor(count / workers), math.ceil(count / workers)
for partition = 0, count - 1 do
  if not owners[partition] and has[me] < most then take(partition) end
end
for partition = 0, count - 1 do
  if has[me] >= least then break end
  local owner = owners[partition]
  if owner ~= me and has[owner] and has[owner] > least then
    has[owner] = has[owner] - 1
    take(partition)
    redis.call('ZADD', KEYS[1], string.format('%d.5', heard_at[owner]), owner)
  end
end
local assigned = {}
for partition = 0, count - 1 do
  if owners[partition] == me then assigned[#assigned + 1] = partition end
end
-- A server that is empty stays so until it has a description again.
if described[1] and (freed or not described[5]) then described[5] = new_round(KEYS[3], now, me) end
return {now, described, assigned, workers}
