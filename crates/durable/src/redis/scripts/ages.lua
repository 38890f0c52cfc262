-- Reads the times at which dead letters were given up, until there are enough bytes. Changes nothing.
--
-- ARGV[6] enough bytes of letters, ARGV[7…] their numbers
-- returns {time, …} of the first letters, with -1 for one that does not exist or has no time

local heavy, found, length = tonumber(ARGV[6]), {}, 0
for place = 7, #ARGV do
  local letter = redis.call('HGET', ARGV[1] .. 'letters', ARGV[place]) or ''
  found[#found + 1] = #letter < 6 and -1 or struct.unpack('<I6', letter)
  length = length + #letter
  if length >= heavy then break end
end
return found
