"""HTTP connections that nobody can hold open or hoard: uvicorn's protocol with deadlines and a limit per address.

uvicorn waits forever for the end of a request's headers and for a client to read its answer, and accepts headers of any
length and any number of connections from one address. Request bodies have limits of their own
(`sstq.service.security.RequestBody`).
"""

import asyncio
from asyncio import TimerHandle
from asyncio.sslproto import SSLProtocol
from collections import Counter
from typing import Any, cast

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from sstq.service.security import network

HEADER_SECONDS = 10.0  # to finish headers, from connecting or from the first byte of a further request
READ_SECONDS = 30.0  # that a client may leave a full buffer of its answer unread
HANDSHAKE_SECONDS = 5.0  # of TLS
MOST_HEADER_BYTES = 1 << 15
CONNECTIONS_PER_ADDRESS = 200
DROP_SECONDS = 5.0  # that a connection beyond these is ignored before it is dropped: who comes again costs more
_MOST_IGNORED = 4000  # per address; further ones are dropped at once


class GuardedProtocol(HttpToolsProtocol):
    """One connection; `guarded_protocol` makes the class that counts those of a server."""

    connected: Counter[str]
    exempt: frozenset[str]

    _counted: str | None = None
    _headers_due: TimerHandle | None = None
    _read_due: TimerHandle | None = None
    _header_bytes = 0
    _ignored = False

    def admit(self, transport: Any) -> bool:
        """Count a connection; one too many is not read, and dropped after a while."""
        peer = (get_remote_addr(transport) or ("",))[0]
        self._counted = "" if "*" in self.exempt or peer in self.exempt else network(peer)
        self.connected[self._counted] += 1
        beyond = self.connected[self._counted] - CONNECTIONS_PER_ADDRESS
        if beyond <= 0 or not self._counted:
            return True
        self._ignored = True
        self.loop.call_soon(_pause, transport)  # not now: uvloop begins to read after this
        self._headers_due = self.loop.call_later(DROP_SECONDS if beyond <= _MOST_IGNORED else 0, transport.abort)
        return False

    def leave(self) -> None:
        """Count the end of a connection, and stop its timers."""
        for timer in (self._headers_due, self._read_due):
            if timer is not None:
                timer.cancel()
        if self._counted is not None:
            self.connected[self._counted] -= 1
            if not self.connected[self._counted]:
                del self.connected[self._counted]
        self._counted = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request, unless its address has too many connections."""
        if self._counted is not None or self.admit(transport):
            super().connection_made(transport)
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the parser; bytes between requests start the next one."""
        if self._ignored:
            return
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
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait for a client that reads more slowly than the answer is written."""
        super().pause_writing()
        if self._read_due is None:
            self._read_due = self.loop.call_later(READ_SECONDS, self._give_up)

    def resume_writing(self) -> None:
        """Continue: the client has read enough."""
        super().resume_writing()
        if self._read_due is not None:
            self._read_due.cancel()
            self._read_due = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.leave()
        if not self._ignored:
            super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._headers_due = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        # Not `close`, which waits until everything is written.
        self.transport.abort()


class GuardedLoop(uvloop.Loop):
    """An event loop whose servers count connections of TLS, and do not wait long for a handshake."""

    async def create_server(self, *args: Any, ssl: Any = None, **options: Any) -> Any:
        """Create a server; the first argument makes a protocol."""
        factory, *place = args
        limits: dict[str, Any] = {"server_side": True, "ssl_handshake_timeout": HANDSHAKE_SECONDS}

        def secured() -> _GuardedTLS:
            return _GuardedTLS(self, factory(), ssl, None, **limits)  # type: ignore[arg-type]  # nobody waits

        return await super().create_server(factory if ssl is None else secured, *place, **options)


class _GuardedTLS(SSLProtocol):
    """TLS around a connection that counts from its first moment: silent ones do not get as far as a handshake."""

    def connection_made(self, transport: Any) -> None:
        self._guarded = cast("GuardedProtocol", self._app_protocol)
        if self._guarded.admit(transport):
            super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._guarded.leave()
        super().connection_lost(exc)


def guarded_protocol(proxies: str) -> type[GuardedProtocol]:
    """The protocol of one server; connections of its proxies, separated by commas, are not counted."""
    exempt = frozenset(part.strip() for part in proxies.split(",") if part.strip())
    return type("CountingProtocol", (GuardedProtocol,), {"connected": Counter(), "exempt": exempt})


def _pause(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.pause_reading()
