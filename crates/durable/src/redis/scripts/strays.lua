-- Finds keys of the index without a record, or with a record that is due at another time.
--
-- ARGV[6] 'mend' to remove such keys, or ''
-- ARGV[7…] the keys, each with its bucket, id and due time
-- returns {1 or 0, …}, a number for each key; also 0 if the index no longer has it

local strays = {}
for place = 7, #ARGV, 3 do
  local bucket, id, due = ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2])
  local number, stray = slice(due), false
  local score = call('ZSCORE', named(number), id)
  if score and tonumber(score) == due then
    local record = call('HGET', PREFIX .. 'b:' .. bucket, id)
    local _, at = nil, nil
    if record then _, at = head(record) end
    -- An unreadable record keeps its key.
    stray = not record or at and at ~= due
  end
  if stray and ARGV[6] == 'mend' then
    call('ZREM', named(number), id)
    if redis.pcall('EXISTS', named(number)) == 0 then call('ZREM', SLICES, number) end
  end
  strays[#strays + 1] = stray and 1 or 0
end
return strays
