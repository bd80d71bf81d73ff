-- The head of a value: version, state, final, owner, fence, created,
-- lease_until, lapsed_keep, settled_at, expires_at, attempt, and the lengths of
-- identity and steps. Instants and durations are in microseconds; 0 is never.
local HEAD = '>c1c1c1c16I8I8I8I8I8I8I4I4I4'
local HEAD_SIZE = 79
local FENCE_KEEP = {fence_keep} -- in milliseconds
local LONGEST_SHARED = {longest_shared} -- in bytes
local NONE = '\0\0\0\0\0\0\0\0'

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function text(n) return string.format('%d', n) end

-- parse reads the head of a value. A head that is cut off counts as one of unknown state.
local function parse(value)
  local h = {
    state = 'U', final = '0', owner = string.rep('\0', 16), fence = 0, created = 0, lease_until = 0,
    lapsed_keep = 0, settled_at = 0, expires_at = 0, attempt = 1, identity = 0, steps = 0,
  }
  if string.len(value) < HEAD_SIZE then return h end
  h.version, h.state, h.final, h.owner, h.fence, h.created, h.lease_until,
    h.lapsed_keep, h.settled_at, h.expires_at, h.attempt, h.identity, h.steps = struct.unpack(HEAD, value)
  return h
end

local function pack(h)
  return struct.pack(HEAD, '1', h.state, h.final, h.owner, h.fence, h.created, h.lease_until,
    h.lapsed_keep, h.settled_at, h.expires_at, h.attempt, h.identity, h.steps)
end

-- expires returns when a record expires, or 0.
local function expires(h)
  if h.state ~= 'P' then return h.expires_at end
  if h.lapsed_keep > 0 then return h.lease_until + h.lapsed_keep end
  return 0
end

-- gone reports whether only the fence of a value is left.
local function gone(h, now)
  if h.state == 'R' then return true end
  local at = expires(h)
  return at > 0 and at <= now
end

-- put writes a value, which Redis deletes after the given milliseconds, or never if they are ''.
local function put(key, value, deleted)
  if deleted == '' then
    redis.call('SET', key, value)
  else
    redis.call('SET', key, value, 'PX', deleted)
  end
end

-- store writes a value whose head determines when Redis deletes it.
local function store(key, h, tail, now)
  local at, deleted = expires(h), ''
  if at > 0 or h.state == 'R' then
    deleted = text(math.max(0, math.ceil((at - now) / 1000)) + FENCE_KEEP)
  end
  put(key, pack(h) .. tail, deleted)
end

-- is_open reports whether a command runs or its outcome is unknown. One in a state that no
-- script writes is.
local function is_open(h) return h.state ~= 'C' and h.state ~= 'F' and h.state ~= 'R' end

-- due returns since when an open command is unresolved, or from when on it will be.
local function due(h)
  if h.state == 'P' then return h.lease_until end
  return h.settled_at
end

-- release removes everything of a record but its fence.
local function release(key, index, h, now)
  redis.call('XDEL', index, text(h.created))
  h.state, h.final, h.owner = 'R', '0', string.rep('\0', 16)
  h.lease_until, h.lapsed_keep, h.settled_at, h.expires_at = 0, 0, 0, 0
  h.identity, h.steps = 0, 0
  store(key, h, '', now)
end

-- known returns an error if the server has no index: it has lost everything, or belongs to
-- another cluster.
local function known(index)
  if redis.call('EXISTS', index) == 0 then return redis.error_reply('FORGOTTEN') end
end

-- missing is what a script returns if it finds no value: the record may have expired
-- long ago, or the server does not have the store.
local function missing(index) return known(index) or 0 end

-- each calls a function for each item of a batch, with how many items come before it and
-- where its KEYS and ARGV begin, and returns what the calls return. One that fails
-- does not fail the others.
local function each(keys, args, call)
  local replies = {}
  for n = 0, #KEYS / keys - 1 do
    local ok, reply = pcall(call, n, n * keys + 1, n * args + 1)
    if not ok and type(reply) ~= 'table' then reply = redis.error_reply(reply) end
    replies[n + 1] = reply
  end
  return replies
end
