-- KEYS of each settlement: record, index, open. ARGV of each settlement: owner and fence as in
-- a head, beginning of the new head, keep, when Redis deletes the key in milliseconds or
-- '', outcome, channel, name.
-- Returns for each settlement 1, or 0 unless the hold is the record's.
local now = clock()
return each(3, 7, function(_, k, a)
  local value = redis.call('GET', KEYS[k])
  if not value then return missing(KEYS[k + 1]) end
  if string.sub(value, 4, 27) ~= ARGV[a] then return 0 end
  if string.sub(value, 2, 2) ~= 'P' or string.sub(value, 44, 51) ~= NONE then
    local h = parse(value)
    if gone(h, now) then return 0 end
    if h.state ~= 'P' then return 1 end
  end
  if string.sub(ARGV[a + 1], 2, 2) == 'R' then
    release(KEYS[k], KEYS[k + 1], parse(value), now)
  else
    local identity, steps = struct.unpack('>I4I4', value, 72)
    local expires = ARGV[a + 3] == '' and 0 or now + ARGV[a + 2]
    value = ARGV[a + 1] .. string.sub(value, 4, 35) .. struct.pack('>I8I8I8I8', 0, 0, now, expires)
      .. string.sub(value, 68, HEAD_SIZE + identity + steps) .. ARGV[a + 4]
    put(KEYS[k], value, ARGV[a + 3])
  end
  if string.sub(ARGV[a + 1], 2, 2) == 'U' then redis.call('ZADD', KEYS[k + 2], text(now), ARGV[a + 6]) end
  redis.call('SPUBLISH', ARGV[a + 5], ARGV[a + 6])
  return 1
end)
