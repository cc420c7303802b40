"""What a Redis store does in Redis: Lua, each script one step that nothing comes between.

All keys of a store share one hash tag, so that one node of a cluster holds them:

    rules    sorted set: the epoch of each rule; ``''`` is the epoch itself, ``'#'`` the number of
             the last change. All that makes an entry invalid is in this one key: were it lost by
             itself, the store would begin anew rather than serve what it should not.
    changes  stream: what happened, one record per change, whose id is its number
    sizes    hash: the bytes of each entry; ``''`` is their sum
    age      sorted set: entries by the number of the change that brought them
    expiry   sorted set: entries by the time they expire, in milliseconds
    e:KEY    hash: an entry; n its epoch, r the ids of its rules, h its head, b its body

A rule's id is a hash of 16 bytes. Numbers go over the wire as texts: Lua would round them.

Epochs begin at the time in microseconds, and a store that begins anew has a rule about
everything, so that what was asked for before the beginning is never kept. It begins anew where
``rules`` is not there, and where a caller has seen a later epoch or change than it has: it was
emptied, or is back from an older copy.
"""

from __future__ import annotations

from hashlib import blake2b, sha1
from typing import Final

from cache.entry import EVERYTHING, InvalidationRule

__all__ = [
    "DELETE",
    "GET",
    "HEADS",
    "INVALIDATE",
    "PUT",
    "STATE",
    "SWEEP",
    "Script",
    "StoreScript",
    "rule_id",
]


def rule_id(rule: InvalidationRule) -> bytes:
    """16 bytes."""
    return blake2b(
        f"{rule.kind}:{rule.value}".encode(errors="surrogatepass"), digest_size=16
    ).digest()


_EVERYTHING: Final = "".join(f"\\{byte:03d}" for byte in rule_id(EVERYTHING))

_BEGIN: Final = (
    f"local everything = '{_EVERYTHING}'"
    + """
local seen_epoch, seen_change = tonumber(ARGV[1]), tonumber(ARGV[2])
local function number(value) return string.format('%.0f', value) end
local function record(...)
  local id = number(redis.call('ZINCRBY', rules, 1, '#'))
  redis.call('XADD', changes, 'MAXLEN', '~', 10000, id .. '-0', ...)
  return id
end
local epoch = tonumber(redis.call('ZSCORE', rules, '') or '-1')
local change = tonumber(redis.call('ZSCORE', rules, '#') or '-1')
if epoch < math.max(seen_epoch, 0) or change < math.max(seen_change, epoch) then
  local now = redis.call('TIME')
  epoch = math.max(now[1] * 1000000 + now[2], seen_epoch + 1, seen_change + 1, change + 1)
  redis.call('DEL', rules, changes)
  redis.call('ZADD', rules, number(epoch), '', number(epoch), '#', number(epoch), everything)
  record('begun', '')
end
local function allowed(ids, asked)
  for place = 1, #ids, 16 do
    local last = redis.call('ZSCORE', rules, string.sub(ids, place, place + 15))
    if last and tonumber(last) > asked then return false end
  end
  return true
end
"""
)
"""Arguments of every script: the last epoch and the last change that the caller has seen. The first
that each returns is the epoch.
"""

_ENTRIES: Final = "local entries = ARGV[3]"
"""The third argument of those that have this part: what the keys of entries begin with."""

_FORGET: Final = """
local function forget(key)
  local size = redis.call('HGET', sizes, key)
  if not size then return false end
  redis.call('HDEL', sizes, key)
  redis.call('HINCRBY', sizes, '', '-' .. size)
  redis.call('ZREM', age, key)
  redis.call('ZREM', expiry, key)
  redis.call('UNLINK', entries .. key)
  return true
end
"""


class Script:
    """Lua, and the hash that Redis knows it by."""

    def __init__(self, *parts: str) -> None:
        self.text = "\n".join(parts)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class StoreScript(Script):
    """``keys``: which of the store's keys it is handed, in this order; ``entry`` is ``e:KEY``."""

    def __init__(self, keys: str, *parts: str) -> None:
        self.keys = tuple(keys.split())
        self.entries = _ENTRIES in parts
        heads = [f"local {name} = KEYS[{place}]" for place, name in enumerate(self.keys, 1)]
        super().__init__(*heads, *parts)


GET: Final = StoreScript(
    "rules changes entry",
    _BEGIN,
    """
local found = redis.call('HMGET', entry, 'n', 'r', 'h', 'b')
if found[1] and found[2] and found[3] and found[4] and allowed(found[2], tonumber(found[1])) then
  return {number(epoch), found[3], found[4]}
end
return {number(epoch)}
""",
)
"""Head and body of the entry, if there is one."""

STATE: Final = StoreScript(
    "rules changes sizes age",
    _BEGIN,
    """
return {
  number(epoch), number(redis.call('ZSCORE', rules, '#')),
  redis.call('HGET', sizes, '') or '0', redis.call('ZCARD', age)
}
""",
)
"""Number of the last change, bytes, entries."""

