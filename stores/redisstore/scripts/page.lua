-- KEYS: index. ARGV: where to begin, how many to return at most.
-- Returns entries of the index, newest first.
local entries = redis.call('XREVRANGE', KEYS[1], ARGV[1], '-', 'COUNT', ARGV[2])
if #entries == 0 then return known(KEYS[1]) or entries end
return entries
