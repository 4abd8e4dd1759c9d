"""The upload route, plain ASGI: every cheap check comes before the body is read, and every refusal has its sentence."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sstq.service.campaigns import Campaign
from sstq.service.collector import Collector, Entry, unknown_campaign
from sstq.service.database import DatabaseUnavailable
from sstq.service.inbox import InboxFull
from sstq.service.security import (
    ClientGone,
    Problem,
    RequestBody,
    bearer_token,
    content_type,
    is_token,
    token_hash,
    unauthorized,
)
from sstq.service.store import Receipt, Refusal, Upload

__all__ = ["ALLOW_ANY_ORIGIN", "Uploads"]

ALLOW_ANY_ORIGIN = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag, Retry-After, SSTQ-Signature",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
"""For answers that pages of any origin may read. No cookie is ever looked at, so there is nothing to ride on."""

_PREFLIGHT = ALLOW_ANY_ORIGIN | {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "authorization, content-type, idempotency-key, sstq-count, sstq-digest",
    "Access-Control-Max-Age": "86400",
    "Cache-Control": "max-age=86400",
}

_BODY_TYPE = "application/octet-stream"
_NAMES = ("idempotency-key", "sstq-count", "sstq-digest", "content-type", "content-length", "authorization")
_READ = {name.encode(): name for name in (*_NAMES, "content-encoding")}
# All uploads that are being read together; those that are read wait in the inbox, which has its own bound.
_MOST_BYTES_BEING_READ = 1 << 28
# Checking so much takes longer than the event loop should wait.
_CHECKED_AT_ONCE = 1 << 15

_REFUSALS = {
    Refusal.CLOSED: (410, "The campaign is closed."),
    Refusal.SPENT: (403, "The token is unknown or was used before."),
    Refusal.KEY: (
        422,
        "The Idempotency-Key was used before with another number of messages; choose a random key per upload.",
    ),
}


class Uploads:
    """POST /v1/campaigns/NAME/messages, and the preflight of browsers."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        entry: Entry | None = None
        body = RequestBody(receive)
        try:
            entry = await self._collector.entry(scope["path_params"]["name"])
            if scope["method"] == "OPTIONS":
                response = Response(status_code=204, headers=_PREFLIGHT if entry.from_anywhere else None)
            else:
                count = await self._take(entry, scope, body)
                response = Response(b'{"count":%d}' % count, media_type="application/json")
        except ClientGone:
            return
        except Problem as problem:
            response = await body.refuse(problem)
        except DatabaseUnavailable:
            response = await body.refuse(database_gone())
        if scope["method"] == "POST":
            self._collector.metrics.uploads[entry.campaign.name if entry else "", response.status_code] += 1
        if entry is not None and entry.from_anywhere:
            response.headers.update(ALLOW_ANY_ORIGIN)
        await response(scope, receive, send)

    async def _take(self, entry: Entry, scope: Scope, body: RequestBody) -> int:
        """Read, check and store an upload; returns how many messages it has once they are durable."""
        campaign, headers = entry.campaign, _headers(scope)
        key, count = _key(headers), _count(headers, campaign)
        _check_digest(headers, campaign)
        size = _size(headers, campaign, count)
        status = campaign.status(datetime.now(UTC))
        if status == "scheduled":
            raise Problem(425, f"The campaign opens at {campaign.terms()['opens']}.")
        token = self._token(entry, headers, scope)
        raw = await self._read(body, campaign, count, size)
        try:
            if size <= _CHECKED_AT_ONCE:
                campaign.check(raw, count)
            else:
                await asyncio.to_thread(campaign.check, raw, count)
        except ValueError as error:
            raise Problem(422, f"The messages are malformed: {error}.") from error
        # Even after the end: a retry of what arrived in time gets its answer.
        late = status == "closed" or entry.stored.closed
        try:
            answer = await self._collector.inbox.submit(Upload(campaign.name, key, count, raw, token, late))
        except InboxFull as error:
            raise Problem(503, "Too many uploads wait to be stored; try again.", {"Retry-After": "1"}) from error
        if isinstance(answer, Receipt):
            return answer.count
        if answer in (Refusal.UNKNOWN, Refusal.CLOSED):
            # Another process may have deleted or closed it.
            self._collector.forget(campaign.name)
        raise unknown_campaign() if answer is Refusal.UNKNOWN else Problem(*_REFUSALS[answer])

    def _token(self, entry: Entry, headers: Mapping[str, str], scope: Scope) -> bytes | None:
        """The hash of the single-use token, where it takes one; a refusal where the sender may not send."""
        senders = entry.campaign.senders
        if senders == "everybody":
            wait = self._collector.limits.wait(scope["client"][0] if scope["client"] else "")
            if wait:
                seconds = str(math.ceil(wait))
                raise Problem(429, "Too many uploads from this address; send larger ones.", {"Retry-After": seconds})
            return None
        token = bearer_token(headers.get("authorization"))
        if token is None:
            raise unauthorized("Sending to this campaign needs a token: add the header “Authorization: Bearer TOKEN”.")
        if senders == "single-use":
            # Looked up with the key, in one transaction: a retry with a token that is spent by now must succeed.
            return token_hash(token)
        if not is_token(token, entry.tokens.get("send_token")):
            raise Problem(403, "The token is not the campaign's token for senders.")
        return None

    async def _read(self, body: RequestBody, campaign: Campaign, count: int, size: int) -> bytes:
        collector = self._collector
        if collector.bytes_being_read + size > _MOST_BYTES_BEING_READ:
            raise Problem(503, "Too many uploads arrive at once; try again.", {"Retry-After": "1"})
        collector.bytes_being_read += size
        try:
            raw = await body.read(size, _wrong_size(campaign, count, size, "more"))
        finally:
            collector.bytes_being_read -= size
        if len(raw) != size:
            raise _wrong_size(campaign, count, size, str(len(raw)))
        return raw


