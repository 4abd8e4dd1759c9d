"""The client of a collector: it fetches and checks a campaign, encodes vectors, and retries until they are stored."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import IO
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import ArrayLike

from sstq.accounting import Ledger
from sstq.accounting.ledger import ledger_price
from sstq.checks import check_argument
from sstq.client.campaigns import Campaign, read_document, sealing_keys_of
from sstq.client.http import Answer, Refused, Unreachable, request
from sstq.client.sealing import OVERHEAD, payloads, seal_people
from sstq.client.signing import SHUFFLER_PREFIX, signer, verify
from sstq.messages.batch import Messages

__all__ = ["Client"]

# Statuses after which the same upload may succeed: too slow, too fast, and errors of servers and proxies.
_PASSING = {408, 429, 500, 502, 503, 504}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_MOST_BYTES_IN_MEMORY = 1 << 24


class Client:
    """Fetches and checks one campaign, and sends messages to it.

    Args:
        url: the collector's address with the campaign's name, such as https://collect.example/steps; for a shuffled
            campaign the address of the shuffler works as well.
        most_epsilon: the maximum ε per person; a campaign that asks for more is refused. For a shuffled campaign this
            is the total of all of a person's messages if the shuffler cheats.
        pinned_key: the collector's public key in hexadecimal, known from elsewhere. Without it, whoever answers at this
            address is trusted, which is as secure as its TLS.
        pinned_shuffler: the public key in hexadecimal of the shuffler to trust. With it, a campaign that names another
            shuffler or none is refused. Without it, whichever shuffler the collector names is trusted.
        ledger: a ledger that each call of `send` charges before anything leaves.
        token: the shared or single-use token of a campaign that needs one.
        patience: how many seconds to retry without success before giving up.

    Raises:
        ValueError: the campaign cannot be fetched, its signature is wrong, or it asks for more than is allowed.

    Attributes:
        campaign: what the collector asks for.
        key: the collector's public key in hexadecimal, for pinning from now on.
        shuffler_key: the shuffler's public key in hexadecimal; None for a campaign that is not shuffled.
    """

    def __init__(
        self,
        url: str,
        *,
        most_epsilon: float,
        pinned_key: str | None = None,
        pinned_shuffler: str | None = None,
        ledger: Ledger | None = None,
        token: str | None = None,
        patience: float = 300.0,
    ) -> None:
        check_argument("most_epsilon", most_epsilon, of="answer_epsilon")
        base, _, name = url.rstrip("/").rpartition("/")
        if not urlsplit(base).netloc or not name:
            raise ValueError(
                f"url must be the collector's address with the campaign's name, such as {url}/NAME, got {url!r}"
            )
        self._url = f"{base}/v1/campaigns/{name}"
        self._token, self._ledger, self._patience = token, ledger, patience
        answer = self._until_answered(lambda: request("GET", self._url))
        signature = answer.headers.get("SSTQ-Signature", "")
        campaign, keys = read_document(answer.content)
        self.key = signer(answer.content, signature, keys, pinned_key)
        if campaign.name != name:
            raise ValueError(f"the collector returned the campaign {campaign.name!r} instead of {name!r}")
        self.campaign: Campaign = campaign
        self.shuffler_key = self._check_shuffler(answer, pinned_shuffler)
        self._price = ledger_price(campaign.mechanism)
        if self._price > most_epsilon:
            raise ValueError(
                f"the campaign asks for epsilon = {self._price!r} per person, more than most_epsilon = "
                f"{most_epsilon!r}; nothing was sent. To allow it, pass most_epsilon={self._price!r}"
            )

    def _check_shuffler(self, document: Answer, pinned: str | None) -> str | None:
        """Return the public key of the campaign's shuffler, which must have signed the same document; None without one.

        The shuffler hands out one document, so the collector cannot show different keys to different clients.
        """
        terms = self.campaign.shuffling
        if pinned is not None and (terms is None or terms.key != pinned):
            found = "no shuffler" if terms is None else f"the shuffler {terms.key}"
            raise ValueError(f"the campaign names {found} instead of the pinned one; nothing was sent")
        if terms is None:
            return None
        self._url = f"{terms.url}/v1/campaigns/{self.campaign.name}"
        if "SSTQ-Shuffler-Signature" not in document.headers:
            content = document.content
            document = self._until_answered(lambda: request("GET", self._url))
            if document.content != content:
                raise ValueError("the shuffler and the collector have different documents; try again in a minute")
        try:
            signature = document.headers.get("SSTQ-Shuffler-Signature", "")
            verify(document.content, signature, bytes.fromhex(terms.key), SHUFFLER_PREFIX)
        except ValueError as error:
            raise ValueError(f"{terms.url} is not the shuffler that the campaign names; nothing was sent") from error
        self._sealing_key = next(iter(sealing_keys_of(document.content).values()))
        return terms.key

    def send(
        self,
        X: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        progress: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Encode each row as one message and send them; returns how many were acknowledged (all of them).

        Each row belongs to a different person, so the ledger is charged once. A message is encoded once: retries repeat
        its bytes and its key, so it counts once and costs nothing more.

        Args:
            X: vectors, one per row.
            groups: one private group per row, for mechanisms that have them.
            progress: called with the number of messages after each upload.

        Raises:
            ValueError: the server refused an upload, or did not accept it within the client's patience; the message
                says how many messages were stored.
        """
        # Encode everything before anything leaves: a bad row must not leave half a file sent.
        messages = self.campaign.mechanism.encode(np.atleast_2d(np.asarray(X)), groups=groups)
        return self.send_messages(messages, progress=progress)

    def send_messages(
        self, messages: Messages | Iterable[Messages], *, progress: Callable[[int], object] = lambda _: None
    ) -> int:
        """Send messages that were encoded with the campaign's mechanism and never sent before; otherwise like `send`.

        Args:
            messages: one batch or several; with several messages per person, slot by slot. They are packed one after
                the other before anything leaves, in a temporary file if they are large, so that memory holds one batch
                at a time.
            progress: called with the number of messages after each upload.
        """
        campaign = self.campaign
        with SpooledTemporaryFile(max_size=_MOST_BYTES_IN_MEMORY, prefix="sstq-") as packed:
            batches = [messages] if isinstance(messages, Messages) else messages
            total, uploads = (self._packed if campaign.shuffling is None else self._sealed)(batches, packed)
            if campaign.senders == "single-use" and total > campaign.slots:
                raise ValueError(f"X must be one vector, got {total}: a single-use token is for one person")
            if self._ledger is not None and total:
                self._ledger.spend(self._price, f"{campaign.name} {secrets.token_hex(16)}")
            sent, each = 0, 1 if campaign.shuffling is None else campaign.slots
            for body, count in uploads:
                try:
                    self._upload(body, count)
                except (Refused, Unreachable) as error:
                    raise ValueError(f"{error} ({sent} of {total} messages were stored)") from error
                sent += count * each
                progress(count * each)
        return sent

    def _packed(self, batches: Iterable[Messages], packed: IO[bytes]) -> tuple[int, Iterator[tuple[bytes, int]]]:
        """Return the number of messages, and the bodies of uploads with the number of messages in each."""
        most = self.campaign.most_messages
        sizes = []
        for batch in map(self._checked, batches):
            for start in range(0, len(batch), most):
                some = batch[start : start + most]
                sizes.append((packed.write(some.to_bytes()), len(some)))
        packed.seek(0)
        return sum(count for _, count in sizes), ((packed.read(size), count) for size, count in sizes)

    def _sealed(self, batches: Iterable[Messages], packed: IO[bytes]) -> tuple[int, Iterator[tuple[bytes, int]]]:
        """Return the number of messages, and the bodies of uploads with the number of people in each."""
        campaign, bits = self.campaign, self.campaign.mechanism.message_bits
        total = 0
        for batch in map(self._checked, batches):
            packed.write(payloads(batch, bits).tobytes())
            total += len(batch)
        people, left = divmod(total, campaign.slots)
        if left:
            raise ValueError(f"messages must be {campaign.slots} per person, slot by slot, got {total}")
        size = campaign.envelope_bytes - OVERHEAD

        def bodies() -> Iterator[tuple[bytes, int]]:
            for start in range(0, people, campaign.most_messages):
                count = min(campaign.most_messages, people - start)
                slots = []
                for slot in range(campaign.slots):
                    packed.seek((slot * people + start) * size)
                    slots.append(np.frombuffer(packed.read(count * size), dtype=np.uint8).reshape(count, size))
                yield seal_people(np.stack(slots), self._sealing_key, campaign.name, campaign.digest), count

        return total, bodies()

    def _checked(self, batch: Messages) -> Messages:
        if batch.digest != self.campaign.digest:
            raise ValueError("messages must come from the campaign's mechanism; encode them with `campaign.mechanism`")
        if batch.simulated:
            raise ValueError(
                "messages must be encoded with secret randomness, got messages encoded with a seed; leave out rng"
            )
        return batch

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
            raise Unreachable(f"the receipt of {urlsplit(self._url).netloc} is for another upload")

    def _until_answered(self, ask: Callable[[], Answer]) -> Answer:
        """Repeat the request, with growing pauses, until a further try would not change the answer."""
        ends, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return ask()
            except (Refused, Unreachable) as error:
                if isinstance(error, Refused) and error.status not in _PASSING:
                    raise
                asked = (error.retry_after or 0.0) if isinstance(error, Refused) else 0.0
                # Many clients that failed together should not retry together.
                wait = max(asked, pause) * random.uniform(1.0, 1.5)
                if time.monotonic() + wait > ends:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)
