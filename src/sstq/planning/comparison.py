"""All mechanisms side by side: bits, bias, variance and time (the paper's Table 1, as numbers), and error against bits.

`compare` has the error of a mean of n clients, `frontier` that of one client's estimate at several numbers of bits;
`optimal_error` and `one_bit_error` are the two lines that no mechanism crosses.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.mechanisms import Mechanism, Unbiased, list_mechanisms, mechanism, mechanism_class
from sstq.planning.timing import seconds_of, time_encoding

_MOST_TIMED = 32


@dataclass(frozen=True)
class Variant:
    """One line of the comparison: a mechanism of the registry with its options."""

    label: str
    name: str
    options: Mapping[str, Any]

    def build(self, dim: int, epsilon: float, clients: int, clip: float = 1.0, *, one_round: bool = False) -> Mechanism:
        """The mechanism, with those of the common arguments that mean something to it.

        For one round FrameUnit has as many frames as its clients need; over many, one frame per round averages out.
        """
        known = inspect.signature(mechanism_class(self.name)).parameters
        common = {"dim": dim, "epsilon": epsilon, "clients": clients, "clip": clip}
        if not one_round and "clients" in known and known["clients"].default is None:
            del common["clients"]
        return mechanism(self.name, **{k: v for k, v in common.items() if k in known} | dict(self.options))


def all_variants(*names: str) -> list[Variant]:
    """What the mechanisms of these names, or all of the registry, show in the comparison.

    Examples:
        >>> [variant.label for variant in all_variants("sqkr")]
        ['SQKR', 'SQKR, public coin', 'SQKR dense']
    """
    return [
        Variant(label, name, options)
        for name in names or list_mechanisms()
        for label, options in mechanism_class(name).variants.items()
    ]


def all_families(*names: str) -> list[Variant]:
    """The points of these or all mechanisms at several numbers of bits; equal labels are one family."""
    return [
        Variant(label, name, options)
        for name in names or list_mechanisms()
        for label, points in mechanism_class(name).sweeps.items()
        for options in points
    ]


@dataclass(frozen=True)
class Comparison:
    """What one mechanism costs for unit vectors.

    Attributes:
        label: the mechanism and its variant or family.
        name: in the registry.
        bits: of one message.
        coin: "private" or "public".
        trust: who has to be trusted.
        exact: whether the guarantee holds integer by integer.
        unbiased: when the estimate is, for the frames at hand.
        bias2: the squared bias of the mean.
        variance: of the mean of the clients.
        encode_ms: milliseconds to encode one client's vector, on all cores; None if not timed.
        decode_ms: milliseconds to add one message; None if not timed.
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
    encode_ms: float | None = None
    decode_ms: float | None = None

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.bias2 + self.variance


Skipped = Callable[[Variant, str], None]


def compare(
    dim: int,
    epsilon: float,
    clients: int,
    *,
    timed: bool = True,
    one_round: bool = True,
    variants: Iterable[Variant] | None = None,
    skipped: Skipped = lambda _variant, _reason: None,
) -> Iterator[Comparison]:
    """Compare the mechanisms on a fixed typical unit vector that every client holds.

    Args:
        dim: d.
        epsilon: ε of one message (of the released mean for CSGM).
        clients: n, the number of clients whose mean is estimated.
        timed: whether to measure encoding and decoding.
        one_round: whether FrameUnit has as many frames as these clients need, or one.
        variants: which mechanisms; all by default.
        skipped: called with the variants that do not exist at these parameters, and why.

    Examples:
        >>> rows = list(compare(64, 2.0, 1000, timed=False, variants=all_variants("sstq")[:2]))
        >>> rows[0].bits, bool(rows[0].unbiased)
        (10, True)
    """
    for candidate in all_variants() if variants is None else variants:
        try:
            built = candidate.build(dim, epsilon, clients, one_round=one_round)
        except ValueError as refusal:
            skipped(candidate, str(refusal))
            continue
        error = built.typical_error(clients)
        encode_ms, decode_ms = _milliseconds(built, clients) if timed else (None, None)
        yield Comparison(
            candidate.label,
            candidate.name,
            built.message_bits,
            **{name: getattr(built, name) for name in ("coin", "trust", "exact", "unbiased")},
            bias2=error.bias2,
            variance=error.variance,
            encode_ms=encode_ms,
            decode_ms=decode_ms,
        )


def frontier(
    dim: int,
    epsilon: float,
    *,
    families: Iterable[Variant] | None = None,
    skipped: Skipped = lambda _variant, _reason: None,
) -> Iterator[Comparison]:
    """The error of one client's estimate of a typical unit vector, for every local mechanism and number of bits.

    Examples:
        >>> points = list(frontier(64, 3.0, families=all_families("frameunit")[:3]))
        >>> [(point.label, point.bits) for point in points]
        [('FrameUnit', 9), ('FrameUnit, public rows', 1), ('FrameUnit, public rows', 2)]
    """
    points = all_families() if families is None else families
    return compare(dim, epsilon, 1, timed=False, one_round=False, variants=points, skipped=skipped)


def _milliseconds(built: Mechanism, clients: int) -> tuple[float, float]:
    """Milliseconds per client for encoding and for adding up, after calls that are not counted."""
    # A round of CSGM takes no more messages than it has clients.
    encoding, messages = time_encoding(built, min(_MOST_TIMED, clients))
    built.aggregator().update(messages)
    adding, _ = seconds_of(lambda: built.aggregator().update(messages))
    return 1e3 * encoding, 1e3 * adding / len(messages)


def optimal_error(dim: int, epsilon: float) -> float:
    """The least MSE/d of all unbiased ε-LDP randomizers of unit vectors, however long their messages: PrivUnit's.

    Asi, Feldman and Talwar, *Optimal algorithms for mean estimation under local differential privacy*, ICML 2022:
    PrivUnit with the best cap is optimal for every d, and PrivUnitG's error tends to its (0.1 % above at d = 1000).

    Examples:
        >>> round(optimal_error(10_000, 3.0), 4)
        0.7425
    """
    return mechanism("privunit", dim=dim, epsilon=epsilon).expected_mse(np.full(dim, dim**-0.5)).total / dim


def one_bit_error(dim: int, epsilon: float) -> float:
    """The least MSE/d of one bit per client: the side of a random hyperplane, randomized.

    RRSC is optimal for its number of bits (Isik et al., *Exact optimality of communication-privacy-utility tradeoffs in
    distributed mean estimation*, NeurIPS 2023), and with one bit it is ±u for a uniform direction u. Its alignment is
    E|u₁|·(e^ε − 1)/(e^ε + 1), E|u₁| being √(2/π)/E[χ_d].

    Examples:
        >>> round(one_bit_error(10_000, 3.0), 3)
        1.917
    """
    from sstq.mechanisms.closest import mean_chi

    alignment = math.sqrt(2 / math.pi) / mean_chi(dim) * math.tanh(epsilon / 2)
    return (alignment**-2 - 1) / dim
