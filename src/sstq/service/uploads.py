"""The upload route in plain ASGI: cheap checks come before the body is read, and every refusal has a sentence."""

import asyncio
import re
import time
from binascii import unhexlify
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sstq.client.campaigns import Campaign
from sstq.service.database import DatabaseUnavailable
from sstq.service.node import Node, RunningCampaign, is_full
from sstq.service.receiving import Answer, Refusal, Upload
from sstq.service.security import (
    BODY,
    Problem,
    RequestBody,
    check_binary,
    database_gone,
    token_hash,
    too_fast,
    unauthorized,
)

UPLOADS = "/v1/campaigns/{name}/messages"
"""The path of the route."""

_READABLE = {
    "Access-Control-Expose-Headers": "ETag, Retry-After, SSTQ-Signature, SSTQ-Shuffler-Signature",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
ALLOW_ANY_ORIGIN = {"Access-Control-Allow-Origin": "*"} | _READABLE
"""Headers of answers that pages of any origin may read. No cookie is used, so cross-site requests gain nothing."""

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "authorization, content-type, idempotency-key, sstq-count, sstq-digest",
    "Access-Control-Max-Age": "600",
}

_PATH = re.compile(UPLOADS.replace("{name}", "([^/]+)"))

_FORMS = {
    b"idempotency-key": (
        re.compile(rb"[0-9a-f]{32}"),
        "Idempotency-Key must be 32 hexadecimal digits (0-9, a-f) chosen at random",
    ),
    b"sstq-count": (
        re.compile(rb"[1-9][0-9]{0,9}"),
        "SSTQ-Count must be the number of messages, 1 or more",
    ),
    b"sstq-digest": (
        re.compile(rb"[0-9a-f]{64}"),
        "SSTQ-Digest must be the digest of the mechanism, 64 hexadecimal digits",
    ),
}


