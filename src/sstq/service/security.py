"""Protection of the HTTP routes: refusals, tokens, rate limits, bounded bodies and security headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "AddressLimits",
    "ClientGone",
    "Problem",
    "RequestBody",
    "SecurityHeaders",
    "bearer_token",
    "content_type",
    "is_token",
    "new_token",
    "problem_response",
    "token_hash",
    "unauthorized",
    "with_security",
]

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The dashboard loads only its own files: no inline script, no style attribute, no framing by other pages."""

HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
# Defaults, which a route may override.
DEFAULTS = {"cache-control": "no-store", "cross-origin-resource-policy": "same-origin"}
RawHeader = tuple[bytes, bytes]
_ALWAYS, _DEFAULTS = (
    [(name.encode(), value.encode()) for name, value in headers.items()] for headers in (HEADERS, DEFAULTS)
)
_HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")

BODY_ARRIVED = "sstq.body-arrived"
"""True in the scope of a request whose body has already arrived: a timer would cost more than reading it."""

ANSWER_AT_ONCE = "sstq.answer-at-once"
"""The key of a function in the scope of a request: it writes a whole answer (`sstq.service.protocol`)."""

# The seconds that a body may take, plus this much per byte.
_BODY_SECONDS, _SLOWEST_BYTES_PER_SECOND = 20.0, 1 << 14
# How much of a refused request is still read, so that its client sees the answer.
_DRAINED_BYTES, _DRAIN_SECONDS = 1 << 20, 2.0


class Problem(Exception):  # noqa: N818 (that is what RFC 9457 calls it)
    """A refusal: its status, a sentence for people, and headers."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


class ClientGone(Exception):  # noqa: N818
    """The client closed the connection before its request was complete."""


def problem_response(problem: Problem) -> Response:
    """Return the refusal as application/problem+json (RFC 9457)."""
    content = json.dumps({"status": problem.status, "detail": problem.detail}, ensure_ascii=False).encode()
    return Response(content, problem.status, problem.headers, "application/problem+json")


def new_token() -> str:
    """Create a token of 192 random bits."""
    return secrets.token_urlsafe(24)


def token_hash(token: str) -> bytes:
    """The SHA-256 of a token, which is all that is stored; tokens are too random to be recovered from it."""
    return hashlib.sha256(token.encode()).digest()


def is_token(token: str | None, stored: bytes | None) -> bool:
    """Whether the token has this hash, compared in constant time."""
    return token is not None and stored is not None and hmac.compare_digest(token_hash(token), stored)


def bearer_token(authorization: str | None) -> str | None:
    """Return the token of an Authorization header; raises a Problem for another scheme."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise unauthorized("The Authorization header must be “Bearer TOKEN”.")
    return token.strip()


def unauthorized(detail: str) -> Problem:
    """A refusal that asks for a token."""
    return Problem(401, detail, {"WWW-Authenticate": "Bearer"})


class AddressLimits:
    """Rate limits by address: a bucket of `burst` uploads that refills at a constant rate; in memory only.

    All addresses of one IPv6 /64 count as one, because one person usually has all of it.
    """

    _MOST_ADDRESSES = 100_000

    def __init__(self, per_second: float, burst: int) -> None:
        self._rate, self._burst = per_second, float(burst)
        # When the bucket of each address will be full again, which determines how full it is at any time.
        self._full_at: dict[str, float] = {}

    def wait(self, address: str, now: float | None = None) -> float:
        """Take one upload from the address's bucket and return 0, or return the seconds until one is available."""
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        who = _network(address)
        full_at = max(self._full_at.get(who, now), now) + 1 / self._rate
        excess = full_at - now - self._burst / self._rate
        if excess > 1e-9:
            return excess
        if len(self._full_at) >= self._MOST_ADDRESSES:
            self.forget(now)
            if len(self._full_at) >= self._MOST_ADDRESSES:  # so many at once: start afresh rather than grow
                self._full_at = {}
        self._full_at[who] = full_at
        return 0.0

    def forget(self, now: float | None = None) -> None:
        """Drop the addresses whose bucket is full again, which need no entry."""
        now = time.monotonic() if now is None else now
        self._full_at = {known: full for known, full in self._full_at.items() if full > now}


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


class RequestBody:
    """The body of a request, read within limits of size and time."""

    def __init__(self, receive: Receive, *, arrived: bool = False) -> None:
        self._receive = receive
        self._arrived = arrived  # completely, so reading does not wait
        self._complete = False

    @classmethod
    def of(cls, request: Request) -> RequestBody:
        """Return the body of a request; always the same object, which knows how much was read."""
        found: RequestBody = request.scope.setdefault("sstq.body", cls(request.receive))
        return found

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def read(self, most: int) -> bytes:
        """Read the whole body, or a beginning of more than `most` bytes; raises a Problem if it takes too long."""
        if self._arrived:
            return await self._read(most)
        try:
            async with asyncio.timeout(_BODY_SECONDS + most / _SLOWEST_BYTES_PER_SECOND):
                return await self._read(most)
        except TimeoutError as error:
            raise Problem(408, "The body of the request arrived too slowly.") from error

    async def _read(self, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while not self._complete and size <= most:
            parts.append(await self._next())
            size += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def refuse(self, problem: Problem) -> Response:
        """Return the answer that refuses the request.

        The rest of the body is read first, within limits: a client that is still sending might not see the answer
        otherwise. If there is more, the connection is closed.
        """
        response = problem_response(problem)
        size = 0
        try:
            async with asyncio.timeout(0 if problem.status == 408 else _DRAIN_SECONDS):
                while not self._complete and size <= _DRAINED_BYTES:
                    size += len(await self._next())
        except (TimeoutError, ClientGone):
            pass
        if not self._complete:
            response.headers["Connection"] = "close"
        return response


def with_security(headers: Iterable[RawHeader], scheme: str) -> list[RawHeader]:
    """The headers of an answer with those that every answer has."""
    names = {name for name, _ in headers}
    own = [*_ALWAYS, _HTTPS_ONLY] if scheme == "https" else _ALWAYS
    return [*headers, *own, *(header for header in _DEFAULTS if header[0] not in names)]


class SecurityHeaders:
    """Adds the security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_security(message.get("headers", []), scope["scheme"])
            await send(message)

        await self._app(scope, receive, with_headers)


def content_type(headers: Headers | Mapping[str, Any]) -> str:
    """The media type of a request without its parameters."""
    return str(headers.get("content-type", "")).partition(";")[0].strip().lower()
