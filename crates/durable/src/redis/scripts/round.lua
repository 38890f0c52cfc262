-- Rounds of the assignment of partitions, for the scripts of workers.

-- Begins a round, so that each worker looks at its assignment again. Rounds that a failover has lost
-- have other names.
local function new_round(description, now, worker)
  local round = whole(now) .. ' ' .. worker
  redis.call('HSET', description, 'round', round)
  return round
end
