-- KEYS: record, index. Returns the value and the time, or 0 if there is none.
local value = redis.call('GET', KEYS[1])
if not value then return missing(KEYS[2]) end
return {value, clock()}
