"""Flow's wire format: the protocol's messages as bytes.

``proto/*.proto`` declare the messages with Flow's names and tags, ``schema`` is the same as a
table, ``protobuf`` and ``json_lines`` turn messages into bytes and back by that table, ``framing``
cuts a stream into messages.
"""
