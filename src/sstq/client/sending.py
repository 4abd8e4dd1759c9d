"""The client of a collector: it fetches and checks a campaign, encodes vectors, and retries until they are stored."""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from numpy.typing import ArrayLike

from sstq.accounting import Ledger
from sstq.accounting.ledger import ledger_price
from sstq.checks import check_argument
from sstq.client.campaigns import Document, Shuffling, read_document
from sstq.client.http import Answer, Refused, Unreachable, request
from sstq.client.sealing import payloads, seal_person
from sstq.client.signing import SHUFFLER_PREFIX, signer, verify
from sstq.mechanisms.answers import answer
from sstq.messages.batch import Messages

__all__ = ["Client"]

# Statuses after which the same upload may succeed: too slow, too fast, and errors of servers and proxies.
_PASSING = {408, 429, 500, 502, 503, 504}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LOG = logging.getLogger("sstq.client")


class Client:
    """Fetches and checks one campaign, and sends messages to it.

    It talks to the address it is given and to no other. For a shuffled campaign that is the shuffler's.

    Args:
        url: the address with the campaign's name, such as https://collect.example/steps. A link may have the keys to
            pin: https://shuffle.example/steps#collector-key=KEY&shuffler-key=KEY.
        most_epsilon: the maximum ε per person; a campaign that asks for more is refused. For a shuffled campaign this
            is the total of all of a person's messages if the shuffler cheats.
        pinned_key: the collector's public key in hexadecimal, known from elsewhere. Without it, whoever answers at this
            address is trusted, which is as secure as its TLS. A shuffled campaign needs it.
        pinned_shuffler: the shuffler's public key in hexadecimal, known from elsewhere. A shuffled campaign needs it. A
            campaign that names another shuffler or none is refused.
        least_threshold: the minimum crowd. A campaign is refused if it is not shuffled, if its threshold is smaller, or
            if it forwards people below the threshold at the end (below_threshold="local").
        ledger: a ledger that each call of `send` charges before anything leaves.
        token: the shared token of a campaign that needs one, or its single-use tokens, one per person.
        patience: how many seconds to retry without success before giving up.

    Raises:
        ValueError: the campaign cannot be fetched, its signature is wrong, or its terms are not allowed.

    Attributes:
        campaign: what the collector asks for.
        key: the collector's public key in hexadecimal, for pinning from now on.
    """

    def __init__(
        self,
        url: str,
        *,
        most_epsilon: float,
        pinned_key: str | None = None,
        pinned_shuffler: str | None = None,
        least_threshold: int | None = None,
        ledger: Ledger | None = None,
        token: str | Sequence[str] | None = None,
        patience: float = 300.0,
    ) -> None:
        check_argument("most_epsilon", most_epsilon, of="answer_epsilon")
        address, _, link = url.partition("#")
        base, _, name = address.rstrip("/").rpartition("/")
        if not urlsplit(base).netloc or not name:
            raise ValueError(f"url must be an address with the campaign's name, such as {address}/NAME, got {url!r}")
        pins = dict(parse_qsl(link))
        pinned_key = pinned_key or pins.get("collector-key")
        pinned_shuffler = pinned_shuffler or pins.get("shuffler-key")
        self._url = f"{base}/v1/campaigns/{name}"
        self._tokens = [token] if isinstance(token, str) else list(token or ())
        self._ledger, self._patience = ledger, patience
        answer = self._until_answered(lambda: request("GET", self._url))
        document = read_document(answer.content)
        self.campaign = document.campaign
        self.key = signer(answer.content, answer.headers.get("SSTQ-Signature", ""), document.keys, pinned_key)
        if self.campaign.name != name:
            raise ValueError(f"the collector returned the campaign {self.campaign.name!r} instead of {name!r}")
        self._seal: Callable[[Iterable[bytes]], bytes] | None = None
        if self.campaign.shuffling is not None:
            if pinned_key is None or pinned_shuffler is None:
                raise ValueError(
                    "a shuffled campaign needs both public keys, known from its operators: pass pinned_key and "
                    "pinned_shuffler, or a link that has them; nothing was sent"
                )
            _check_shuffler(answer, self.campaign.shuffling, base, name, pinned_shuffler, least_threshold)
            self._seal = _sealed_for(document, self.campaign.shuffling)
        elif pinned_shuffler is not None or least_threshold is not None:
            raise ValueError("the campaign names no shuffler instead of the pinned one; nothing was sent")
        self._price = ledger_price(self.campaign.mechanism)
        if self._price > most_epsilon:
            raise ValueError(
                f"the campaign asks for epsilon = {self._price!r} per person, more than most_epsilon = "
                f"{most_epsilon!r}; nothing was sent. To allow it, pass most_epsilon={self._price!r}"
            )

    def check_people(self, people: int) -> None:
        """ValueError if the messages of so many people need a sender's token that this client does not have."""
        campaign = self.campaign
        anonymous = campaign.senders == "everybody" and campaign.shuffling is None and not self._tokens
        if anonymous and people > 1 and campaign.most_messages <= campaign.slots:
            raise ValueError(
                f"X must be one person's vector without a sender's token, got {people}; nothing was sent. The owner of "
                f"the campaign creates a token with: sstq campaign senders {campaign.name} --people {people}"
            )

    def send(
        self,
        X: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        progress: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Encode each row as one message and send them; returns how many were acknowledged (all of them).

        The collector sees whether somebody answers, so rows that cannot be encoded are sent as zero vectors, and logged
        (`sstq.mechanisms.answers`). Each row belongs to a different person, so the ledger is charged once. A message is
        encoded once: retries repeat its bytes and its key, so it counts once and costs nothing more.

        Args:
            X: vectors, one per row.
            groups: one private group per row, for mechanisms that have them.
            progress: called with the number of messages after each upload.

        Raises:
            ValueError: the server refused an upload, or did not accept it within the client's patience; the message
                says how many messages were stored.
        """
        return self.send_messages(answer(self.campaign.mechanism, X, groups), progress=progress)

    def send_messages(
        self,
        messages: Messages | Iterable[Messages],
        *,
        progress: Callable[[int], object] = lambda _: None,
        before: Callable[[], object] = lambda: None,
    ) -> int:
        """Send messages that were encoded with the campaign's mechanism and never sent before; otherwise like `send`.

        Args:
            messages: one batch or several, which are packed before anything leaves; with several messages per person,
                slot by slot.
            progress: called with the number of messages after each upload.
            before: called before anything leaves; what it raises, it stops.
        """
        single_use = self.campaign.senders == "single-use"
        batches = map(self._checked, [messages] if isinstance(messages, Messages) else messages)
        total, uploads = self._packed(batches) if self._seal is None else self._sealed(batches, self._seal)
        people = total // self.campaign.slots
        if single_use and total != len(self._tokens) * self.campaign.slots:
            raise ValueError(f"X must be one vector per single-use token, got {people} and {len(self._tokens)} tokens")
        self.check_people(people)
        before()
        if self._ledger is not None and total:
            self._ledger.spend(self._price, f"{self.campaign.name} {secrets.token_hex(16)}")
        sent, each = 0, 1 if self._seal is None else self.campaign.slots
        for number, (body, count) in enumerate(uploads):
            try:
                self._upload(body, count, self._tokens[number if single_use else 0] if self._tokens else None)
            except (Refused, Unreachable) as error:
                raise ValueError(f"{error} ({sent} of {total} messages were stored)") from error
            sent += count * each
            progress(count * each)
        return sent

    def _checked(self, batch: Messages) -> Messages:
        if batch.digest != self.campaign.digest:
            raise ValueError("messages must come from the campaign's mechanism; encode them with `campaign.mechanism`")
        if batch.simulated:
            raise ValueError(
                "messages must be encoded with secret randomness, got messages encoded with a seed; leave out rng"
            )
        return batch

    def _packed(self, batches: Iterable[Messages]) -> tuple[int, Iterable[tuple[bytes, int]]]:
        """Return the number of messages, and the bodies of uploads with the number of messages in each."""
        most = self.campaign.most_in_batch if self._tokens else self.campaign.most_messages
        uploads = []
        for batch in batches:
            for start in range(0, len(batch), most):
                some = batch[start : start + most]
                uploads.append((some.to_bytes(), len(some)))
        return sum(count for _, count in uploads), uploads

    def _sealed(
        self, batches: Iterable[Messages], seal: Callable[[Iterable[bytes]], bytes]
    ) -> tuple[int, Iterator[tuple[bytes, int]]]:
        """Return the number of messages, and the body of an upload for each person."""
        rows = [row.tobytes() for batch in batches for row in payloads(batch, self.campaign.message_bits)]
        people, left = divmod(len(rows), self.campaign.slots)
        if left:
            raise ValueError(f"messages must be {self.campaign.slots} per person, slot by slot, got {len(rows)}")
        return len(rows), ((seal(rows[person::people]), 1) for person in range(people))

    def _upload(self, body: bytes, count: int, token: str | None) -> None:
        headers = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": secrets.token_hex(16),
            "SSTQ-Count": str(count),
            "SSTQ-Digest": self.campaign.digest,
        }
        url = f"{self._url}/messages"
        answer = self._until_answered(lambda: request("POST", url, token=token, headers=headers, body=body))
        if answer.json() != {"count": count}:
            raise Unreachable(f"the receipt of {urlsplit(self._url).netloc} is for another upload")

    def _until_answered(self, ask: Callable[[], Answer]) -> Answer:
        """Repeat the request, with growing pauses, until a further try would not change the answer."""
        ends, pause, told = time.monotonic() + self._patience, _FIRST_PAUSE, False
        while True:
            try:
                return ask()
            except (Refused, Unreachable) as error:
                if isinstance(error, Refused) and error.status not in _PASSING:
                    raise
                # Many clients that failed together should not retry together.
                wait = max(getattr(error, "retry_after", None) or 0.0, pause) * random.uniform(1.0, 1.5)
                if isinstance(error, Unreachable) and not told and self._patience > 0:
                    told = True
                    _LOG.warning("cannot reach %s, retrying for %g seconds", urlsplit(self._url).netloc, self._patience)
                if time.monotonic() + wait > ends:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _check_shuffler(
    answer: Answer, terms: Shuffling, base: str, name: str, pinned: str, least_threshold: int | None
) -> None:
    """ValueError unless the shuffler is the pinned one, at this address, mixes enough people and signed the document.

    Its signature covers its address, both sealing keys and the terms. It signs one document for everybody, so the
    collector cannot give one person a key or an address of their own.
    """
    if terms.key != pinned:
        raise ValueError(f"the campaign names the shuffler {terms.key} instead of the pinned one; nothing was sent")
    if terms.url != base:
        raise ValueError(
            f"the campaign's shuffler is at {terms.url}, not at {base}; nothing was sent. If its operator "
            f"confirms that address, use {terms.url}/{name}"
        )
    crowd = terms.threshold if terms.below_threshold == "drop" else 1
    if least_threshold is not None and crowd < least_threshold:
        raise ValueError(
            f"the campaign forwards crowds of {crowd} people, fewer than least_threshold = {least_threshold}; "
            "nothing was sent"
        )
    try:
        signature = answer.headers.get("SSTQ-Shuffler-Signature", "")
        verify(answer.content, signature, bytes.fromhex(terms.key), SHUFFLER_PREFIX)
    except ValueError as error:
        raise ValueError(f"{base} is not the shuffler that the campaign names; nothing was sent") from error


def _sealed_for(document: Document, terms: Shuffling) -> Callable[[Iterable[bytes]], bytes]:
    """Return what seals a person's messages for the collector's newest key, in a cover for the shuffler."""
    newest, cover = document.sealing_keys[0], bytes.fromhex(terms.sealing_key)
    return partial(seal_person, crowd=document.campaign.crowd(newest), collector_key=newest, shuffler_key=cover)
