"""The upload route in plain ASGI: cheap checks come before the body is read, and every refusal has a sentence."""

from __future__ import annotations

import math
import re
from binascii import unhexlify
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sstq.client.campaigns import Campaign
from sstq.service.database import DatabaseUnavailable
from sstq.service.inbox import InboxFull
from sstq.service.node import Entry, Node, unknown_campaign
from sstq.service.receiving import Malformed, Receipt, Refusal, Upload
from sstq.service.security import (
    ANSWER_AT_ONCE,
    BODY_ARRIVED,
    ClientGone,
    Problem,
    RequestBody,
    bearer_token,
    is_token,
    token_hash,
    unauthorized,
    with_security,
)

__all__ = ["ALLOW_ANY_ORIGIN", "UPLOADS", "Uploads"]

UPLOADS = "/v1/campaigns/{name}/messages"
"""The path of the route."""

ALLOW_ANY_ORIGIN = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag, Retry-After, SSTQ-Signature, SSTQ-Shuffler-Signature",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
"""Headers of answers that pages of any origin may read. No cookie is used, so cross-site requests gain nothing."""

_PREFLIGHT = ALLOW_ANY_ORIGIN | {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "authorization, content-type, idempotency-key, sstq-count, sstq-digest",
    "Access-Control-Max-Age": "86400",
    "Cache-Control": "max-age=86400",
}

_PREFIX, _SUFFIX = UPLOADS.split("{name}")
_JSON = {"Content-Type": "application/json"}

_BODY_TYPE = b"application/octet-stream"
_READ = (
    *(b"idempotency-key", b"sstq-count", b"sstq-digest", b"authorization"),
    *(b"content-type", b"content-length", b"content-encoding"),
)
_KEY, _COUNT, _DIGEST, _BYTES = (
    re.compile(pattern).fullmatch for pattern in (b"[0-9a-f]{32}", b"[1-9][0-9]{0,9}", b"[0-9a-f]{64}", b"[0-9]{1,18}")
)
# The total size of uploads being read; complete ones wait in the inbox, which has its own limit.
_MOST_BYTES_BEING_READ = 1 << 28

_REFUSALS = {
    Refusal.CLOSED: (410, "The campaign is closed."),
    Refusal.SPENT: (403, "The token is unknown or was used before."),
    Refusal.KEY: (
        422,
        "The Idempotency-Key was used before with another number of messages; choose a new random key per upload.",
    ),
}


