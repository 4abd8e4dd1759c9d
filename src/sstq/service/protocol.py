"""HTTP connections that idle clients cannot hold open: uvicorn's protocol with deadlines and a limit on headers.

uvicorn waits forever for the end of a request's headers and for a client to read its answer, and accepts headers of any
length. Request bodies have their own deadline (`sstq.service.security.RequestBody`).
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sstq.service.security import ANSWER_AT_ONCE, BODY_ARRIVED

__all__ = ["HEADER_SECONDS", "MOST_HEADER_BYTES", "READ_SECONDS", "GuardedProtocol"]

HEADER_SECONDS = 10.0
"""The seconds a client has to finish its headers, from connecting or from the first byte of a further request."""

READ_SECONDS = 30.0
"""The seconds a client may leave a full buffer of its answer unread."""

MOST_HEADER_BYTES = 1 << 15
"""The maximum size of a request's headers in bytes."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    _headers_due: TimerHandle | None = None
    _read_due: TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the parser; bytes between requests start the next one."""
        begins = self._headers_due is None and (self.cycle is None or self.cycle.response_complete)
        known = self.cycle
        super().data_received(data)
        if begins and self.cycle is known:  # most requests arrive whole and need no timer
            self._await_headers()
        if self._headers_due is not None:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES:
                self._give_up()

    def on_headers_complete(self) -> None:
        """Start to handle the request."""
        _cancel(self._headers_due)
        self._headers_due = None
        self.scope[ANSWER_AT_ONCE] = self.answer_at_once  # type: ignore[literal-required]
        super().on_headers_complete()

    def answer_at_once(self, scope: Any, head: bytes, body: bytes) -> bool:
        """Write a whole answer with status 200 at once: messages of ASGI take two system calls and many small steps.

        Args:
            scope: of the request.
            head: all headers but the date and the length, each with its line end.
            body: the content.

        Returns:
            Whether it is written. If not, it needs the messages: the connection is slow, lost, or to be closed.
        """
        cycle = self.cycle
        if cycle.scope is not scope or cycle.disconnected or self.flow.write_paused:
            return False
        if not cycle.keep_alive or CLOSE_HEADER in scope["headers"]:
            return False
        always = b"".join([b"%b: %b\r\n" % header for header in self.server_state.default_headers])
        self.transport.write(b"HTTP/1.1 200 OK\r\n%b%bcontent-length: %d\r\n\r\n%b" % (always, head, len(body), body))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_message_complete(self) -> None:
        """Note that the body is complete."""
        super().on_message_complete()
        self.scope[BODY_ARRIVED] = True  # type: ignore[literal-required]

    def pause_writing(self) -> None:
        """Wait for a client that reads more slowly than the answer is written."""
        super().pause_writing()
        if self._read_due is None:
            self._read_due = self.loop.call_later(READ_SECONDS, self._give_up)

    def resume_writing(self) -> None:
        """Continue: the client has read enough."""
        super().resume_writing()
        _cancel(self._read_due)
        self._read_due = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        _cancel(self._headers_due, self._read_due)
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._headers_due = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        # Not `close`, which waits until everything is written.
        self.transport.abort()


def _cancel(*timers: TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()
