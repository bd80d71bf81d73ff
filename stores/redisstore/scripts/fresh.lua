-- KEYS: index, counted. ARGV: how many to return at most.
-- Returns the entries of the index, oldest first, that have not been counted.
local counted = redis.call('GET', KEYS[2])
return known(KEYS[1]) or redis.call('XRANGE', KEYS[1], counted and '(' .. counted or '-', '+', 'COUNT', ARGV[1])