def database_gone() -> Problem:
    """The database does not answer; nothing was stored."""
    return Problem(503, "The database is not available; nothing was stored. Try again.", {"Retry-After": "5"})


def _headers(scope: Scope) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = _READ.get(raw)
        if name is not None:
            if name in found:
                raise Problem(400, f"The header {name} occurs twice.")
            found[name] = value.decode("latin-1")
    if content_type(found) != _BODY_TYPE or found.get("content-encoding", "identity") != "identity":
        raise Problem(415, f"The Content-Type must be {_BODY_TYPE}, without a Content-Encoding.")
    return found


def _key(headers: Mapping[str, str]) -> bytes:
    key = headers.get("idempotency-key", "")
    if not re.fullmatch("[0-9a-f]{32}", key):
        raise Problem(400, "The header Idempotency-Key must be 32 hexadecimal digits (0-9, a-f) chosen at random.")
    return bytes.fromhex(key)


def _count(headers: Mapping[str, str], campaign: Campaign) -> int:
    text = headers.get("sstq-count", "")
    if not re.fullmatch("[1-9][0-9]{0,9}", text):
        raise Problem(400, "The header SSTQ-Count must be the number of messages, 1 or more.")
    if int(text) > campaign.most_messages:
        raise Problem(413, f"An upload to this campaign has at most {campaign.most_messages} messages, got {text}.")
    return int(text)


def _check_digest(headers: Mapping[str, str], campaign: Campaign) -> None:
    digest = headers.get("sstq-digest", "")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise Problem(400, "The header SSTQ-Digest must be the digest of the mechanism, 64 hexadecimal digits.")
    if digest != campaign.digest:
        raise Problem(
            409,
            f"The messages are of another mechanism: this campaign has the digest {campaign.digest}. Fetch it again.",
        )


def _size(headers: Mapping[str, str], campaign: Campaign, count: int) -> int:
    """How many bytes so many messages take; a refusal if the request says that it has another number."""
    size = -(-count * campaign.mechanism.message_bits // 8)
    stated = headers.get("content-length")
    if stated is not None and not re.fullmatch("[0-9]{1,18}", stated):
        raise Problem(400, "The header Content-Length must be a number of bytes.")
    if stated is not None and int(stated) > campaign.largest_upload:
        raise Problem(413, f"An upload to this campaign has at most {campaign.largest_upload} bytes, got {stated}.")
    if stated is not None and int(stated) != size:
        raise _wrong_size(campaign, count, size, stated)
    return size


def _wrong_size(campaign: Campaign, count: int, size: int, got: str) -> Problem:
    bits = campaign.mechanism.message_bits
    return Problem(422, f"{count} messages of {bits} bits take {size} bytes, got {got}.")
