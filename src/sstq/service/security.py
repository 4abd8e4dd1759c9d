"""Protection of the HTTP routes: tokens, bodies within limits, readers within limits, and security headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sstq.service.limits import too_fast
from sstq.service.problems import ClientGone, Problem, problem_response, unauthorized

if TYPE_CHECKING:
    from sstq.service.node import Node

__all__ = ["Guard", "RequestBody", "bearer_token", "is_token", "new_token", "token_hash"]

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
_ALWAYS, _DEFAULTS = (
    [(name.encode(), value.encode()) for name, value in headers.items()] for headers in (HEADERS, DEFAULTS)
)
_HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")

# A body may take this long, and then as long as it takes at the slowest rate.
_BODY_SECONDS, _SLOWEST_BYTES_PER_SECOND = 10.0, 1 << 14
# A campaign with 2^21 labels is larger, but nobody reads that many.
_LARGEST_JSON = 1 << 22
_BODY = "sstq.body"
# How much of a refused request is still read, so that its client sees the answer.
_DRAINED_BYTES, _DRAIN_SECONDS = 1 << 20, 2.0
# Reading costs an address one unit per request and one per so many bytes of the answer.
_BYTES_PER_UNIT = 1 << 16
# Who asks too fast waits up to this long for the refusal, so that asking again at once gains nothing.
_LONGEST_WAIT = 1.0


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


class RequestBody:
    """The body of a request, read within limits of size, time and bytes per address."""

    def __init__(self, node: Node, scope: Scope, receive: Receive) -> None:
        self._node, self._receive = node, receive
        self._address = address_of(scope)
        self._complete = False

    @classmethod
    def of(cls, request: Request) -> RequestBody:
        """Return the body of a request, which `Guard` has prepared."""
        found: RequestBody = request.scope[_BODY]
        return found

    async def receive_json(self) -> Message:
        """Do as `receive` of ASGI does for a body of JSON: all of it at once."""
        if self._complete:
            return await self._receive()
        raw = await self.read(_LARGEST_JSON)
        if len(raw) > _LARGEST_JSON:
            raise Problem(413, f"The body must have at most {_LARGEST_JSON} bytes.")
        return {"type": "http.request", "body": raw, "more_body": False}

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def read(self, most: int) -> bytes:
        """Read the whole body, or a beginning of more than `most` bytes; raises a Problem if it comes too slowly."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_SECONDS) as limit:
                while not self._complete and size <= most:
                    part = await self._next()
                    self._node.arriving.take(self._address, len(part))
                    parts.append(part)
                    size += len(part)
                    if not self._complete:
                        limit.reschedule(limit.when() + len(part) / _SLOWEST_BYTES_PER_SECOND)  # type: ignore[operator]
        except TimeoutError as error:
            raise Problem(408, "The body of the request arrived too slowly.") from error
        finally:
            self._node.arriving.give_back(self._address, size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def refuse(self, problem: Problem) -> Response:
        """Return the answer that refuses the request.

        The rest of the body is read first, within limits: a client that is still sending might not see the answer
        otherwise. If there is more, the connection is closed.
        """
        response = problem_response(problem)
        size = 0
        try:
            async with asyncio.timeout(0 if problem.status_code == 408 else _DRAIN_SECONDS):
                while not self._complete and size <= _DRAINED_BYTES:
                    size += len(await self._next())
        except (TimeoutError, ClientGone):
            pass
        if not self._complete:
            response.headers["Connection"] = "close"
        return response


class Guard:
    """The outermost layer: limits how fast an address may read, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, node: Node) -> None:
        self._app, self._node = app, node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limits, address = self._node.reading, address_of(scope)
        reads = scope["method"] in ("GET", "HEAD") and scope["path"] != "/health"

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_security(message.get("headers", []), scope["scheme"])
            elif reads and message.get("body"):
                limits.charge(address, len(message["body"]) / _BYTES_PER_UNIT)
            await send(message)

        wait = limits.wait(address) if reads else 0.0
        if wait:
            await asyncio.sleep(min(wait, _LONGEST_WAIT))
            await problem_response(too_fast("requests", wait))(scope, receive, guarded)
        else:
            body = scope[_BODY] = RequestBody(self._node, scope, receive)
            await self._app(scope, receive if reads else body.receive_json, guarded)


def address_of(scope: Scope) -> str:
    """The address that a request comes from; behind a trusted proxy, the one that the proxy names."""
    return scope["client"][0] if scope.get("client") else ""


def _with_security(headers: list[tuple[bytes, bytes]], scheme: str) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in headers}
    own = [*_ALWAYS, _HTTPS_ONLY] if scheme == "https" else _ALWAYS
    return [*headers, *own, *(header for header in _DEFAULTS if header[0] not in names)]
