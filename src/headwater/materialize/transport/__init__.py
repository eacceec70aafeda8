"""Transports: how the messages of a session travel. Each keeps a session's table on both sides."""
