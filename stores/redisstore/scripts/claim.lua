-- KEYS of each claim: record, index. ARGV of each claim: beginning of the head, lease,
-- rest of the value (from lapsed_keep on), name, when Redis deletes the key in
-- milliseconds or ''.
-- Creates the record of a new command. Returns for each claim the record's fence and
-- creation time, or the existing value and the current time, or 0 if that value is so long
-- that its reader must read it alone.
local now = clock()
return each(2, 5, function(n, k, a)
  local fence = now + 1
  if redis.call('EXISTS', KEYS[k]) == 1 then
    -- A long value costs the server more to read than everything else here.
    local value = redis.call('GETRANGE', KEYS[k], '0', '{longest_shared}')
    local old = parse(value)
    if not gone(old, now) then
      if string.len(value) > LONGEST_SHARED then return 0 end
      return {value, now}
    end
    if old.state ~= 'R' then redis.call('XDEL', KEYS[k + 1], text(old.created)) end
    if old.fence >= fence then fence = old.fence + 1 end
  end
  -- Each entry is later than the one before it, although the clock may not be.
  local created = now + n
  local made = redis.pcall('XADD', KEYS[k + 1], 'NOMKSTREAM', text(created), 'n', ARGV[a + 3])
  if type(made) == 'table' and string.find(made.err, 'equal or smaller', 1, true) then
    local about = redis.call('XINFO', 'STREAM', KEYS[k + 1])
    for i = 1, #about, 2 do
      if about[i] == 'last-generated-id' then created = string.match(about[i + 1], '%d+') + 1 end
    end
    made = redis.call('XADD', KEYS[k + 1], text(created), 'n', ARGV[a + 3])
  end
  if type(made) == 'table' then return made end
  if not made then return redis.error_reply('FORGOTTEN') end
  put(KEYS[k], ARGV[a] .. struct.pack('>I8I8I8', fence, created, now + ARGV[a + 1]) .. ARGV[a + 2], ARGV[a + 4])
  return {fence, created}
end)
