"""What the rate limiter does in Redis: Lua, each script one step that nothing comes between.

All keys of one Redis share one hash tag, so that one node of a cluster holds them:

    level RULE      hash: ``used``, how much of a minute's worth is missing, and when (``at``, µs)
    slots RULE      sorted set: requests under way, by the end of their lease (ms)
    sums ACCOUNT    hash: spent and held tokens and cost (``st``, ``sc``, ``ht``, ``hc``), and when
                    the ledger was asked what was spent before (``from``, ms)
    leases ACCOUNT  sorted set: what is held, as ``TOKENS COST ID``, by the end of its lease (ms)
    done ID         what was settled: it is not settled again, nor held any more
    room            nothing, ever: whether it could be written is what is asked

What a router holds is given back by itself when its lease ends, since a router that was killed
does not do it; while it runs, a router renews its leases. Time is that of Redis.

Every script has one argument, JSON. Numbers go back as texts: Lua would round them.

The first write of every script is one that a Redis that is full refuses, and so does the whole
script: what can be held there can be settled there, and where nothing can be settled, nothing is
held or refused.
"""

from __future__ import annotations

from typing import Final

from cache.stores.scripts import Script

__all__ = ["CHECK", "OPEN", "RENEW", "RESERVE", "SETTLE"]

_BEGIN: Final = """
local ask = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
local function whole(value) return string.format('%.0f', value) end
local function exact(value) return string.format('%.17g', value) end
local function level(key, most)
  local found = redis.call('HMGET', key, 'used', 'at')
  local used, at = tonumber(found[1] or '0'), tonumber(found[2] or '0')
  return math.max(0, used - math.max(0, now - at) * most / 60000000)
end
local function set_level(key, most, used)
  redis.call('HSET', key, 'used', exact(used), 'at', whole(now))
  redis.call('PEXPIRE', key, whole(math.ceil(used * 60000 / most) + 1000))
end
local function check_room(key) redis.call('SETRANGE', key, 0, '') end
local function parts(member)
  local tokens, cost = string.match(member, '^(%d+) (%d+) ')
  return tokens or '0', cost or '0'
end
local function give_back(sums, leases, member)
  if redis.call('ZREM', leases, member) == 1 then
    local tokens, cost = parts(member)
    if tokens ~= '0' then redis.call('HINCRBY', sums, 'ht', '-' .. tokens) end
    if cost ~= '0' then redis.call('HINCRBY', sums, 'hc', '-' .. cost) end
  end
end
"""

_SUMS: Final = """
local function read(sums, leases)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', whole(ms))) do
    give_back(sums, leases, member)
  end
  if redis.call('EXISTS', leases) == 0 then redis.call('HSET', sums, 'ht', '0', 'hc', '0') end
  local found = redis.call('HMGET', sums, 'st', 'sc', 'ht', 'hc')
  for place = 1, 4 do found[place] = found[place] or '0' end
  return found
end
local function missing(first, count)
  local none = {}
  for place = 1, count do
    if redis.call('EXISTS', KEYS[first + 2 * place - 1]) == 0 then none[#none + 1] = place end
  end
  return none
end
"""