class Uploads:
    """POST /v1/campaigns/NAME/messages, and browsers' preflight requests.

    They are answered before the app looks for a route: its layers would cost as much as all the work here.
    """

    def __init__(self, app: ASGIApp, collector: Node) -> None:
        self._app = app
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an upload; pass on any other request."""
        path = scope.get("path", "")
        name = path[len(_PREFIX) : -len(_SUFFIX)]
        if not path.startswith(_PREFIX) or not path.endswith(_SUFFIX) or not name or "/" in name:
            await self._app(scope, receive, send)
        elif scope["method"] == "POST":
            await self._answer(name, scope, receive, send)
        else:
            response = await self._answer_others(name, scope, receive)
            await response(scope, receive, send)

    async def _answer(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        entry: Entry | None = None
        body = RequestBody(receive, arrived=scope.get(BODY_ARRIVED, False))
        try:
            entry = await self._collector.entry(name)
            content = b'{"count":%d}' % await self._take(entry, scope, body)
        except ClientGone:
            return
        except Problem as problem:
            response = await body.refuse(problem)
        except DatabaseUnavailable:
            response = await body.refuse(database_gone())
        else:
            at_once = scope.get(ANSWER_AT_ONCE)
            if at_once and at_once(scope, _head(scope["scheme"], entry.from_anywhere), content):
                self._collector.metrics.uploads[name, 200] += 1
                return
            response = Response(content, headers=_JSON)
        self._collector.metrics.uploads[name if entry else "", response.status_code] += 1
        if entry is not None and entry.from_anywhere:
            response.headers.update(ALLOW_ANY_ORIGIN)
        await response(scope, receive, send)

    async def _answer_others(self, name: str, scope: Scope, receive: Receive) -> Response:
        body = RequestBody(receive)
        if scope["method"] != "OPTIONS":
            return await body.refuse(
                Problem(405, "This path does not support this method.", {"Allow": "OPTIONS, POST"})
            )
        try:
            entry = await self._collector.entry(name)
        except Problem as problem:
            return await body.refuse(problem)
        except DatabaseUnavailable:
            return await body.refuse(database_gone())
        return Response(status_code=204, headers=_PREFLIGHT if entry.from_anywhere else None)

    async def _take(self, entry: Entry, scope: Scope, body: RequestBody) -> int:
        """Read, check and store an upload; returns its number of messages once they are durable."""
        campaign, headers = entry.campaign, _headers(scope)
        self._admit(campaign)
        key, count = _key(headers), _count(headers, campaign)
        _check_digest(headers, campaign)
        size = _size(headers, campaign, count)
        status = campaign.status(datetime.now(UTC))
        if status == "scheduled":
            raise Problem(425, f"The campaign opens at {campaign.terms()['opens']}.")
        token = self._token(entry, headers, scope)
        raw = await self._read(body, campaign, count, size)
        raw = self._unpacked(entry, raw)
        # Even after the end, so that a retry of an upload that arrived in time is answered.
        late = status == "closed" or entry.stored.closed
        try:
            answer = await self._collector.inbox.submit(Upload(campaign.name, key, count, raw, token, late))
        except InboxFull as error:
            raise Problem(503, "Too many uploads are waiting to be stored; try again.", {"Retry-After": "1"}) from error
        if isinstance(answer, Receipt):
            return answer.count
        if isinstance(answer, Malformed):
            raise Problem(422, f"The messages are malformed: {answer.reason}.")
        if answer in (Refusal.UNKNOWN, Refusal.CLOSED):
            # Another process may have deleted or closed the campaign.
            self._collector.forget(campaign.name)
        raise unknown_campaign() if answer is Refusal.UNKNOWN else Problem(*_REFUSALS[answer])

    def _admit(self, campaign: Campaign) -> None:
        """Raise a Problem if messages of this campaign go elsewhere."""
        if campaign.shuffling is not None:
            raise Problem(409, f"This campaign is shuffled: send envelopes to {campaign.shuffling.url}.")

    def _unpacked(self, entry: Entry, raw: bytes) -> bytes:  # noqa: ARG002
        """Return what to store; raises a Problem if there is nothing. The store checks the messages."""
        return raw

    def _token(self, entry: Entry, headers: Mapping[bytes, bytes], scope: Scope) -> bytes | None:
        """Return the hash of the single-use token, if one is needed; raises a Problem if the sender may not send."""
        senders = entry.campaign.senders
        if senders == "everybody":
            wait = self._collector.limits.wait(scope["client"][0] if scope["client"] else "")
            if wait:
                seconds = str(math.ceil(wait))
                raise Problem(429, "Too many uploads from this address; send larger ones.", {"Retry-After": seconds})
            return None
        stated = headers.get(b"authorization")
        token = bearer_token(None if stated is None else stated.decode("latin-1"))
        if token is None:
            raise unauthorized("Sending to this campaign needs a token: add the header “Authorization: Bearer TOKEN”.")
        if senders == "single-use":
            # Checked together with the key, in one transaction: a retry whose token was spent by now must succeed.
            return token_hash(token)
        if not is_token(token, entry.tokens.get("send_token")):
            raise Problem(403, "The token is not the campaign's sender token.")
        return None

    async def _read(self, body: RequestBody, campaign: Campaign, count: int, size: int) -> bytes:
        collector = self._collector
        if collector.bytes_being_read + size > _MOST_BYTES_BEING_READ:
            raise Problem(503, "Too many uploads are arriving at once; try again.", {"Retry-After": "1"})
        collector.bytes_being_read += size
        try:
            raw = await body.read(size)
        finally:
            collector.bytes_being_read -= size
        if len(raw) != size:
            raise _wrong_size(campaign, count, size, "more" if len(raw) > size else str(len(raw)))
        return raw


def database_gone() -> Problem:
    """The refusal if the database does not respond; nothing was stored."""
    return Problem(503, "The database is not available; nothing was stored. Try again.", {"Retry-After": "5"})


@cache
def _head(scheme: str, from_anywhere: bool) -> bytes:
    """The headers of a receipt as they are sent."""
    headers = _JSON | (ALLOW_ANY_ORIGIN if from_anywhere else {})
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return b"".join([b"%b: %b\r\n" % header for header in with_security(raw, scheme)])


def _headers(scope: Scope) -> Mapping[bytes, bytes]:
    pairs = scope["headers"]
    headers = dict(pairs)
    if len(headers) < len(pairs):
        names = [name for name, _ in pairs]
        for name in _READ:
            if names.count(name) > 1:
                raise Problem(400, f"The header {name.decode()} occurs twice.")
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != _BODY_TYPE or headers.get(b"content-encoding", b"identity") != b"identity":
        raise Problem(415, f"The Content-Type must be {_BODY_TYPE.decode()}, without a Content-Encoding.")
    return headers


def _key(headers: Mapping[bytes, bytes]) -> bytes:
    key = headers.get(b"idempotency-key", b"")
    if not _KEY(key):
        raise Problem(400, "The header Idempotency-Key must be 32 hexadecimal digits (0-9, a-f) chosen at random.")
    return unhexlify(key)


def _count(headers: Mapping[bytes, bytes], campaign: Campaign) -> int:
    text = headers.get(b"sstq-count", b"")
    if not _COUNT(text):
        raise Problem(400, "The header SSTQ-Count must be the number of messages, 1 or more.")
    count = int(text)
    if count > campaign.most_messages:
        raise Problem(
            413, f"An upload to this campaign must have at most {campaign.most_messages} messages, got {count}."
        )
    return count


def _check_digest(headers: Mapping[bytes, bytes], campaign: Campaign) -> None:
    digest = headers.get(b"sstq-digest", b"")
    if digest == campaign.digest.encode():
        return
    if not _DIGEST(digest):
        raise Problem(400, "The header SSTQ-Digest must be the digest of the mechanism, 64 hexadecimal digits.")
    raise Problem(
        409,
        f"The messages come from another mechanism: the digest of this campaign is {campaign.digest}. Fetch it again.",
    )


def _size(headers: Mapping[bytes, bytes], campaign: Campaign, count: int) -> int:
    """Return the size of this many messages in bytes; raises a Problem if Content-Length differs."""
    size = campaign.upload_bytes(count)
    stated = headers.get(b"content-length")
    if stated is None:
        return size
    if not _BYTES(stated):
        raise Problem(400, "The header Content-Length must be a number of bytes.")
    if int(stated) > campaign.largest_upload:
        raise Problem(
            413, f"An upload to this campaign must have at most {campaign.largest_upload} bytes, got {int(stated)}."
        )
    if int(stated) != size:
        raise _wrong_size(campaign, count, size, str(int(stated)))
    return size


def _wrong_size(campaign: Campaign, count: int, size: int, got: str) -> Problem:
    if campaign.shuffling is not None:
        each = f"{campaign.slots} × {campaign.envelope_bytes} bytes"
        return Problem(422, f"A person's envelopes of {each} take {size} bytes with their cover, got {got}.")
    return Problem(422, f"{count} messages of {campaign.message_bits} bits take {size} bytes, got {got}.")
