"""Protection of the HTTP routes: refusals, tokens, limits per address, bodies within limits, and security headers.

Limits are in memory only. All addresses of one IPv6 /64 count as one, because one person usually has all of it.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"

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
    [(name.encode(), own.encode()) for name, own in some.items()]
    for some in (HEADERS, DEFAULTS)
)
_HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")

_MOST_BYTES = 1 << 28
_MOST_BYTES_PER_ADDRESS = 1 << 26
# A body may take this long, and then as long as it takes at the slowest rate.
_BODY_SECONDS = 10.0
_SLOWEST_BYTES_PER_SECOND = 1 << 14
# A campaign with 2^21 labels is larger, but nobody reads that many.
_LARGEST_JSON = 1 << 22
BODY = "sstq.body"  # where `Guard` puts it in the scope
# How much of a refused request is still read, so that its client sees the answer.
_DRAINED_BYTES = _LARGEST_JSON
_DRAIN_SECONDS = 2.0
_LARGE_BODY = 1 << 20  # who is refused with a larger one waits
# Reading costs an address one unit per request and one per so many bytes of the answer.
_BYTES_PER_UNIT = 1 << 16
# Who asks too fast waits this long for the refusal, so that asking again at once gains nothing.
_WAIT_SECONDS = 1.0


class Problem(HTTPException):
    """A refusal: its status, a sentence for people, and headers."""


def problem_response(problem: HTTPException) -> Response:
    """Return the refusal as application/problem+json."""
    content = json.dumps(
        {"status": problem.status_code, "detail": problem.detail}, ensure_ascii=False
    ).encode()
    return Response(content, problem.status_code, problem.headers, MEDIA_TYPE)


def unauthorized(detail: str) -> Problem:
    """A refusal that asks for a token."""
    return Problem(401, detail, {"WWW-Authenticate": "Bearer"})


def database_gone() -> Problem:
    """The refusal if the database does not respond; nothing was stored."""
    return Problem(
        503,
        "The database is not available; nothing was stored. Try again.",
        {"Retry-After": "5"},
    )


def too_fast(what: str, seconds: float) -> Problem:
    """The refusal for an address that asks too fast."""
    later = {"Retry-After": f"{math.ceil(seconds)}"}
    return Problem(429, f"Too many {what} from this address; try again later.", later)


def new_token() -> str:
    """Create a token of 192 random bits."""
    return secrets.token_urlsafe(24)


def token_hash(token: str) -> bytes:
    """The SHA-256 of a token, which is all that is stored; tokens are too random to be recovered from it."""
    return hashlib.sha256(token.encode()).digest()


def is_token(token: str | None, stored: bytes | None) -> bool:
    """Whether the token has this hash, compared in constant time."""
    return (
        token is not None
        and stored is not None
        and hmac.compare_digest(token_hash(token), stored)
    )


def check_binary(headers: Mapping[bytes, bytes]) -> None:
    """Raise a Problem unless the body of a request is bytes as they are."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if (
        kind != b"application/octet-stream"
        or headers.get(b"content-encoding", b"identity") != b"identity"
    ):
        raise Problem(
            415,
            "The Content-Type must be application/octet-stream, without a Content-Encoding.",
        )


