-- KEYS: open, index, records. ARGV: the names of the records.
-- Returns for each record for how many microseconds it has been unresolved, or -1 if its
-- name has left the set because the command is no longer open, or -2 if its lease has been
-- renewed.
local unknown = known(KEYS[2])
if unknown then return unknown end
local now = clock()
local since = {}
for i, name in ipairs(ARGV) do
  local head = redis.call('GETRANGE', KEYS[i + 2], 0, HEAD_SIZE - 1)
  local h = parse(head)
  if head == '' or gone(h, now) or not is_open(h) then
    redis.call('ZREM', KEYS[1], name)
    since[i] = -1
  elseif h.state == 'P' and h.lease_until > now then
    redis.call('ZADD', KEYS[1], text(h.lease_until), name)
    since[i] = -2
  else
    since[i] = math.max(0, now - due(h))
  end
end
return since
