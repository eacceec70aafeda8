"""The arena protocol of document 001, as an adapter onto the core protocol, in both directions.

``messages`` is what is said, ``tables`` how it is written, ``slices`` how many values are one
arena, ``stream`` the runtime's end, ``served`` the driver's.
"""
