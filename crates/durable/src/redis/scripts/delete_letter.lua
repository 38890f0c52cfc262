-- Dead letter → nothing (D22).
--
-- number
-- returns 1 if it existed, else 0

local function delete_letter(number)
  local letters, dead = PREFIX .. 'letters', PREFIX .. 'dead'
  call('EXISTS', dead)
  if call('HDEL', letters, number) == 0 then return 0 end
  call('ZREM', dead, number)
  changed = true
  return 1
end
