-- KEYS: record, index, open. ARGV: head as it was seen, state, final, owner, lease, lapsed_keep, keep,
-- attempt, length of identity, length of steps, tail, channel, name.
-- Replaces a record that has not changed since it was read, and returns its new
-- fence, or 0 if it has changed or expired.
local now = clock()
local value = redis.call('GET', KEYS[1])
if not value then return missing(KEYS[2]) end
if string.sub(value, 1, HEAD_SIZE) ~= ARGV[1] then return 0 end
local h = parse(value)
if gone(h, now) then return 0 end
h.fence = math.max(now, h.fence) + 1
if ARGV[2] == 'R' then
  release(KEYS[1], KEYS[2], h, now)
else
  local keep = tonumber(ARGV[7])
  h.state, h.final, h.owner = ARGV[2], ARGV[3], ARGV[4]
  h.attempt, h.identity, h.steps = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  if h.state == 'P' then
    h.lease_until, h.lapsed_keep, h.settled_at, h.expires_at = now + ARGV[5], tonumber(ARGV[6]), 0, 0
  else
    h.lease_until, h.settled_at, h.expires_at = 0, now, keep > 0 and now + keep or 0
  end
  store(KEYS[1], h, ARGV[11], now)
end
if is_open(h) then redis.call('ZADD', KEYS[3], text(due(h)), ARGV[13]) end
if h.state ~= 'P' then redis.call('SPUBLISH', ARGV[12], ARGV[13]) end
return h.fence
