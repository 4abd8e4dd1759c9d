"""The file format of a ledger: readable lines of JSON with a checksum at the end.

The first line holds the terms, then comes one line per round, and the last line has their number and the SHA-256
of all bytes above it. The file is always written as a whole, so anything else is damage.
"""

import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from sstq.accounting.bounds import check_delta
from sstq.accounting.composition import basic_total
from sstq.checks import check_argument, check_number
from sstq.files.strict_json import read_json

_FORMAT, _VERSION = "sstq-ledger", 3
_ID_LENGTH_MAX = 256

# Orders to choose from: 1 + 2^(−6), …, 1 + 2^12 in steps of 2^(1/8).
_ORDERS = tuple(1 + 2 ** (eighth / 8) for eighth in range(-48, 97))
_SPARE = 1e-12  # above the relative rounding errors of the functions used


class LedgerError(ValueError):
    """A ledger refused the expense; nothing was spent.

    Examples:
        >>> issubclass(BudgetExhausted, LedgerError), issubclass(LedgerError, ValueError)
        (True, True)
    """


class BudgetExhausted(LedgerError):  # noqa: N818
    """The round would cost more than is left of the total.

    Examples:
        >>> import tempfile
        >>> from sstq.accounting import Ledger
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Ledger(f"{folder}/client.ledger", epsilon=1.0).spend(2.0, "round 1")
        Traceback (most recent call last):
        ...
        sstq.accounting.ledger_file.BudgetExhausted: epsilon = 2.0 is more than is left: 1.0 of 1.0 (0.0 is spent)
    """


class RoundCapExceeded(LedgerError):  # noqa: N818
    """The round would cost more than this client allows for one round.

    Examples:
        >>> import tempfile
        >>> from sstq.accounting import Ledger
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Ledger(f"{folder}/client.ledger", epsilon=4.0, round_cap=1.0).spend(2.0, "round 1")
        Traceback (most recent call last):
        ...
        sstq.accounting.ledger_file.RoundCapExceeded: epsilon must be at most round_cap = 1.0, got 2.0; ...
    """


class RoundAlreadySpent(LedgerError):  # noqa: N818
    """The ledger already has this round; a second message would be a second expense."""


class LedgerDamaged(LedgerError):  # noqa: N818
    """The file is damaged, cut off, missing or not a ledger. It is never replaced by a fresh budget."""


@dataclass(frozen=True)
class Entry:
    """A round that was paid for: its name, its ε, and when it was paid, in UTC.

    Examples:
        >>> import tempfile
        >>> from sstq.accounting import Ledger
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     entry = Ledger(f"{folder}/client.ledger", epsilon=1.0).spend(0.5, "round 1")
        >>> entry.round_id, entry.epsilon
        ('round 1', 0.5)
    """

    round_id: str
    epsilon: float
    time: str


@dataclass(frozen=True)
class Terms:
    """The terms of a ledger, fixed when it is created: what it allows, and how its rounds add up.

    A composition theorem holds for ε that were fixed beforehand. A ledger does not know them beforehand, so it needs a
    *privacy filter*, a rule that may stop the rounds at any time:

    * Without δ: the sum of all ε. The likelihood ratio of a whole history is at most e^Σε, history by history.
    * With δ: the Rényi filter of Feldman and Zrnic (2021). For an order α fixed beforehand, a round of ε costs the
      Rényi divergence of randomized response, log(1 + 2·sinh(αε/2)·sinh((α − 1)ε/2)/cosh(ε/2))/(α − 1), which adds up;
      turning it into (ε, δ) costs log((α − 1)/α) − (log δ + log α)/(α − 1) once (Canonne, Kamath, Steinke 2020,
      Proposition 12).

    With δ > 0 a history may go on while the sum *or* the filter allows it: those of the first kind lose at most ε
    without δ, and those of the second kind together lose ε but for δ.
    """

    epsilon: float
    delta: float
    round_cap: float | None
    order: float | None

    def __post_init__(self) -> None:
        check_argument("epsilon", self.epsilon, of="total_epsilon")
        check_delta(self.delta)
        if self.round_cap is not None:
            check_argument("round_cap", self.round_cap, of="answer_epsilon")
        if (self.order is not None) != (self.delta > 0):
            raise ValueError(f"order must be given with delta > 0 only, got {self.order!r} with {self.delta!r}")
        if self.order is not None and check_number("order", self.order, 1, 1e6) == 1:
            raise ValueError("order must be greater than 1")

    @classmethod
    def choose(cls, epsilon: float, delta: float, round_cap: float | None) -> Self:
        """The terms with the order that allows the most small rounds."""
        # Checked before the order is computed from them; numbers of any kind become plain floats.
        cls(epsilon, delta, round_cap, _ORDERS[0] if delta else None)
        order = None
        if delta:
            # A small round costs αε²/2: their number is proportional to what conversion leaves, divided by α.
            order = max(_ORDERS, key=lambda order: (epsilon - _conversion(order, delta)) / order)
        return cls(float(epsilon), float(delta), None if round_cap is None else float(round_cap), order)

    def total(self, epsilons: Counter[float]) -> Fraction:
        """An upper bound on the ε that these rounds cost together, for the given δ."""
        basic = basic_total(epsilons)
        if self.order is None:
            return basic
        divergence = math.fsum(count * renyi(epsilon, self.order) for epsilon, count in epsilons.items())
        conversion = _conversion(self.order, self.delta)
        bound = divergence + conversion + _SPARE * (divergence + abs(conversion))
        return min(basic, Fraction(max(0.0, bound)))


