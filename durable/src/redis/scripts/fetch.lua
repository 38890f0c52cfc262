-- Reads the records of timers until there are enough bytes. Changes nothing.
--
-- ARGV[6] enough bytes
-- ARGV[7…] the timers, each with its bucket and id
-- returns {record, …} of the first timers, with '' for one that does not exist

local heavy, found, length = tonumber(ARGV[6]), {}, 0
for place = 7, #ARGV, 2 do
  local record = redis.call('HGET', ARGV[1] .. 'b:' .. ARGV[place], ARGV[place + 1]) or ''
  found[#found + 1] = record
  length = length + #record
  if length >= heavy then break end
end
return found
