-- KEYS: open, counted, index, records. ARGV: the last entry of the index that is read, the names of
-- the records.
-- Adds the open commands among the records to the set.
local unknown = known(KEYS[3])
if unknown then return unknown end
local now = clock()
for i = 2, #ARGV do
  local head = redis.call('GETRANGE', KEYS[i + 2], 0, HEAD_SIZE - 1)
  local h = head ~= '' and parse(head)
  if h and is_open(h) and not gone(h, now) then redis.call('ZADD', KEYS[1], text(due(h)), ARGV[i]) end
end
redis.call('SET', KEYS[2], ARGV[1])
return 1
