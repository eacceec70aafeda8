"""Identifiers as types: never a bare ``int`` or ``str`` where two could be mixed up.

``GlobalId``  names a collection for ever; assigned by the log, never reused.
``SeqNo``     position of an entry in the commit log; the first entry is 0.
``Epoch``     how often a role has been taken; a stale one is refused.
``RoleName``  who writes: ``server``, ``ingest/7``, ``step/default``, ``shard/3``.
``BatchId``   names one write for ever, so that its retry is recognised.
"""

from __future__ import annotations

from typing import NewType

GlobalId = NewType("GlobalId", int)
SeqNo = NewType("SeqNo", int)
Epoch = NewType("Epoch", int)
RoleName = NewType("RoleName", str)
BatchId = NewType("BatchId", str)
