-- A timer whose record cannot be read → nothing.
--
-- id, bucket
-- found: the record, as it was read
-- answers 1 if it was there as it was found, else 0

local function discard(id, bucket, found)
  bucket = PREFIX .. 'b:' .. bucket
  if call('HGET', bucket, id) ~= found then return 0 end
  -- Its due time is not known any more.
  for _, number in ipairs(call('ZRANGE', SLICES, 0, -1)) do
    if call('ZSCORE', named(number), id) then
      take(number, id)
      break
    end
  end
  call('HDEL', bucket, id)
  timers = timers - 1
  changed = true
  return 1
end
