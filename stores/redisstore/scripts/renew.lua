-- KEYS: record, index, open. ARGV: owner and fence as in a head, lease, steps, name.
-- Returns 1, or 0 unless the hold is the record's and the record is processing.
local value = redis.call('GET', KEYS[1])
if not value then return missing(KEYS[2]) end
if string.sub(value, 4, 27) ~= ARGV[1] then return 0 end
local now = clock()
local h = parse(value)
if h.state ~= 'P' or gone(h, now) then return 0 end
local steps = HEAD_SIZE + h.identity + h.steps
h.lease_until, h.steps = now + ARGV[2], h.steps + string.len(ARGV[3])
store(KEYS[1], h, string.sub(value, HEAD_SIZE + 1, steps) .. ARGV[3] .. string.sub(value, steps + 1), now)
redis.call('ZADD', KEYS[3], 'XX', text(due(h)), ARGV[4])
return 1