def network(address: str) -> str:
    """The address, or the network that stands for one person."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


def address_of(scope: Scope) -> str:
    """Who counts as the sender of a request; behind a trusted proxy, the address that the proxy names."""
    return network(scope["client"][0]) if scope.get("client") else ""


class AddressLimits:
    """A bucket per address, which holds `burst` units and refills at a constant rate; a rate of 0 is no limit."""

    _MOST_ADDRESSES = 100_000

    def __init__(self, per_second: float, burst: int) -> None:
        self._rate = per_second
        self._burst = float(burst)
        # When the bucket of each address will be full again, which determines how full it is at any time.
        self._full_at: dict[str, float] = {}

    def take(
        self,
        address: str,
        units: float = 1.0,
        now: float | None = None,
        *,
        owed: bool = False,
    ) -> float:
        """Take units from the address's bucket and return 0, or return the seconds until they are there.

        More units than a bucket holds are taken from a full one. Units that were used already are `owed`: they are
        taken even if that leaves a debt.
        """
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        full_at = max(self._full_at.get(address, now), now) + units / self._rate
        excess = full_at - now - max(self._burst, units) / self._rate
        if excess > 1e-9 and not owed:
            return excess
        if len(self._full_at) >= self._MOST_ADDRESSES:
            self.forget(now)
            # so many at once: start afresh rather than grow
            if len(self._full_at) >= self._MOST_ADDRESSES:
                self._full_at = {}
        self._full_at[address] = full_at
        return 0.0

    def forget(self, now: float | None = None) -> None:
        """Drop the addresses whose bucket is full again, which need no entry."""
        now = time.monotonic() if now is None else now
        self._full_at = {
            known: full for known, full in self._full_at.items() if full > now
        }


class BodyShares(Counter[str]):
    """The bytes of bodies that have arrived and are not read to their end, by address, and of all under ""."""

    def take(self, address: str, size: int) -> None:
        """Count bytes that arrived; raises a Problem if that is too much."""
        if self[address] + size > _MOST_BYTES_PER_ADDRESS:
            raise Problem(
                429,
                "Too much is arriving from this address at once; try again.",
                {"Retry-After": "1"},
            )
        if self[""] + size > _MOST_BYTES:
            raise Problem(
                503,
                "Too many uploads are arriving at once; try again.",
                {"Retry-After": "1"},
            )
        self[address] += size
        self[""] += size

    def give_back(self, address: str, size: int) -> None:
        """Forget bytes that were counted."""
        self[address] -= size
        self[""] -= size
        if not self[address]:
            del self[address]


class RequestBody:
    """The body of a request, read within limits of size, time and bytes per address.

    Attributes:
        address: who counts as the sender of the request.
        headers: those of the request.
    """

    def __init__(self, shares: BodyShares, scope: Scope, receive: Receive) -> None:
        self._shares = shares
        self._receive = receive
        self._complete = False
        self.address = address_of(scope)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])

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
            raise ClientDisconnect
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
                    self._shares.take(self.address, len(part))
                    parts.append(part)
                    size += len(part)
                    if not self._complete:
                        earned = len(part) / _SLOWEST_BYTES_PER_SECOND
                        limit.reschedule(limit.when() + earned)  # type: ignore[operator]
        except TimeoutError as error:
            raise Problem(408, "The body of the request arrived too slowly.") from error
        finally:
            self._shares.give_back(self.address, size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def refuse(self, problem: HTTPException) -> Response:
        """Return the answer that refuses the request.

        The rest of the body is read first, within limits: a client that is still sending might not see the answer
        otherwise. If there is more, the connection is closed. Who sends too much, or a large body for nothing, waits,
        and nothing is read meanwhile: a client that begins again at once would keep the server and its proxy busy.
        """
        response = problem_response(problem)
        # the server has checked that it is a number
        stated = int(self.headers.get(b"content-length", 0))
        if problem.status_code == 429 or stated > _LARGE_BODY:
            await asyncio.sleep(_WAIT_SECONDS)
        size = 0
        unread = problem.status_code in (408, 411)
        try:
            async with asyncio.timeout(0 if unread else _DRAIN_SECONDS):
                while not self._complete and size <= _DRAINED_BYTES:
                    size += len(await self._next())
        except (TimeoutError, ClientDisconnect):
            pass
        if not self._complete:
            response.headers["Connection"] = "close"
        return response


class Guard:
    """The outermost layer: limits how fast an address may read, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, limits: AddressLimits, shares: BodyShares) -> None:
        self._app = app
        self._limits = limits
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limits = self._limits
        body = scope[BODY] = RequestBody(self._shares, scope, receive)
        address = body.address
        reads = scope["method"] in ("GET", "HEAD") and scope["path"] != "/health"

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = message.get("headers", [])
                if reads:  # before it is sent: who asks for more meanwhile waits
                    size = int(dict(sent).get(b"content-length", 0))
                    limits.take(address, size / _BYTES_PER_UNIT, owed=True)
                message["headers"] = _with_security(sent, scope["scheme"])
            await send(message)

        wait = limits.take(address) if reads else 0.0
        problem = too_fast("requests", wait) if wait else None
        if b"transfer-encoding" in body.headers:  # its trailers would have no limit
            problem = Problem(
                411, "Send the body with a Content-Length, not in chunks."
            )
        if problem is not None:
            response = await body.refuse(problem)
            await response(scope, receive, guarded)
        else:
            await self._app(scope, receive if reads else body.receive_json, guarded)


def _with_security(
    headers: list[tuple[bytes, bytes]], scheme: str
) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in headers}
    own = [*_ALWAYS, _HTTPS_ONLY] if scheme == "https" else _ALWAYS
    return [*headers, *own, *(header for header in _DEFAULTS if header[0] not in names)]
