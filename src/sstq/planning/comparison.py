"""Comparing all mechanisms: bits, bias, variance and time (the paper's Table 1 in numbers), and error against bits."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.mechanisms import Mechanism, Unbiased, list_mechanisms, mechanism, mechanism_class
from sstq.mechanisms.sphere import mean_chi
from sstq.mechanisms.trial_vectors import typical_vector
from sstq.messages.batch import Messages

_SECONDS = 0.3  # after which measuring stops
_MOST_TIMED = 32


@dataclass(frozen=True)
class Variant:
    """One line of the comparison: a mechanism of the registry with its options."""

    label: str
    name: str
    options: Mapping[str, Any]

    def build(self, dim: int, epsilon: float, clients: int, clip: float = 1.0, *, one_round: bool = False) -> Mechanism:
        """Create the mechanism with the common arguments it accepts; for one round, with the frames it needs."""
        known = inspect.signature(mechanism_class(self.name)).parameters
        # With groups, `dim` is the total of all groups.
        common = {"dim": dim // self.options.get("groups", 1), "epsilon": epsilon, "clients": clients, "clip": clip}
        if not one_round and "clients" in known and known["clients"].default is None:
            del common["clients"]
        return mechanism(self.name, **{k: v for k, v in common.items() if k in known} | dict(self.options))


def all_variants(*names: str) -> list[Variant]:
    """Return the variants that the comparison shows of these mechanisms, or of all in the registry.

    Examples:
        >>> [variant.label for variant in all_variants("sqkr")]
        ['SQKR', 'SQKR, public coin', 'SQKR dense']
    """
    classes = ((name, mechanism_class(name)) for name in names or list_mechanisms())
    return [Variant(label, name, options) for name, found in classes for label, options in found.variants.items()]


def all_families(*names: str) -> list[Variant]:
    """Return the points of these or all mechanisms at several numbers of bits; equal labels form one family.

    Examples:
        >>> [point.options["bits"] for point in all_families("frameunit")[1:4]]
        [1, 2, 3]
    """
    sweeps = ((name, *sweep) for name in names or list_mechanisms() for sweep in mechanism_class(name).sweeps.items())
    return [Variant(label, name, options) for name, label, points in sweeps for options in points]


@dataclass(frozen=True)
class Times:
    """Seconds on all cores, measured here: for encoding one vector, and for adding one message."""

    encode: float
    add: float


@dataclass(frozen=True)
class Comparison:
    """The cost of one mechanism for unit vectors.

    `exact` says whether the guarantee holds integer by integer; `bias2` and `variance` are those of the clients' mean.
    `times` is None if not measured.
    """

    label: str
    name: str
    bits: int
    coin: str
    trust: str
    exact: bool
    unbiased: Unbiased
    bias2: float
    variance: float
    times: Times | None = None

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.bias2 + self.variance


Skipped = Callable[[Variant, str], None] | None


def compare(
    dim: int,
    epsilon: float,
    clients: int,
    *,
    timed: bool = True,
    one_round: bool = True,
    variants: Iterable[Variant] | None = None,
    skipped: Skipped = None,
) -> Iterator[Comparison]:
    """Compare the mechanisms on a fixed typical unit vector that every client holds.

    Args:
        dim: d.
        epsilon: the ε of one message (of the released mean for CSGM).
        clients: n, the number of clients whose mean is estimated.
        timed: whether to measure encoding and decoding.
        one_round: whether FrameUnit has as many frames as these clients need, or one.
        variants: the mechanisms to compare; all by default.
        skipped: called with each variant that does not exist for these parameters, and the reason.

    Examples:
        >>> rows = list(compare(64, 2.0, 1000, timed=False, variants=all_variants("sstq")[:2]))
        >>> rows[0].bits, bool(rows[0].unbiased)
        (10, True)
    """
    for candidate in all_variants() if variants is None else variants:
        try:
            built = candidate.build(dim, epsilon, clients, one_round=one_round)
        except ValueError as refusal:
            if skipped is not None:
                skipped(candidate, str(refusal))
            continue
        error = built.typical_error(clients)
        facts = built.message_bits, built.coin, built.trust, built.exact, built.unbiased
        times = time_mechanism(built, clients) if timed else None
        yield Comparison(candidate.label, candidate.name, *facts, error.bias2, error.variance, times)


def frontier(
    dim: int, epsilon: float, *, families: Iterable[Variant] | None = None, skipped: Skipped = None
) -> Iterator[Comparison]:
    """Return the error of one client's estimate of a typical unit vector, for every local mechanism and number of bits.

    Examples:
        >>> points = list(frontier(64, 3.0, families=all_families("frameunit")[:3]))
        >>> [(point.label, point.bits) for point in points]
        [('FrameUnit', 9), ('FrameUnit, public rows', 1), ('FrameUnit, public rows', 2)]
    """
    points = all_families() if families is None else families
    return compare(dim, epsilon, 1, timed=False, one_round=False, variants=points, skipped=skipped)


def optimal_error(dim: int, epsilon: float) -> float:
    """Return the least MSE/d of all unbiased ε-LDP randomizers of unit vectors, whatever their bits: PrivUnit's.

    Asi, Feldman and Talwar, *Optimal algorithms for mean estimation under local differential privacy*, ICML 2022:
    PrivUnit with the best cap is optimal for every d, and PrivUnitG's error tends to its (0.1 % above at d = 1000).

    Examples:
        >>> round(optimal_error(10_000, 3.0), 4)
        0.7425
    """
    return mechanism("privunit", dim=dim, epsilon=epsilon).expected_mse(np.full(dim, dim**-0.5)).total / dim


def one_bit_error(dim: int, epsilon: float) -> float:
    """Return the least MSE/d with one bit per client: the side of a random hyperplane, by randomized response.

    RRSC is optimal for its number of bits (Isik et al., *Exact optimality of communication-privacy-utility tradeoffs in
    distributed mean estimation*, NeurIPS 2023), and with one bit it is ±u for a uniform direction u. Its alignment is
    E|u₁|·(e^ε − 1)/(e^ε + 1), E|u₁| being √(2/π)/E[χ_d].

    Examples:
        >>> round(one_bit_error(10_000, 3.0), 3)
        1.917
    """
    alignment = math.sqrt(2 / math.pi) / mean_chi(dim) * math.tanh(epsilon / 2)
    return (alignment**-2 - 1) / dim


def _seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _time_encoding(mechanism: Mechanism, most: int) -> tuple[float, Messages]:
    """Return the seconds per client for a typical vector, and the messages: as many as asked for or as time allows."""
    x = typical_vector(mechanism.dim, mechanism.clip)

    def encode(count: int) -> Messages:
        identifiers = np.arange(count) if mechanism.coin == "public" else None
        rows, groups = np.broadcast_to(x, (count, len(x))), mechanism.groups_in_turn(count)
        return mechanism.encode(rows, clients=identifiers, groups=groups)

    encode(1)  # compiles and fills caches
    once, _ = _seconds(lambda: encode(1))
    count = int(np.clip(_SECONDS / max(once, 1e-6), 1, most))
    taken, messages = _seconds(lambda: encode(count))
    return taken / count, messages


def time_mechanism(mechanism: Mechanism, clients: int = _MOST_TIMED) -> Times:
    """Measure a few messages of a typical vector, within about a second if possible.

    Examples:
        >>> import sstq
        >>> time_mechanism(sstq.SSTQ(dim=100, epsilon=1.0)).encode > 0
        True
    """
    # A round of CSGM takes no more messages than it has clients.
    encoding, messages = _time_encoding(mechanism, min(_MOST_TIMED, clients))
    mechanism.aggregator().update(messages)
    adding, _ = _seconds(lambda: mechanism.aggregator().update(messages))
    return Times(encoding, adding / len(messages))
