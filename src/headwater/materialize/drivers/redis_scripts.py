"""The scripts that Redis runs for a guarded delivery: each is one atomic step there.

A script is not undone where it fails. So each first looks at everything that could make it fail
(whose session it is, the checkpoint, the types of the keys, memory, which Redis itself checks
before a script writes), and then only writes. What it finds is its answer, a list:

    ok                      done
    fenced                  the key range is not this session's any more
    moved, checkpoint       the checkpoint is another one than this session has seen committed
    lost, chunks            so many chunks are staged, and there should be more
    type, key, type         a key holds another kind of value
    taken, key              a new row has the key of one that is there
    more | done             (applying) whether there are more chunks

``KEYS``: the hash of the checkpoints, the list of staged chunks. The keys of rows are within the
chunks: a chunk is a MessagePack array of ``redis_rows.Op``.
"""

from __future__ import annotations

from typing import Final

_COMMON: Final = """
local checkpoints, stage = KEYS[1], KEYS[2]
local range, session = ARGV[1], ARGV[2]

local function field(name)
  return redis.call('HGET', checkpoints, range .. '/' .. name)
end

local function refused(committed)
  if field('session') ~= session then return {'fenced'} end
  if committed and field('checkpoint') ~= committed then return {'moved', field('checkpoint')} end
end

-- Whether every key can take what is done with it; asked is the field that marks deleted rows.
local function impossible(ops, deleted)
  for _, op in ipairs(ops) do
    local found = redis.call('TYPE', op[2]).ok
    local wanted = op[1] == 'x' and 'stream' or 'hash'
    if found ~= 'none' then
      if found ~= wanted then return {'type', op[2], found} end
      if deleted and op[1] == 'n' and redis.call('HGET', op[2], deleted) ~= 'd' then
        return {'taken', op[2]}
      end
    end
  end
end

local function apply(ops)
  for _, op in ipairs(ops) do
    if op[1] == 'd' then
      redis.call('DEL', op[2])
    elseif op[1] == 'x' then
      redis.call('XADD', op[2], '*', unpack(op[3]))
    else
      redis.call('HSET', op[2], unpack(op[3]))
      if #op[4] > 0 then redis.call('HDEL', op[2], unpack(op[4])) end
    end
  end
end
"""

STAGE: Final = (
    _COMMON
    + """
-- ARGV: range, session, field that marks deleted rows, chunk.
local no = refused() or impossible(cmsgpack.unpack(ARGV[4]), ARGV[3])
if no then return no end
redis.call('RPUSH', stage, ARGV[4])
return {'ok'}
"""
)
"""Keep a chunk for later, if it can be applied as far as can be seen now."""

COMMIT: Final = (
    _COMMON
    + """
-- ARGV: range, session, field that marks deleted rows, chunk, last checkpoint, checkpoint.
local ops = cmsgpack.unpack(ARGV[4])
local no = refused(ARGV[5]) or impossible(ops, ARGV[3])
if no then return no end
apply(ops)
redis.call('HSET', checkpoints, range .. '/checkpoint', ARGV[6])
return {'ok'}
"""
)
"""A whole transaction in one step: rows and checkpoint."""

COMMIT_STAGED: Final = (
    _COMMON
    + """
-- ARGV: range, session, number of chunks, last checkpoint, checkpoint.
local no = refused(ARGV[4])
if no then return no end
local there = redis.call('LLEN', stage)
if there ~= tonumber(ARGV[3]) then return {'lost', there} end
redis.call('HSET', checkpoints, range .. '/checkpoint', ARGV[5], range .. '/staged', session)
return {'ok'}
"""
)
"""From here on the staged chunks are committed: whoever comes applies them."""

APPLY: Final = (
    _COMMON
    + """
-- ARGV: range, session that staged.
if field('staged') ~= session then return {'done'} end
local chunk = redis.call('LINDEX', stage, 0)
if chunk then
  local ops = cmsgpack.unpack(chunk)
  local no = impossible(ops)
  if no then return no end
  apply(ops)
  redis.call('LPOP', stage)
end
if redis.call('LLEN', stage) > 0 then return {'more'} end
redis.call('HDEL', checkpoints, range .. '/staged')
return {'done'}
"""
)
"""Apply the next chunk and remove it: each is applied once, whoever asks, and however often."""