class Uploads:
    """POST and GET /v1/campaigns/NAME/messages, and browsers' preflight requests.

    They are answered before the app looks for a route: its layers would cost as much as all the work here.
    """

    def __init__(self, app: ASGIApp, node: Node) -> None:
        self._app = app
        self._node = node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an upload; pass on any other request."""
        named = _PATH.fullmatch(scope.get("path", ""))
        if named is None:
            await self._app(scope, receive, send)
            return
        name = named[1]
        begun = time.perf_counter()
        entry: RunningCampaign | None = None
        headers: dict[str, str] = {}
        body: RequestBody = scope[BODY]
        try:
            if scope["method"] not in ("GET", "POST", "OPTIONS"):
                raise Problem(
                    405,
                    "This path does not support this method.",
                    {"Allow": "GET, OPTIONS, POST"},
                )
            entry = await self._node.entry(name)
            headers = _of_origin(entry, body.headers)
            if scope["method"] == "OPTIONS":
                response = Response(
                    status_code=204, headers=_PREFLIGHT if headers else None
                )
            elif scope["method"] == "GET":
                response = JSONResponse(
                    {"messages": await self._allowance(entry, body.headers)}
                )
            else:
                count = await self._take(entry, body)
                response = Response(
                    b'{"count":%d}' % count, media_type="application/json"
                )
        except ClientDisconnect:
            return
        except Problem as problem:
            response = await body.refuse(problem)
        except DatabaseUnavailable:
            response = await body.refuse(database_gone())
        response.headers.update(headers)
        if scope["method"] == "POST":
            self._node.metrics.uploads.labels(
                name if entry else "", response.status_code
            ).inc()
            if response.status_code == 200:  # some refusals wait on purpose
                self._node.metrics.seconds.observe(time.perf_counter() - begun)
        await response(scope, receive, send)

    async def _allowance(
        self, entry: RunningCampaign, headers: Mapping[bytes, bytes]
    ) -> int | None:
        """How many messages the sender may still send; None without a limit. Clients ask before they spend anything."""
        self._check_direct(entry)
        store = self._node.store
        payer = entry.stored.payer
        limits: list[int | None] = []
        if entry.is_stage:
            rooms = await asyncio.to_thread(store.rooms, [entry.name])
            limits += rooms.values() if self._node.goes_on(payer) else [0]
        if any(map(is_full, limits)) or entry.is_closed(self._node.clock.now()):
            raise self._closed(entry)
        token, sender = _tokens(entry, headers)
        if token or sender:
            limits.append(
                await asyncio.to_thread(store.allowance, payer, token, sender)
            )
        elif any(limits):
            # The room itself would tell everybody how many people came, whatever the steps for readers are.
            limits.append(entry.campaign.most_messages)
        return min((limit for limit in limits if limit is not None), default=None)

    def _closed(self, entry: RunningCampaign) -> Problem:
        """The refusal of a closed campaign; after a stage of a study that goes on, clients look for the next one."""
        goes_on = entry.is_stage and self._node.goes_on(entry.stored.payer)
        return Problem(*Refusal.CLOSED.value, {"Retry-After": "5"} if goes_on else {})

    def _check_direct(self, entry: RunningCampaign) -> None:
        campaign = entry.campaign
        if entry.is_study:
            raise Problem(409, f"This is a study: send to its stage, {campaign.name}.")
        if campaign.shuffling is not None and self._node.role != "shuffler":
            raise Problem(
                409,
                f"This campaign is shuffled: send envelopes to {campaign.shuffling.url}.",
            )

    async def _take(self, entry: RunningCampaign, body: RequestBody) -> int:
        """Read, check and store an upload; returns its number of messages once they are durable."""
        campaign = entry.campaign
        headers = body.headers
        check_binary(headers)
        for name, (form, meaning) in _FORMS.items():
            if not form.fullmatch(headers.get(name, b"")):
                raise Problem(400, f"The header {meaning}.")
        self._check_direct(entry)
        key = unhexlify(headers[b"idempotency-key"])
        count = int(headers[b"sstq-count"])
        if headers[b"sstq-digest"] != campaign.digest.encode():
            told = f"the digest of this campaign is {campaign.digest}. Fetch it again."
            raise Problem(409, f"The messages come from another mechanism: {told}")
        token, sender = _tokens(entry, headers)
        most = campaign.most_messages if sender is None else campaign.most_in_batch
        anonymous = token is None and sender is None
        if count > most:
            raise _too_many(campaign, count, most, anonymous)
        size = campaign.upload_bytes(count)
        # the server has checked that it is a number
        stated = headers.get(b"content-length", b"%d" % size)
        if int(stated) != size:
            raise _wrong_size(campaign, count, size, stated.decode())
        status = campaign.status(self._node.clock.now())
        if status == "scheduled":
            raise Problem(425, f"The campaign opens at {campaign.terms()['opens']}.")
        if anonymous:
            wait = self._node.sending.take(body.address, count)
            if wait:
                raise too_fast("messages", wait)
        raw = await body.read(size)
        if len(raw) != size:
            raise _wrong_size(
                campaign, count, size, "more" if len(raw) > size else str(len(raw))
            )
        raw = self._node.unpacked(entry, raw)
        # Even after the end, so that a retry of an upload that arrived in time is answered.
        late = status == "closed" or entry.stored.closed
        answer = await self._node.inbox.submit(
            Upload(campaign.name, key, count, raw, token, late, sender)
        )
        return self._durable(entry, answer)

    def _durable(self, entry: RunningCampaign, answer: Answer) -> int:
        """The number of messages that are durable; raises a Problem for those that are refused."""
        if answer is Refusal.CLOSED:
            raise self._closed(entry)
        if isinstance(answer, Refusal):
            raise Problem(*answer.value)
        if isinstance(answer, str):
            raise Problem(422, f"The messages are malformed: {answer}.")
        return answer


def _of_origin(
    entry: RunningCampaign, headers: Mapping[bytes, bytes]
) -> dict[str, str]:
    """The headers that let a web page read the answer; raises a Problem if pages of its origin may not send."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if not origin or origin.partition("://")[2] == host:
        return {}
    if "*" not in entry.own.origins and origin not in entry.own.origins:
        raise Problem(
            403,
            f"Pages of {origin} may not send to this campaign; its owner allows them with "
            f"sstq campaign change {entry.stored.payer} --origin {origin}",
        )
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"} | _READABLE


def _tokens(
    entry: RunningCampaign, headers: Mapping[bytes, bytes]
) -> tuple[bytes | None, bytes | None]:
    """Return the hashes of the single-use token and of the sender's token; raises a Problem for any other."""
    senders = entry.campaign.senders
    if b"authorization" not in headers:
        if senders == "everybody":
            return None, None
        raise unauthorized(
            "Sending to this campaign needs a token: add the header “Authorization: Bearer TOKEN”."
        )
    scheme, _, given = headers[b"authorization"].decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise unauthorized("The Authorization header must be “Bearer TOKEN”.")
    digest = token_hash(given.strip())
    if senders == "single-use":
        # Checked together with the key, in one transaction: a retry whose token was spent by now must succeed.
        return digest, None
    if digest not in entry.stored.senders:
        raise Problem(*Refusal.SENDER.value)
    return None, digest


def _too_many(campaign: Campaign, count: int, most: int, anonymous: bool) -> Problem:
    what = "people" if campaign.shuffling is not None else "messages"
    text = (
        f"This upload to {campaign.name} must have at most {most} {what}, got {count}."
    )
    if anonymous:
        text += " Batches need a sender's token: ask the campaign's owner."
    return Problem(413, text)


def _wrong_size(campaign: Campaign, count: int, size: int, got: str) -> Problem:
    if campaign.shuffling is not None:
        each = f"{campaign.slots} × {campaign.envelope_bytes} bytes"
        return Problem(
            422,
            f"A person's envelopes of {each} take {size} bytes with their cover, got {got}.",
        )
    return Problem(
        422,
        f"{count} messages of {campaign.message_bits} bits take {size} bytes, got {got}.",
    )
