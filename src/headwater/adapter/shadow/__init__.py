"""The shadow PostgreSQL: a real, empty one that mirrors our objects and answers about them.

It holds no row of ours. It is asked two things: what a query of PostgreSQL's dialect *is* (names,
types, parameters, or PostgreSQL's own error), and what clients want to know about the catalog.

- :mod:`.instance`: the process, its directory, its life with the server's.
- :mod:`.bootstrap`: roles, rights and settings of a new one. :mod:`.numbers`: what it says of
  itself and would be taken for ours.
- :mod:`.objects`: what can be mirrored, as values. :mod:`.mirror`: making it so.
- :mod:`.sessions`: where client text runs: an unprivileged role that reads, with a timeout.
- :mod:`.classify`: which client text is meant for it.
- :mod:`.shadow`: the door, :class:`~headwater.adapter.shadow.shadow.Shadow`.
"""

from __future__ import annotations
