-- KEYS: index, records. Returns how many of the records exist.
return known(KEYS[1]) or redis.call('EXISTS', unpack(KEYS, 2))
