-- KEYS: record, index. ARGV: owner and fence as in a head, beginning of the new head, keep,
-- when Redis deletes the key in milliseconds or '', outcome, channel, name.
-- Returns 1, or 0 unless the hold is the record's.
local value = redis.call('GET', KEYS[1])
if not value then return missing(KEYS[2]) end
if string.sub(value, 4, 27) ~= ARGV[1] then return 0 end
local now = clock()
if string.sub(value, 2, 2) ~= 'P' or string.sub(value, 44, 51) ~= NONE then
  local h = parse(value)
  if gone(h, now) then return 0 end
  if h.state ~= 'P' then return 1 end
end
if string.sub(ARGV[2], 2, 2) == 'R' then
  release(KEYS[1], KEYS[2], parse(value), now)
else
  local identity, steps = struct.unpack('>I4I4', value, 72)
  local expires = ARGV[4] == '' and 0 or now + ARGV[3]
  value = ARGV[2] .. string.sub(value, 4, 35) .. struct.pack('>I8I8I8I8', 0, 0, now, expires)
    .. string.sub(value, 68, HEAD_SIZE + identity + steps) .. ARGV[5]
  put(KEYS[1], value, ARGV[4])
end
redis.call('SPUBLISH', ARGV[6], ARGV[7])
return 1
