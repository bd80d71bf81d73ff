-- KEYS: record, index, swept. ARGV: beginning of the head, lease, rest of the value
-- (from lapsed_keep on), name, when Redis deletes the key in milliseconds or ''.
-- Makes the record of a new command and returns its fence and when it was created,
-- or returns the value that is there and the time.
local now = clock()
local value = redis.call('GET', KEYS[1])
local fence = now + 1
if value then
  local old = parse(value)
  if not gone(old, now) then return {value, now} end
  if old.state ~= 'R' then redis.call('XDEL', KEYS[2], entry(old.created)) end
  if old.fence >= fence then fence = old.fence + 1 end
end
-- Each entry is later than the one before it, although the clock may not be.
local created = now
local made = redis.pcall('XADD', KEYS[2], 'NOMKSTREAM', entry(created), 'n', ARGV[4])
if type(made) == 'table' and string.find(made.err, 'equal or smaller', 1, true) then
  local about = redis.call('XINFO', 'STREAM', KEYS[2])
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then created = string.match(about[i + 1], '%d+') + 1 end
  end
  made = redis.call('XADD', KEYS[2], entry(created), 'n', ARGV[4])
end
if type(made) == 'table' then return made end
if not made then return redis.error_reply('FORGOTTEN') end
value = ARGV[1] .. struct.pack('>I8I8I8', fence, created, now + ARGV[2]) .. ARGV[3]
put(KEYS[1], value, ARGV[5])
-- Now and then, rid the index of entries whose records Redis has deleted: twice as
-- many are looked at as are added.
if now % 32 == 0 then
  local from = redis.call('GET', KEYS[3])
  local entries = redis.call('XRANGE', KEYS[2], from and '(' .. from or '-', '+', 'COUNT', 64)
  local tag = string.sub(KEYS[1], 1, -string.len(ARGV[4]) - 1)
  local keys = {}
  for i, e in ipairs(entries) do keys[i] = tag .. e[2][2] end
  if redis.call('EXISTS', unpack(keys)) < #keys then
    for i, e in ipairs(entries) do
      if redis.call('EXISTS', keys[i]) == 0 then redis.call('XDEL', KEYS[2], e[1]) end
    end
  end
  if #entries < 64 then
    redis.call('DEL', KEYS[3])
  else
    redis.call('SET', KEYS[3], entries[#entries][1])
  end
end
return {fence, created}