RESERVE: Final = Script(
    _BEGIN,
    _SUMS,
    """
check_room(KEYS[1])
if redis.call('EXISTS', KEYS[1]) == 1 then return {'no'} end
local levels, slots = #ask.levels, #ask.slots
local first = 1 + levels + slots
local none = missing(first, #ask.accounts)
if #none > 0 then return {'missing', unpack(none)} end
local fits, answer, used, all = true, {'no'}, {}, {}
for place, rule in ipairs(ask.levels) do
  used[place] = level(KEYS[1 + place], rule[2])
  if used[place] + rule[1] > rule[2] + ask.hair then fits = false end
  answer[#answer + 1] = exact(used[place])
end
for place, most in ipairs(ask.slots) do
  local key = KEYS[1 + levels + place]
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(ms))
  local count = redis.call('ZCARD', key)
  if count >= most then fits = false end
  answer[#answer + 1] = whole(count)
end
for place = 1, #ask.accounts do
  local found = read(KEYS[first + 2 * place - 1], KEYS[first + 2 * place])
  all[place] = found
  for _, sum in ipairs(found) do answer[#answer + 1] = sum end
end
for _, line in ipairs(ask.lines) do
  local found, unit, most, amount = all[line[1]], line[2], line[3], line[4]
  local spent, held = tonumber(found[unit]), tonumber(found[unit + 2])
  if amount < 0 then
    if spent >= most then fits = false end
  elseif amount > 0 and spent + held + amount > most then
    fits = false
  end
end
if not fits then return answer end
answer = {'yes'}
for place, rule in ipairs(ask.levels) do
  local after = math.max(0, used[place] + rule[1])
  set_level(KEYS[1 + place], rule[2], after)
  answer[#answer + 1] = exact(after)
end
for place = 1, slots do
  local key = KEYS[1 + levels + place]
  redis.call('ZADD', key, whole(ms + ask.lease), ask.id)
  redis.call('PEXPIRE', key, whole(2 * ask.lease))
  answer[#answer + 1] = whole(redis.call('ZCARD', key))
end
for place, ttl in ipairs(ask.accounts) do
  local sums, leases = KEYS[first + 2 * place - 1], KEYS[first + 2 * place]
  local tokens, cost = parts(ask.member)
  redis.call('ZADD', leases, whole(ms + ask.lease), ask.member)
  redis.call('HINCRBY', sums, 'ht', tokens)
  redis.call('HINCRBY', sums, 'hc', cost)
  redis.call('PEXPIRE', sums, whole(ttl))
  redis.call('PEXPIRE', leases, whole(ttl))
end
return answer
""",
)
"""Holds what one request may come to, all of it or nothing.

Keys: ``done``; levels; slots; sums and leases of each account. ``levels`` are pairs of what is
taken and the most, ``slots`` the most, ``accounts`` how long (ms) each is kept, ``lines`` budgets:
the account's place, 1 for tokens or 2 for money, the most, and the amount, -1 for one that is not
known. ``lease`` is in ms.

Returns ``missing`` and the places of accounts that are not counted yet; or ``no`` and how each
stands: what is missing from the levels, how many slots are taken, the sums; or ``yes`` and the
first two of these as they are now.
"""

SETTLE: Final = Script(
    _BEGIN,
    """
if not redis.call('SET', KEYS[1], '1', 'NX', 'PX', whole(ask.keep)) then return 0 end
local levels, slots = #ask.levels, ask.slots
for place, rule in ipairs(ask.levels) do
  local key = KEYS[1 + place]
  set_level(key, rule[2], math.max(0, level(key, rule[2]) + rule[1]))
end
for place = 1, slots do redis.call('ZREM', KEYS[1 + levels + place], ask.id) end
for place = 1 + levels + slots + 1, #KEYS, 2 do
  local sums, leases = KEYS[place], KEYS[place + 1]
  if redis.call('EXISTS', sums) == 1 then
    give_back(sums, leases, ask.member)
    if ask.at >= tonumber(redis.call('HGET', sums, 'from') or '0') then
      redis.call('HINCRBY', sums, 'st', ask.tokens)
      redis.call('HINCRBY', sums, 'sc', ask.cost)
    end
  else
    redis.call('ZREM', leases, ask.member)
  end
end
return 1
""",
)
"""Gives back what a request held, and counts what it used, once for every id.

Keys as for ``RESERVE``. ``levels`` are pairs of what is taken (or, negative, given back) and the
most, ``slots`` is how many there are; ``tokens`` and ``cost`` are texts. ``keep`` is how long (ms)
it is known that this is done, ``at`` when it ended (ms): what ended before an account was counted
here, and what an account used that is not counted, is in the ledger.
"""

OPEN: Final = Script(
    _BEGIN,
    """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local tokens, cost = 0, 0
for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local some, more = parts(member)
  tokens, cost = tokens + tonumber(some), cost + tonumber(more)
end
redis.call('HSET', KEYS[1], 'st', ask.tokens, 'sc', ask.cost, 'ht', whole(tokens),
  'hc', whole(cost), 'from', whole(ask.from))
redis.call('PEXPIRE', KEYS[1], whole(ask.ttl))
return 1
""",
)
"""Begins to count an account with what the ledger knew at a time ``from``, unless another router
was sooner.
"""

CHECK: Final = Script(
    _BEGIN,
    _SUMS,
    """
check_room(KEYS[1])
local none = missing(1, (#KEYS - 1) / 2)
if #none > 0 then return {'missing', unpack(none)} end
local answer = {'yes'}
for place = 2, #KEYS, 2 do
  for _, sum in ipairs(read(KEYS[place], KEYS[place + 1])) do answer[#answer + 1] = sum end
end
return answer
""",
)
"""The sums of accounts, where there is room to count more. Keys: ``room``; sums and leases of each.
"""

RENEW: Final = Script(
    _BEGIN,
    """
for place, key in ipairs(KEYS) do
  redis.call('ZADD', key, 'XX', whole(ms + ask.lease), ask.members[place])
  if ask.slots[place] then redis.call('PEXPIRE', key, whole(2 * ask.lease)) end
end
return 1
""",
)
"""Renews leases that have not ended: keys, with the member of each, and whether it is of slots."""
