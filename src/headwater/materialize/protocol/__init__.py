"""The materialization protocol, without I/O: what is said, and when it may be said.

``specs`` is what a materialization is, ``messages`` what the two sides say to each other,
``machine`` when each of it is permitted, ``contents`` what the messages of one transaction may
hold.
"""
