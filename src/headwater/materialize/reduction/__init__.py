"""Reductions: how two documents of one key become one.

``strategy`` says what may be done at a location, ``annotations`` finds the strategies in a JSON
schema, ``reduce`` applies them, with ``numbers``, ``sets`` and ``schemas`` for what needs more
than a line; ``value`` is the order of JSON values. ``merge_patch`` is RFC 7396, for the states of
drivers.
"""
