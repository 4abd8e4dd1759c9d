"""The client of a collector: it fetches and checks a campaign, encodes, and sends until every message is acknowledged.

What can be known without data is checked first. Then messages are encoded and written to the outbox, the ledger is
charged once, and the same bytes are sent until they are acknowledged or refused for good, also after a restart.
"""

from __future__ import annotations

import logging
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

from numpy.typing import ArrayLike

from sstq.accounting import BudgetExhausted, Ledger, RoundAlreadySpent
from sstq.checks import ArgumentError, check_argument, check_number
from sstq.client.campaigns import MOST_PEOPLE, Shuffling, Stage
from sstq.client.fetching import Allowed, accepted, refusal_to_send
from sstq.client.http import Answer, RequestError, request
from sstq.client.outbox import Outbox, Part, Payment, Upload, Waiting
from sstq.client.sealing import payloads, seal_person
from sstq.client.targets import read_target
from sstq.mechanisms.answers import answer
from sstq.messages.batch import Messages
from sstq.studies import PeriodQuestion, draw_turn, is_turn

__all__ = ["Client", "DeliveryError"]

# Statuses after which the same upload may succeed: no answer, too slow, too fast, errors of servers and proxies.
_PASSING = {None, 408, 429, 500, 502, 503, 504}
# Statuses that no retry of the same bytes would change. A message that is refused with another one, such as for a wrong
# token or by something that is not the collector, waits.
_FINAL = {400, 409, 410, 413, 422}
_TOKEN_REFUSED = 403
_GONE = 410
# Of servers that do not say beforehand what they would take.
_UNKNOWN_ROUTE = {404, 405}
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_LOG = logging.getLogger("sstq.client")


class DeliveryError(ValueError):
    """Some messages were not acknowledged; the text says which of them wait and which were refused for good.

    Attributes:
        waiting: how many messages wait in the outbox. `Client.send_waiting` sends the same bytes again.
    """

    def __init__(self, problem: str, waiting: int) -> None:
        super().__init__(problem)
        self.waiting = waiting


