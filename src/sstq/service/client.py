"""A client of a collector: it fetches and checks a campaign, encodes vectors, and sends messages until they count."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import ArrayLike

from sstq.accounting import Ledger
from sstq.accounting.ledger import ledger_price
from sstq.checks import check_argument
from sstq.messages.batch import Messages
from sstq.service.campaigns import Campaign, read_document
from sstq.service.http import Answer, Refused, Unreachable, request
from sstq.service.signing import verify

__all__ = ["Client"]

# Statuses after which the same upload may succeed: too slow, too fast, and mistakes of servers and proxies.
_PASSING = {408, 429, 500, 502, 503, 504}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class Client:
    """Sends to one campaign, whose document it has fetched and checked.

    Args:
        url: the collector's address with the campaign's name, such as https://collect.example/steps.
        most_epsilon: the greatest ε of one message; a campaign that asks for more is refused.
        pinned_key: the collector's public key in hexadecimal, known from elsewhere. Without it, whoever answers at the
            address is believed, which is as good as its TLS.
        ledger: is charged for each call of `send` before anything leaves.
        token: for campaigns that not everybody may send to.
        patience: after how many seconds without success to give up.

    Raises:
        ValueError: the campaign cannot be fetched, its signature is wrong, or it asks for more than is allowed.

    Attributes:
        campaign: what the collector asks for.
        key: the collector's public key in hexadecimal, to be pinned from now on.
    """

    def __init__(
        self,
        url: str,
        *,
        most_epsilon: float,
        pinned_key: str | None = None,
        ledger: Ledger | None = None,
        token: str | None = None,
        patience: float = 300.0,
    ) -> None:
        check_argument("most_epsilon", most_epsilon, of="round_epsilon")
        base, _, name = url.rstrip("/").rpartition("/")
        if not urlsplit(base).netloc or not name:
            raise ValueError(f"url must be the collector's address and the campaign, such as {url}/NAME, got {url!r}")
        self._url = f"{base}/v1/campaigns/{name}"
        self._token, self._ledger, self._patience = token, ledger, patience
        answer = self._until_answered(lambda: request("GET", self._url))
        signature = answer.headers.get("SSTQ-Signature", "")
        campaign, keys = read_document(answer.content)
        self.key = _signer(answer.content, signature, keys, pinned_key)
        if campaign.name != name:
            raise ValueError(f"the collector answered with the campaign {campaign.name!r} instead of {name!r}")
        self.campaign: Campaign = campaign
        self._price = ledger_price(campaign.mechanism)
        if self._price > most_epsilon:
            raise ValueError(
                f"the campaign asks for epsilon = {self._price!r} per message, more than most_epsilon = "
                f"{most_epsilon!r}; nothing was sent"
            )

    def send(
        self,
        X: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        progress: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Encode each row as one message and send them; returns how many the collector has acknowledged: all.

        Each row is another person's, so that the ledger is charged once. A message is encoded once: retries repeat its
        bytes and its key, so that it counts once and costs nothing more.

        Args:
            X: vectors, one per row.
            groups: one private group per row, for mechanisms that have them.
            progress: is called with the number of messages after each upload.

        Raises:
            ValueError: the collector refused it, or there was no success within the client's patience; the message
                says how many messages count.
        """
        # All of it before anything leaves: a row that cannot be encoded must not leave half a file behind.
        messages = self.campaign.mechanism.encode(np.atleast_2d(np.asarray(X)), groups=groups)
        return self.send_messages(messages, progress=progress)

    def send_messages(self, messages: Messages, *, progress: Callable[[int], object] = lambda _: None) -> int:
        """Send messages of the campaign's mechanism that were never sent before; otherwise as `send`."""
        if messages.digest != self.campaign.digest:
            raise ValueError("messages must be of the campaign's mechanism; encode them with `campaign.mechanism`")
        if self.campaign.senders == "single-use" and len(messages) > 1:
            raise ValueError(f"X must be one vector, got {len(messages)}: a single-use token stands for one person")
        if messages.simulated:
            raise ValueError("messages must be made with secret randomness, got some that were made from a seed")
        if self._ledger is not None and len(messages):
            self._ledger.spend(self._price, f"{self.campaign.name} {secrets.token_hex(16)}")
        sent, most = 0, self.campaign.most_messages
        for start in range(0, len(messages), most):
            some = messages[start : start + most]
            try:
                self._upload(some.to_bytes(), len(some))
            except (Refused, Unreachable) as error:
                raise ValueError(f"{error} ({sent} of {len(messages)} messages count)") from error
            sent += len(some)
            progress(len(some))
        return sent

    def _upload(self, body: bytes, count: int) -> None:
        headers = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": secrets.token_hex(16),
            "SSTQ-Count": str(count),
            "SSTQ-Digest": self.campaign.digest,
        }
        url = f"{self._url}/messages"
        answer = self._until_answered(lambda: request("POST", url, token=self._token, headers=headers, body=body))
        if answer.json() != {"count": count}:
            raise Unreachable("the collector's receipt is of another upload")

    def _until_answered(self, ask: Callable[[], Answer]) -> Answer:
        """Ask again, with growing pauses, until there is an answer that another try would not change."""
        ends, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return ask()
            except (Refused, Unreachable) as error:
                if isinstance(error, Refused) and error.status not in _PASSING:
                    raise
                asked = (error.retry_after or 0.0) if isinstance(error, Refused) else 0.0
                # Many clients that failed together should not come back together.
                wait = max(asked, pause) * random.uniform(1.0, 1.5)
                if time.monotonic() + wait > ends:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _signer(document: bytes, signature: str, keys: tuple[bytes, ...], pinned: str | None) -> str:
    """The key that signed the document, in hexadecimal; ValueError unless it is the pinned one, or one it names."""
    if pinned is not None:
        try:
            wanted = [bytes.fromhex(pinned)]
        except ValueError as error:
            raise ValueError(f"pinned_key must be 64 hexadecimal digits, got {pinned!r}") from error
        if wanted[0] not in keys:
            found = " ".join(key.hex() for key in keys)
            raise ValueError(f"the collector has another key than the pinned one: {found}; nothing was sent")
    else:
        wanted = list(keys)
    for key in wanted:
        try:
            verify(document, signature, key)
        except ValueError:
            continue
        return key.hex()
    raise ValueError("the campaign's signature is wrong: somebody changed it on the way; nothing was sent")
