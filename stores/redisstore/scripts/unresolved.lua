-- KEYS: open, records. ARGV: the names of the records.
-- Returns for each record for how many microseconds it has been unresolved, or -1 if its
-- name has left the set because it has expired, or -2 if its lease has been renewed.
local now = clock()
local since = {}
for i, name in ipairs(ARGV) do
  since[i] = -2
  local head = redis.call('GETRANGE', KEYS[i + 1], 0, HEAD_SIZE - 1)
  local h = parse(head)
  if head == '' or gone(h, now) or h.state ~= 'P' and h.state ~= 'U' then
    redis.call('ZREM', KEYS[1], name)
    since[i] = -1
  elseif h.state == 'U' then
    since[i] = math.max(0, now - h.settled_at)
  elseif h.lease_until <= now then
    since[i] = now - h.lease_until
  end
end
return since
