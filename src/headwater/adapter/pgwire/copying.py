"""COPY as an exchange of messages: out under backpressure, in piece by piece.

Out: CopyOutResponse, CopyData*, CopyDone. In: CopyInResponse, then what the client sends until
CopyDone or CopyFail; Flush and Sync mean nothing there, anything else is an error. What the client
sends is decoded and handed on in pieces of about :data:`PIECE_BYTES`; the next is not read from the
socket before the session has taken the last, so a fast client waits for a slow table.
"""

from __future__ import annotations

from headwater.adapter.errors import ProtocolError, UnknownColumn, Unsupported
from headwater.adapter.pgwire import frontend, messages
from headwater.adapter.pgwire.backend import Column, CopyIn, TakesCopies
from headwater.adapter.pgwire.calls import Calls
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.copy_in import CopyDecoder, decoder
from headwater.adapter.pgwire.copy_out import CopyEncoder
from headwater.adapter.pgwire.framing import Stream
from headwater.adapter.pgwire.refusals import CopyGivenUp
from headwater.adapter.pgwire.rows import PIECE_ROWS_MAX, RowStream
from headwater.adapter.pgwire.wire_statements import CopyFrom

PIECE_BYTES = 1 << 18


async def send_copy(stream: Stream, calls: Calls, rows: RowStream, chosen: CopyFormat) -> int:
    """Send all rows; their number."""
    _check_columns(chosen.force_quote, rows.columns)
    encoder = CopyEncoder(rows.columns, chosen)
    stream.write(messages.copy_out_response([int(chosen.is_binary)] * len(rows.columns)))
    stream.write(encoder.begin())
    sent = 0
    ended = False
    while not ended:
        piece = await calls.call(lambda: rows.take(PIECE_ROWS_MAX, encoder.encode), abandon=True)
        stream.write(piece.data)
        await stream.drain()
        sent += piece.rows
        ended = piece.ended
    stream.write(encoder.end())
    stream.write(messages.COPY_DONE_MESSAGE)
    return sent


async def receive(stream: Stream, calls: Calls, statement: CopyFrom) -> int:
    """Take all rows the client sends; their number, when they are durable."""
    copy = await calls.call(lambda: _begin(calls, statement), abandon=False)
    try:
        for names in (statement.format.force_null, statement.format.force_not_null):
            _check_columns(names, copy.columns)
        formats = [int(statement.format.is_binary)] * len(copy.columns)
        stream.write(messages.copy_in_response(formats))
        await stream.drain()
        taken = await _take(calls, copy, decoder(copy.columns, statement.format))
        await calls.call(copy.finish, abandon=False)
    except BaseException:
        calls.forget(copy.abort)
        raise
    return taken


def _begin(calls: Calls, statement: CopyFrom) -> CopyIn:
    session = calls.worker.session()
    if not isinstance(session, TakesCopies):
        raise Unsupported("COPY FROM")
    return session.copy_in(statement.table, statement.columns)


async def _take(calls: Calls, copy: CopyIn, rows: CopyDecoder) -> int:
    taken = 0
    pieces: list[bytes] = []
    held = 0
    while True:
        tag, payload = await calls.next_message_or_cancelled()
        if tag == frontend.COPY_DATA:
            pieces.append(payload)
            held += len(payload)
            if held >= PIECE_BYTES:
                piece, pieces, held = b"".join(pieces), [], 0
                taken += await calls.call(lambda: _feed(copy, rows, piece), abandon=False)  # noqa: B023
        elif tag == frontend.COPY_DONE:
            break
        elif tag == frontend.COPY_FAIL:
            message = frontend.decode(tag, payload)
            assert isinstance(message, frontend.CopyFail)
            raise CopyGivenUp(message.reason)
        elif tag not in (frontend.FLUSH, frontend.SYNC):
            raise ProtocolError(f"unexpected message type 0x{tag[0]:02X} during COPY from stdin")
    last = b"".join(pieces)
    return taken + await calls.call(lambda: _finish(copy, rows, last), abandon=False)


def _feed(copy: CopyIn, rows: CopyDecoder, piece: bytes) -> int:
    batch = rows.feed(piece)
    if batch is None:
        return 0
    copy.write(batch)
    return int(batch.num_rows)


def _finish(copy: CopyIn, rows: CopyDecoder, piece: bytes) -> int:
    taken = _feed(copy, rows, piece)
    batch = rows.finish()
    if batch is None:
        return taken
    copy.write(batch)
    return taken + int(batch.num_rows)


def _check_columns(names: tuple[str, ...] | str, columns: tuple[Column, ...]) -> None:
    known = {column.name for column in columns}
    for name in () if names == "*" else names:
        if name not in known:
            raise UnknownColumn(name, "COPY")