def renyi(epsilon: float, order: float) -> float:
    """The Rényi divergence of randomized response of ε; no more than ε."""
    if order * epsilon > 100:  # sinh might overflow, and only its growing exponential counts
        return epsilon - math.log1p(math.exp(-epsilon)) / (order - 1)
    product = 2 * math.sinh(order * epsilon / 2) * math.sinh((order - 1) * epsilon / 2) / math.cosh(epsilon / 2)
    return min(epsilon, math.log1p(product) / (order - 1))


def _conversion(order: float, delta: float) -> float:
    """What turning a Rényi divergence into (ε, δ) adds to it."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def check_round_id(round_id: str | int) -> str:
    """Return the name of a round as a string; ValueError if it is not valid."""
    allowed = isinstance(round_id, str | int) and not isinstance(round_id, bool)
    if not allowed or not 1 <= len(str(round_id)) <= _ID_LENGTH_MAX:
        raise ValueError(f"round_id must be an integer or 1 to {_ID_LENGTH_MAX} characters, got {round_id!r}")
    return str(round_id)


def serialize(terms: Terms, entries: tuple[Entry, ...]) -> bytes:
    """Return the bytes of a ledger's file. Numbers have enough digits to give the same double back."""
    lines: list[dict[str, Any]] = [{"format": _FORMAT, "version": _VERSION, **vars(terms)}, *map(vars, entries)]
    body = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
    last = {"entries": len(entries), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(last).encode() + b"\n"


def read_ledger(path: Path) -> tuple[Terms, tuple[Entry, ...]]:
    """Read the terms and entries of a ledger's file; LedgerDamaged unless every byte is as it was written."""
    data = path.read_bytes()
    try:
        return _parse(data)
    except LedgerDamaged as error:
        raise LedgerDamaged(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerDamaged(f"{path}: the ledger is damaged: {error}") from error


def _parse(data: bytes) -> tuple[Terms, tuple[Entry, ...]]:
    if not data.startswith(b'{"format": "%b"' % _FORMAT.encode()):
        raise LedgerDamaged("this is not a ledger" if data else "the ledger is empty")
    if not data.endswith(b"\n"):
        raise LedgerDamaged("the ledger is cut off")
    lines = data[:-1].split(b"\n")
    body = data[: len(data) - len(lines[-1]) - 1]
    header, *rounds, last = [read_json(line) for line in lines]
    if (version := header.get("version")) != _VERSION:
        raise LedgerDamaged(f"version must be {_VERSION}, got {version!r}")
    if last != {"entries": len(rounds), "sha256": hashlib.sha256(body).hexdigest()}:
        raise LedgerDamaged("the ledger was cut off or changed: its checksum does not match")
    terms = Terms(**{name: value for name, value in header.items() if name not in ("format", "version")})
    entries = tuple(
        Entry(
            check_round_id(line.pop("round_id")),
            check_argument("epsilon", line.pop("epsilon"), of="answer_epsilon"),
            **line,
        )
        for line in rounds
    )
    if len({entry.round_id for entry in entries}) < len(entries):
        raise ValueError("it has a round twice")
    return terms, entries
