-- The heartbeat of a worker. Assigns its partitions.
--
-- KEYS[1] the workers by the time of their last heartbeat, KEYS[2] partition → its worker, KEYS[3]
--   the description of the store
-- ARGV[2] the time, or '' for the server's
-- ARGV[6] the worker, ARGV[7] the number of partitions
-- returns {now, {partition, …}, {layout, partitions, number, '1' if the store is paused}, the number of
--   workers}; a missing field of the description is nil
--
-- After a while without a heartbeat a worker counts as dead, and its partitions are free. Only the
-- calling worker takes partitions. It takes free ones until it has its share rounded up, and then
-- from workers with more than the share rounded down, until it has that many. No worker gives
-- partitions away, so each partition always has an owner.

local GONE = 5000       -- the time without a heartbeat until a worker counts as dead, in ms

local me, now, count = ARGV[6], present(), tonumber(ARGV[7])
local heard = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
local owners = {}
local found = redis.call('HGETALL', KEYS[2])
for place = 1, #found, 2 do owners[tonumber(found[place])] = found[place + 1] end

-- A full memory rejects this write, but none after a removal, and it is the workers that empty the
-- memory.
if type(redis.pcall('ZADD', KEYS[1], whole(now), me)) == 'table' then
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], whole(now), me)
end
local has, workers = {[me] = 0}, 1
for place = 1, #heard, 2 do
  local worker, last = heard[place], tonumber(heard[place + 1])
  if worker ~= me then
    if last < now - GONE then
      redis.call('ZREM', KEYS[1], worker)
    else
      -- The clock was set back. This worker has from now on as much time as the others.
      if last > now then redis.call('ZADD', KEYS[1], whole(now), worker) end
      has[worker], workers = 0, workers + 1
    end
  end
end

for partition = 0, count - 1 do
  local owner = owners[partition]
  if owner and has[owner] then has[owner] = has[owner] + 1 else owners[partition] = nil end
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
  local owner = owners[partition]
  if has[me] < least and owner and owner ~= me and has[owner] > least then
    has[owner] = has[owner] - 1
    take(partition)
  end
end
local mine = {}
for partition = 0, count - 1 do
  if owners[partition] == me then mine[#mine + 1] = partition end
end
local described = redis.call('HMGET', KEYS[3], 'layout', 'partitions', 'number', 'paused')
return {now, mine, described, workers}
