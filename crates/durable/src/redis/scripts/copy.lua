-- Nothing, or any state → the state that the timer has in another store (D25).
--
-- id, bucket
-- record: the whole record
-- own, later: its payload and that of the next delivery if they are long, or ''
-- returns 1

local function copy_timer(id, bucket, record, own, later)
  bucket = PREFIX .. 'b:' .. bucket
  local found = call('HGET', bucket, id)
  local flags, due, _, leased, attempt = head(record)
  if not flags then return CORRUPT end
  if attempt > 0 then retry = math.max(retry, read('<I6', record, 3)) end
  local was, had, lost, got = 0, nil, NONE, NONE
  if found then
    local before, token
    had, before, _, token = head(found)
    if not had then return CORRUPT end
    lost, got = relabelled(found, record)
    move(id, before, due)
    was = token
  else
    call('EXISTS', named(slice(due)))
    lost, got = relabelled(nil, record)
    put(slice(due), due, id)
    timers = timers + 1
  end
  store(bucket, id, had, record, own, later)
  relabel(id, lost, got)
  count_lease(was, leased)
  notify_if_near(id, due)
  return 1
end

-- Adds a dead letter unless it exists already (D26).
--
-- number: the first number that it may have
-- letter: the whole letter
-- returns 1 if it was added, else 0

local function copy_letter(number, letter)
  number = tonumber(number)
  local last = tonumber(call('HGET', COUNTERS, 'dead') or 0)
  call('EXISTS', DEAD, NAMES)
  local found = call('HGET', LETTERS, whole(number))
  while found do
    if found == letter then return 0 end
    number = number + 1
    found = call('HGET', LETTERS, whole(number))
  end
  call('HSET', COUNTERS, 'dead', whole(math.max(last, number)))
  put_letter(number, letter, stored_names(number, letter))
  changed = true
  return 1
end
