-- Dead letter → nothing (D22).
--
-- number
-- returns 1 if it existed, else 0

local function delete_letter(number)
  call('EXISTS', DEAD, NAMES)
  local letter = call('HGET', LETTERS, number)
  if not letter then return 0 end
  remove_letter(number, stored_names(number, letter))
  changed = true
  return 1
end
