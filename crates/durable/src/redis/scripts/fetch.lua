-- Reads the records of timers until there are enough bytes. Changes nothing.
--
-- ARGV[6] enough bytes
-- ARGV[7…] the timers, each with its bucket and id
-- returns {{record, own, later}, …} of the first timers, with their long payloads or '', and '' for a
--   record that does not exist

local heavy, found, length = tonumber(ARGV[6]), {}, 0
for place = 7, #ARGV, 2 do
  local bucket, id = ARGV[1] .. 'b:' .. ARGV[place], ARGV[place + 1]
  local record = redis.call('HGET', bucket, id) or ''
  local own, later = long_payloads(bucket, id, record)
  found[#found + 1] = {record, own, later}
  length = length + #record + #own + #later
  if length >= heavy then break end
end
return found
