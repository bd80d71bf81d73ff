-- KEYS: open, index. ARGV: how many to pass over, how many to return at most.
-- Returns names of records that are in the set and whose time has come, oldest first.
return known(KEYS[2]) or redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(clock()), 'LIMIT', ARGV[1], ARGV[2])