class Client:
    """Fetches and checks one campaign, and sends messages to it.

    It talks to the address it is given and to no other. For a shuffled campaign that is the shuffler's. Several
    processes may share a ledger and an outbox; they send one after the other.

    Args:
        url: the address with the campaign's name, such as https://collect.example/steps. A link may have the keys to
            pin: https://shuffle.example/steps#collector-key=KEY&shuffler-key=KEY.
        most_epsilon: the maximum ε per person; a campaign that asks for more is refused. For a shuffled campaign this
            is the total of all of a person's messages if the shuffler cheats.
        pinned_key: the collector's public key in hexadecimal, known from elsewhere. Without it, whoever answers at this
            address is trusted, which is as secure as its TLS. A shuffled campaign needs it.
        pinned_shuffler: the shuffler's public key in hexadecimal, known from elsewhere. A shuffled campaign needs it. A
            campaign that names another shuffler or none is refused.
        shuffler_url: the shuffler's address, known from its operator. Nothing is requested from another address, so a
            link that somebody else made cannot lead to the collector.
        least_threshold: the minimum crowd. A campaign is refused if it is not shuffled, if its threshold is smaller, if
            it forwards people below the threshold at the end (below_threshold="local"), or if everybody may send: then
            one party may be all the others.
        ledger: a ledger that each call of `send` charges before anything leaves.
        outbox: the file where messages wait until they are acknowledged. By default it is beside the ledger, with
            “.outbox” behind its name; without a ledger they wait in memory only.
        token: the shared token of a campaign that needs one, or its single-use tokens, one per person.
        patience: how many seconds to retry without success before giving up.

    Raises:
        ValueError: the campaign cannot be fetched, its signature is wrong, or its terms are not allowed.

    Attributes:
        campaign: what the collector asks for.
        key: the collector's public key in hexadecimal, for pinning from now on.
        outbox: where messages wait.
    """

    def __init__(
        self,
        url: str,
        *,
        most_epsilon: float,
        pinned_key: str | None = None,
        pinned_shuffler: str | None = None,
        shuffler_url: str | None = None,
        least_threshold: int | None = None,
        ledger: Ledger | None = None,
        outbox: str | os.PathLike[str] | None = None,
        token: str | Sequence[str] | None = None,
        patience: float = 300.0,
    ) -> None:
        check_argument("most_epsilon", most_epsilon, of="answer_epsilon")
        if least_threshold is not None:
            check_number(
                "least_threshold", least_threshold, 2, MOST_PEOPLE, integer=True
            )
        target = read_target(
            url,
            pinned_key=pinned_key,
            pinned_shuffler=pinned_shuffler,
            shuffler_url=shuffler_url,
        )
        self._tokens = _checked_tokens(token)
        self._target = target
        self._allowed = Allowed(most_epsilon, shuffler_url, least_threshold)
        self._ledger = ledger
        self._patience = patience
        self._fetch()
        if outbox is None and ledger is not None:
            outbox = ledger.path.with_name(f"{ledger.path.name}.outbox")
        # Campaigns of one name at two collectors are two, and all stages of a study are one.
        what = (
            self.campaign.digest
            if self.campaign.stage is None
            else self.campaign.question.purpose
        )
        self.outbox = Outbox(f"{target.name} {self.key} {what}", outbox)

    def _fetch(self) -> None:
        """Fetch and check the campaign, or the open stage of a study; ValueError if its terms are not allowed."""
        answer = self._request("GET", self._target.url)
        found = accepted(answer, self._target, self._allowed)
        self._document = found.document
        self.campaign = found.document.campaign
        self.key = found.key
        # from now on no other one
        self._target = self._target._replace(collector_key=self.key)
        self._price = found.price

    def _address(self, name: str) -> str:
        """The address for messages to a campaign of the same service."""
        return f"{self._target.url.rpartition('/')[0]}/{name}/messages"

    def check_ready(self) -> None:
        """ValueError unless the campaign is open and there is a token if it needs one."""
        campaign = self.campaign
        now = datetime.now(UTC)
        status = campaign.status(now)
        if status != "open":
            when = campaign.opens if status == "scheduled" else campaign.closes
            happens = "opens" if status == "scheduled" else "closed"
            raise refusal_to_send(
                f"{campaign.name} {happens} at {when:%Y-%m-%dT%H:%M:%SZ}, and it is {now:%Y-%m-%dT%H:%M:%SZ}"
            )
        if campaign.senders != "everybody" and not self._tokens:
            self._check_not_gone()
            raise ArgumentError(
                "token",
                f"must be given: {campaign.name} takes messages with a token only",
            )

    def _check_not_gone(self) -> None:
        """ValueError if the campaign was closed before its time, or the stage is over: no token helps then."""
        try:
            self._allowance()
        except RequestError as error:
            if error.status == _GONE:
                raise

    def check_people(self, people: int) -> None:
        """ValueError unless messages of so many people may be sent now with these tokens."""
        campaign = self.campaign
        tokens = len(self._tokens)
        allowance = self._allowance()
        if campaign.senders == "single-use" and people != tokens:
            raise refusal_to_send(
                f"there must be one person per single-use token, got {people} people and {tokens} tokens"
            )
        anonymous = (
            campaign.senders == "everybody"
            and campaign.shuffling is None
            and not tokens
        )
        if anonymous and people > 1 and campaign.most_messages <= campaign.slots:
            raise refusal_to_send(
                f"without a sender's token only one person may be sent, got {people}",
                f"Ask the campaign's owner for a token for {people} people",
            )
        single = campaign.senders == "single-use"
        if allowance is not None and allowance < (
            1 if single else people * campaign.slots
        ):
            fewer = f"{allowance // campaign.slots} more people, not {people}"
            if single:
                raise refusal_to_send("the token was used before")
            if campaign.stage is None:
                raise refusal_to_send(f"the token pays for {fewer}")
            raise refusal_to_send(
                f"there is room for {fewer}",
                f"Send at most {allowance // campaign.slots} people to this stage, and the others to later ones",
            )

    def _allowance(self) -> int | None:
        """How many messages the server would take with the first token; None if it states no limit."""
        token = self._tokens[0] if self._tokens else None
        try:
            stated = self._request(
                "GET", self._address(self.campaign.name), token=token
            ).json()
        except RequestError as error:
            if error.status in _UNKNOWN_ROUTE:
                return None
            over = self.campaign.stage is not None and error.status == _GONE
            remedy = (
                "The stage is over: send to the next one in a moment" if over else ""
            )
            problem = str(refusal_to_send(str(error).removesuffix("."), remedy))
            raise RequestError(problem, error.status, error.retry_after) from error
        allowance = stated.get("messages") if isinstance(stated, dict) else None
        return allowance if isinstance(allowance, int) else None

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
            DeliveryError: some messages were not acknowledged. They wait in the outbox, or were refused for good.
            ValueError: nothing was spent or sent.
        """
        if self.campaign.stage is not None:
            raise refusal_to_send(
                f"{self.campaign.stage.study} is a study",
                "Call take_part, which answers it once",
            )
        self.check_ready()
        return self.send_messages(
            answer(self.campaign.mechanism, X, groups), progress=progress
        )

    def take_part(self, value: Any) -> datetime | None:
        """Answer a study once, whatever the value is; returns when to come again, or None if nothing is left to do.

        It asks for the open stage each time, so a program may call it again and again. A person sends one message to
        all stages together, also if the program is killed: it is kept in the outbox, which must be a file, and charged
        to the ledger as `sstq.studies.answer` does. Of a panel, the device draws its period when it first comes, and
        returns when that begins. It returns None if the person has answered before, if the study has ended, and if the
        person was away in their period.

        Args:
            value: what the person holds; whatever it is, one message is sent, and nothing depends on it.

        Raises:
            DeliveryError: the message was not acknowledged. It waits in the outbox, or was refused for good.
            ValueError: nothing was spent or sent.
        """
        if self.outbox.path is None:
            raise ArgumentError(
                "outbox",
                "must be a file, or a ledger given: it remembers that this person answered",
            )
        self._fetch()
        stage = self.campaign.staged
        answer = self.campaign.question.purpose
        with self.outbox.locked():
            if self.outbox.study_of(self._target.url) not in (None, answer):
                raise refusal_to_send(f"{stage.study} is another study now")
            known = self.outbox.remembered(answer)
            self.outbox.remember(self._target.url, known)
            if known.answered:
                self._deliver(lambda _: None)
            elif not self._is_charged(answer):
                return self._answer(stage, known, value)
            _LOG.info("you have answered %s", stage.study)
            return None

    def _is_charged(self, answer: str) -> bool:
        return self._ledger is not None and any(
            entry.round_id == answer for entry in self._ledger.entries
        )

    def _answer(self, stage: Stage, known: Part, value: Any) -> datetime | None:
        """Answer a stage of a study, if it is the person's; returns when to come again."""
        if stage.number < known.stage:
            raise refusal_to_send(
                f"stage {stage.number} of {stage.study} is over: {known.stage} was there before"
            )
        try:
            allowance = self._allowance()
        except RequestError as error:
            if error.status != _GONE:
                raise
            # If the study goes on, the service says when to ask for the next stage.
            return (
                datetime.now(UTC) + timedelta(seconds=error.retry_after)
                if error.retry_after
                else None
            )
        if allowance == 0:
            if self.campaign.senders == "single-use":
                raise refusal_to_send("the token was used before: you have answered")
            raise refusal_to_send("the token pays for nobody else")
        question = self.campaign.question
        turn = known.turn
        if isinstance(question, PeriodQuestion):
            turn = turn or draw_turn(question.to_json())
        known = known._replace(stage=stage.number, turn=turn)
        self.outbox.remember(self._target.url, known)
        if turn is not None and not is_turn(question.to_json(), turn):
            return self._beginning(stage, turn)
        self.outbox.put(
            known.answer,
            self._uploads(question.encode_each([value])),
            needs_ledger=self._ledger is not None,
            taken=(self._target.url, known._replace(answered=True)),
        )
        self._deliver(lambda _: None)
        return None

    def _beginning(self, stage: Stage, turn: int) -> datetime | None:
        """When a period begins; None if it is over."""
        periods = turn - stage.number - 1
        closes = self.campaign.closes
        if closes is None or stage.hours is None or periods < 0:
            return None
        try:
            return closes + timedelta(hours=periods * stage.hours)
        except OverflowError:  # after the year 9999
            return None

    def send_messages(
        self,
        messages: Messages,
        *,
        names: Iterable[str] = (),
        progress: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Send messages that were encoded with the campaign's mechanism and never sent before; otherwise like `send`.

        Args:
            messages: the messages of all people; with several per person, slot by slot.
            names: what they were made of, such as hashes of files; the outbox remembers what was sent.
            progress: called with the number of messages after each upload.
        """
        if messages.digest != self.campaign.digest:
            raise ValueError(
                "messages must come from the campaign's mechanism; encode them with `campaign.mechanism`"
            )
        if self.campaign.stage is not None and not self._tokens:
            raise refusal_to_send(
                "many people's answers to a study need a sender's token",
                "Call take_part for one person",
            )
        if messages.simulated:
            raise ValueError(
                "messages must be encoded with secret randomness, got messages encoded with a seed; leave out rng"
            )
        self.check_ready()
        slots = self.campaign.slots
        if self.campaign.shuffling is not None and len(messages) % slots:
            raise ValueError(
                f"messages must be {slots} per person, slot by slot, got {len(messages)}"
            )
        with self.outbox.locked():
            self._check_nothing_waits()
            self.check_people(len(messages) // slots)
            uploads = self._uploads(messages)
            name = f"{self.campaign.name} {secrets.token_hex(16)}"
            self.outbox.put(
                name,
                uploads,
                names,
                needs_ledger=self._ledger is not None,
            )
            return self._deliver(progress)

    def _check_nothing_waits(self) -> None:
        waiting = self.outbox.messages()
        if waiting:
            raise DeliveryError(
                f"{waiting} messages to {self.campaign.name} wait in the outbox ({self.outbox}); nothing was sent. "
                "Send them first with send_waiting(), which repeats the same bytes and spends nothing more",
                waiting,
            )

    def send_waiting(
        self, *, progress: Callable[[int], object] = lambda _: None
    ) -> int:
        """Send what waits in the outbox for this campaign, byte by byte as before; returns how many were acknowledged.

        It spends nothing more. Call it when the program starts: ``client.send_waiting() or client.send(x)`` sends one
        answer, however often the program is killed.
        """
        with self.outbox.locked():
            return self._deliver(progress)

    def _deliver(self, progress: Callable[[int], object]) -> int:
        """Pay for and send what waits, the oldest first; returns how many messages were acknowledged."""
        sent = 0
        total = self.outbox.messages()
        paid = ""
        refusals: list[str] = []
        price = self._price
        for waiting in self.outbox.waiting():
            price = waiting.upload.price
            if waiting.answer != paid and not self._pay(waiting):
                continue
            paid = waiting.answer
            refusal = self._refusal_of(waiting.upload, sent, total)
            self.outbox.finish(waiting, acknowledged=refusal is None)
            if refusal is None:
                sent += waiting.upload.messages
            else:
                refusals.append(refusal)
            progress(waiting.upload.messages)
        if refusals:
            raise DeliveryError(
                f"{refusals[0]} ({sent} of {total} messages were stored, the others were refused for good). Whoever "
                f"refused a message has seen it, so its epsilon = {price!r} stays spent",
                waiting=0,
            )
        return sent

    def _pay(self, waiting: Waiting) -> bool:
        """Charge the ledger for an answer, unless that was done; one that it does not pay for is dropped.

        Returns False if it was charged for another answer to the same study, which a client with another outbox sent.
        """
        if waiting.payment is Payment.NONE:
            return True
        if self._ledger is None:
            raise ArgumentError(
                "ledger",
                f"must be given: the ledger pays for what waits in {self.outbox}",
            )
        if waiting.payment is Payment.DUE:
            self.outbox.begin_payment(waiting.answer)
        try:
            self._ledger.spend(waiting.upload.price, waiting.answer)
        except RoundAlreadySpent:
            # A process that had begun to pay for it was killed after the charge.
            if waiting.payment is Payment.BEGUN:
                return True
            self.outbox.drop(waiting.answer)
            return False
        except BudgetExhausted:
            self.outbox.drop(waiting.answer)
            raise
        return True

    def _refusal_of(self, upload: Upload, sent: int, total: int) -> str | None:
        """Send an upload; returns why it was refused for good, or None. DeliveryError if it still waits."""
        try:
            self._upload(upload)
        except ValueError as error:
            status = getattr(error, "status", None)
            if status in _FINAL or (
                status == _TOKEN_REFUSED and upload.token is not None
            ):
                return str(error)
            left = self.outbox.messages()
            wait = f"{left} wait in the outbox ({self.outbox}); send_waiting() repeats them and spends nothing more"
            raise DeliveryError(
                f"{error} ({sent} of {total} messages were stored, {wait})", left
            ) from error
        return None

    def _upload(self, upload: Upload) -> None:
        """Send an upload until it is acknowledged; ValueError if it was not."""
        token = upload.token
        if token is None and self._tokens:
            token = self._tokens[0]
        stated = upload.messages if self.campaign.shuffling is None else 1  # person
        headers = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": upload.key,
            "SSTQ-Count": str(stated),
            "SSTQ-Digest": upload.digest,
        }
        receipt = self._request(
            "POST",
            self._address(upload.name),
            token=token,
            headers=headers,
            body=upload.body,
        )
        if receipt.json() != {"count": stated}:
            raise RequestError(
                f"the receipt of {urlsplit(self._target.url).netloc} is for another upload"
            )

    def _uploads(self, messages: Messages) -> Iterator[Upload]:
        """Iterate over the uploads of messages; a single-use token belongs to one of them and waits with it."""
        single = self.campaign.senders == "single-use"
        tokens = iter(self._tokens) if single else repeat(None)
        asked = (self.campaign.name, self.campaign.digest, self._price)
        shuffling = self.campaign.shuffling
        bodies = (
            self._packed(messages)
            if shuffling is None
            else self._sealed(messages, shuffling)
        )
        for count, body in bodies:
            key = secrets.token_hex(16)
            yield Upload(*asked, key, count, body, next(tokens))

    def _packed(self, messages: Messages) -> Iterator[tuple[int, bytes]]:
        """Iterate over the bodies of messages that are not sealed, as large as the campaign allows."""
        most = (
            self.campaign.most_in_batch if self._tokens else self.campaign.most_messages
        )
        for start in range(0, len(messages), most):
            some = messages[start : start + most]
            yield len(some), some.to_bytes()

    def _sealed(
        self, messages: Messages, terms: Shuffling
    ) -> Iterator[tuple[int, bytes]]:
        """Iterate over the people: their messages sealed for the collector's newest key, covered for the shuffler."""
        campaign = self.campaign
        newest = self._document.sealing_keys[0]
        crowd = campaign.crowd(newest)
        cover = bytes.fromhex(terms.sealing_key)
        rows = payloads(messages)
        people = len(messages) // campaign.slots
        for person in range(people):
            body = seal_person(rows[person::people], crowd, newest, cover)
            yield campaign.slots, body

    def _request(self, method: str, url: str, **options: Any) -> Answer:
        """Repeat a request, with growing pauses, until a further try would not change the answer."""
        ends = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
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


def _checked_tokens(token: str | Sequence[str] | None) -> list[str]:
    tokens = [token] if isinstance(token, str) else list(token or ())
    for one in tokens:
        if not isinstance(one, str) or not re.fullmatch("[!-~]([ -~]*[!-~])?", one):
            # which is secret
            raise ArgumentError(
                "token", "must be printable ASCII characters, got another"
            )
    return tokens