PUT: Final = StoreScript(
    "rules changes entry sizes age expiry",
    _BEGIN,
    _ENTRIES,
    _FORGET,
    """
local key, asked, ids, head, body = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local size, expires, most, embedded = tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11]), ARGV[12]
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if not allowed(ids, tonumber(asked)) or tonumber(expires) <= now then
  return {number(epoch), 0, 0}
end
forget(key)
local gone = redis.call('ZRANGEBYSCORE', expiry, '-inf', number(now), 'LIMIT', 0, 50)
for _, old in ipairs(gone) do forget(old) end
local evicted = 0
while tonumber(redis.call('HGET', sizes, '') or '0') + size > most and evicted < 200 do
  local oldest = redis.call('ZRANGE', age, 0, 0)[1]
  if not oldest then
    redis.call('DEL', sizes)
  elseif not forget(oldest) then
    redis.call('ZREM', age, oldest)
  else
    gone[#gone + 1] = oldest
    evicted = evicted + 1
  end
end
if #gone > 0 then record('gone', table.concat(gone, ' ')) end
if tonumber(redis.call('HGET', sizes, '') or '0') + size > most then
  return {number(epoch), 0, evicted}
end
local id = record(embedded == '1' and 'added' or 'gone', key)
redis.call('HSET', entry, 'n', asked, 'r', ids, 'h', head, 'b', body)
redis.call('PEXPIREAT', entry, expires)
redis.call('HSET', sizes, key, ARGV[9])
redis.call('HINCRBY', sizes, '', ARGV[9])
redis.call('ZADD', age, id, key)
redis.call('ZADD', expiry, expires, key)
return {number(epoch), 1, evicted}
""",
)
"""Whether it was kept, and how many entries had to go. Arguments: key, epoch, ids of its rules,
head, body, size, expiry in ms, bytes allowed, 1 where it has a vector.
"""

DELETE: Final = StoreScript(
    "rules changes entry sizes age expiry",
    _BEGIN,
    _ENTRIES,
    _FORGET,
    """
local there = redis.call('EXISTS', entry)
if there == 1 then
  local found = redis.call('HMGET', entry, 'n', 'r')
  if not allowed(found[2], tonumber(found[1])) then there = 0 end
end
if forget(ARGV[4]) then record('gone', ARGV[4]) end
return {number(epoch), there}
""",
)
"""1 where there was one. Argument: its key."""

INVALIDATE: Final = StoreScript(
    "rules changes age",
    _BEGIN,
    """
epoch = epoch + 1
local most = tonumber(ARGV[5])
if ARGV[3] == everything then
  redis.call('ZREMRANGEBYSCORE', rules, '-inf', '(' .. number(epoch - 1))
end
redis.call('ZADD', rules, number(epoch), '', number(epoch), ARGV[3])
if redis.call('ZCARD', rules) > most + 2 then
  local old = redis.call('ZPOPMIN', rules, math.floor(most / 2))
  local before = tonumber(redis.call('ZSCORE', rules, everything) or '0')
  redis.call('ZADD', rules, number(math.max(before, tonumber(old[#old]))), everything)
end
record('invalidated', ARGV[4])
return {number(epoch), redis.call('ZCARD', age)}
""",
)
"""How many entries there are in all. Arguments: the rule's id; the rule; how
many rules may be kept: past these the older half becomes one about everything as old as they are.
"""

SWEEP: Final = StoreScript(
    "rules changes sizes age expiry",
    _BEGIN,
    _ENTRIES,
    _FORGET,
    """
local some = redis.call(
  'ZRANGEBYSCORE', age, '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[5])
local count = 0
for place = 1, #some, 2 do
  local found = redis.call('HMGET', entries .. some[place], 'n', 'r')
  if not found[1] then
    forget(some[place])
  elseif not allowed(found[2], tonumber(found[1])) then
    forget(some[place])
    count = count + 1
  end
end
return {number(epoch), some[#some] or '', count}
""",
)
"""Look at the entries younger than a number, and remove what may not be served any more: returns
the number of the last, or nothing, and how many went. Arguments: the number; how many to look
at.
"""

HEADS: Final = StoreScript(
    "rules changes age",
    _BEGIN,
    _ENTRIES,
    """
local keys, last = {}, ''
if ARGV[4] ~= '' then
  local some = redis.call(
    'ZRANGEBYSCORE', age, '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[5])
  for place = 1, #some, 2 do keys[#keys + 1] = some[place] end
  last = some[#some] or ''
else
  for place = 5, #ARGV do keys[#keys + 1] = ARGV[place] end
end
local heads = {}
for place, key in ipairs(keys) do
  local found = redis.call('HMGET', entries .. key, 'n', 'r', 'h')
  heads[place] = found[1] and allowed(found[2], tonumber(found[1])) and found[3] or ''
end
return {number(epoch), last, heads}
""",
)
"""A number, and heads, empty where there is no entry (any more). Arguments: either a number and how
many: the next younger ones, and the number of the last of them; or '' and keys.
"""
