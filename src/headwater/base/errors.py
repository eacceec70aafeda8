"""The root of our exceptions, sorted by what the caller may do next.

- :class:`HeadwaterError`: the root. Every error we raise on purpose derives from it.
- :class:`ExternalError`: a durability system failed. Two kinds, and no third:
  :class:`Determinate` (it certainly did not happen: safe to report, safe to repeat) and
  :class:`Indeterminate` (it may have happened: repeat only what is idempotent, then look).
- :class:`InvalidUsage`: the caller asked for something that can never be right; a pure function
  of its arguments and the state, never committed. One subclass per mistake, with its values.

A lost race is *not* here: it is an outcome, returned as a value.
"""

from __future__ import annotations

from typing import Self


class HeadwaterError(Exception):
    """The root of every error Headwater raises on purpose."""

    def again(self) -> Self:
        """Return the same error, to be raised once more.

        An exception keeps the frames it was raised through, and they keep what the caller had in
        hand. One that is remembered and told to many must be told as a copy, or it keeps them all.
        """
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        copy.__cause__ = self.__cause__
        return copy


class ExternalError(HeadwaterError):
    """A durability system failed. Raise one of the two subclasses, never this class."""


class Determinate(ExternalError):
    """The operation certainly did not happen (permission denied, disk full, refused)."""


class Indeterminate(ExternalError):
    """The operation may have happened (timeout, lost connection). Retry only the idempotent."""


class InvalidUsage(HeadwaterError):
    """The request can never succeed as it is; nothing was changed. The message has the remedy."""
