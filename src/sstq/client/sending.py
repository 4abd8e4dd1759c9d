"""The client of a collector: it fetches and checks a campaign, encodes vectors, and retries until they are stored."""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from numpy.typing import ArrayLike

from sstq.accounting import Ledger
from sstq.accounting.ledger import ledger_price
from sstq.checks import check_argument
from sstq.client.campaigns import Shuffling, read_document
from sstq.client.http import Answer, RequestError, request
from sstq.client.sealing import payloads, seal_person
from sstq.client.signing import SHUFFLER_PREFIX, signer, verify
from sstq.mechanisms.answers import answer
from sstq.messages.batch import Messages

__all__ = ["Client"]

# Statuses after which the same upload may succeed: no answer, too slow, too fast, errors of servers and proxies.
_PASSING = {None, 408, 429, 500, 502, 503, 504}
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
        fetched = self._request("GET", self._url)
        self._document = read_document(fetched.content)
        self.campaign = self._document.campaign
        signature = fetched.headers.get("SSTQ-Signature", "")
        self.key = signer(fetched.content, signature, self._document.keys, pinned_key)
        self._price = ledger_price(self.campaign.mechanism)
        if self.campaign.name != name:
            raise _refusal(f"the collector returned the campaign {self.campaign.name!r} instead of {name!r}")
        if (shuffling := self.campaign.shuffling) is not None:
            if pinned_key is None or pinned_shuffler is None:
                raise _refusal(
                    "a shuffled campaign needs both public keys, known from its operators: pass pinned_key and "
                    "pinned_shuffler, or a link that has them"
                )
            self._check_shuffler(shuffling, fetched, base, pinned_shuffler, least_threshold)
        elif pinned_shuffler is not None or least_threshold is not None:
            raise _refusal("the campaign names no shuffler instead of the pinned one")
        if self._price > most_epsilon:
            asked = f"the campaign asks for epsilon = {self._price!r} per person"
            remedy = f"To allow it, pass most_epsilon={self._price!r}"
            raise _refusal(f"{asked}, more than most_epsilon = {most_epsilon!r}", remedy)

    def _check_shuffler(
        self, terms: Shuffling, fetched: Answer, base: str, pinned: str, least_threshold: int | None
    ) -> None:
        """ValueError unless the shuffler is the pinned one, is here, mixes enough people and signed the document.

        Its signature covers its address, both sealing keys and the terms. It signs one document for everybody, so the
        collector cannot give one person a key or an address of their own.
        """
        if terms.key != pinned:
            raise _refusal(f"the campaign names the shuffler {terms.key} instead of the pinned one")
        if terms.url != base:
            remedy = f"If its operator confirms that address, use {terms.url}/{self.campaign.name}"
            raise _refusal(f"the campaign's shuffler is at {terms.url}, not at {base}", remedy)
        crowd = terms.threshold if terms.below_threshold == "drop" else 1
        if least_threshold is not None and crowd < least_threshold:
            fewer = f"fewer than least_threshold = {least_threshold}"
            raise _refusal(f"the campaign forwards crowds of {crowd} people, {fewer}")
        try:
            signature = fetched.headers.get("SSTQ-Shuffler-Signature", "")
            verify(fetched.content, signature, bytes.fromhex(pinned), SHUFFLER_PREFIX)
        except ValueError as error:
            raise _refusal(f"{base} is not the shuffler that the campaign names") from error

    def check_people(self, people: int) -> None:
        """ValueError if the messages of so many people need tokens that this client does not have."""
        campaign, tokens = self.campaign, len(self._tokens)
        if campaign.senders == "single-use" and people != tokens:
            raise ValueError(f"X must be one vector per single-use token, got {people} and {tokens} tokens")
        anonymous = campaign.senders == "everybody" and campaign.shuffling is None and not tokens
        if anonymous and people > 1 and campaign.most_messages <= campaign.slots:
            problem = f"X must be one person's vector without a sender's token, got {people}"
            raise _refusal(problem, f"Ask the campaign's owner for a token for {people} people")

    def send(
        self, X: ArrayLike, groups: ArrayLike | None = None, *, progress: Callable[[int], object] = lambda _: None
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

    def send_messages(self, messages: Messages, *, progress: Callable[[int], object] = lambda _: None) -> int:
        """Send messages that were encoded with the campaign's mechanism and never sent before; otherwise like `send`.

        Args:
            messages: the messages of all people; with several per person, slot by slot.
            progress: called with the number of messages after each upload.
        """
        if messages.digest != self.campaign.digest:
            raise ValueError("messages must come from the campaign's mechanism; encode them with `campaign.mechanism`")
        if messages.simulated:
            raise ValueError(
                "messages must be encoded with secret randomness, got messages encoded with a seed; leave out rng"
            )
        total, slots = len(messages), self.campaign.slots
        shuffling = self.campaign.shuffling
        if shuffling is not None and total % slots:
            raise ValueError(f"messages must be {slots} per person, slot by slot, got {total}")
        self.check_people(total // slots)
        if self._ledger is not None and total:
            self._ledger.spend(self._price, f"{self.campaign.name} {secrets.token_hex(16)}")
        sent, uploads = 0, self._packed(messages) if shuffling is None else self._sealed(messages, shuffling)
        for (body, count), token in zip(uploads, cycle(self._tokens or [None]), strict=False):
            stated = count if shuffling is None else 1  # person
            headers = {
                "Content-Type": "application/octet-stream",
                "Idempotency-Key": secrets.token_hex(16),
                "SSTQ-Count": str(stated),
                "SSTQ-Digest": self.campaign.digest,
            }
            try:
                receipt = self._request("POST", f"{self._url}/messages", token=token, headers=headers, body=body)
                if receipt.json() != {"count": stated}:
                    raise RequestError(f"the receipt of {urlsplit(self._url).netloc} is for another upload")
            except RequestError as error:
                raise ValueError(f"{error} ({sent} of {total} messages were stored)") from error
            sent += count
            progress(count)
        return sent

    def _packed(self, messages: Messages) -> Iterator[tuple[bytes, int]]:
        """Iterate over the bodies of uploads, with the number of messages in each."""
        most = self.campaign.most_in_batch if self._tokens else self.campaign.most_messages
        for start in range(0, len(messages), most):
            some = messages[start : start + most]
            yield some.to_bytes(), len(some)

    def _sealed(self, messages: Messages, terms: Shuffling) -> Iterator[tuple[bytes, int]]:
        """Iterate over the people: their messages sealed for the collector's newest key, covered for the shuffler."""
        campaign, newest = self.campaign, self._document.sealing_keys[0]
        crowd, cover = campaign.crowd(newest), bytes.fromhex(terms.sealing_key)
        rows, people = payloads(messages), len(messages) // campaign.slots
        for person in range(people):
            yield seal_person(rows[person::people], crowd, newest, cover), campaign.slots

    def _request(self, method: str, url: str, **options: Any) -> Answer:
        """Repeat a request, with growing pauses, until a further try would not change the answer."""
        ends, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return request(method, url, **options)
            except RequestError as error:
                # Many clients that failed together should not retry together.
                wait = max(error.retry_after, pause) * random.uniform(1.0, 1.5)
                if error.status not in _PASSING or time.monotonic() + wait > ends:
                    raise
                if pause == _FIRST_PAUSE:
                    _LOG.warning("%s; retrying for %g seconds", error, self._patience)
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _refusal(problem: str, remedy: str = "") -> ValueError:
    return ValueError(f"{problem}; nothing was sent{'. ' * bool(remedy)}{remedy}")
