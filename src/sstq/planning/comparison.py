"""All mechanisms side by side: bits, bias, variance, and the time that they take (the paper's Table 1, as numbers)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms import Mechanism, Unbiased, list_mechanisms, mechanism, mechanism_class
from sstq.mechanisms.structured import typical_vector

__all__ = ["Comparison", "Variant", "all_variants", "compare", "variants_of"]

# Timing stops after this many seconds or clients, whichever comes first.
_SECONDS, _MOST_CLIENTS = 0.3, 32


@dataclass(frozen=True)
class Variant:
    """One line of the comparison: a mechanism of the registry with its options."""

    label: str
    name: str
    options: Mapping[str, Any]

    def build(self, dim: int, epsilon: float, clients: int, clip: float = 1.0, *, one_round: bool = False) -> Mechanism:
        """The mechanism, with those of the common arguments that mean something to it.

        For one round FrameUnit has as many frames as its clients need; over many, one frame a round averages out.
        """
        known = inspect.signature(mechanism_class(self.name)).parameters
        common = {"dim": dim, "epsilon": epsilon, "clients": clients, "clip": clip}
        if not one_round and "clients" in known and known["clients"].default is None:
            del common["clients"]
        return mechanism(self.name, **{k: v for k, v in common.items() if k in known} | dict(self.options))


def variants_of(name: str) -> list[Variant]:
    """What the mechanism of that name shows in the comparison.

    Examples:
        >>> [variant.label for variant in variants_of("sqkr")]
        ['SQKR', 'SQKR, public coin', 'SQKR dense']
    """
    return [Variant(label, name, options) for label, options in mechanism_class(name).variants.items()]


def all_variants() -> list[Variant]:
    """What all mechanisms of the registry show in the comparison."""
    return [variant for name in list_mechanisms() for variant in variants_of(name)]


@dataclass(frozen=True)
class Comparison:
    """What one mechanism costs for unit vectors.

    Attributes:
        label: the mechanism and its variant.
        name: in the registry.
        bits: of one message.
        coin: "private" or "public".
        trust: who has to be trusted.
        exact: whether the guarantee holds integer by integer.
        unbiased: when the estimate is.
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


def compare(
    dim: int,
    epsilon: float,
    clients: int,
    *,
    timed: bool = True,
    variants: Iterable[Variant] | None = None,
    skipped: Callable[[Variant, str], None] = lambda _variant, _reason: None,
) -> Iterator[Comparison]:
    """Compare the mechanisms on a fixed typical unit vector that every client holds.

    Args:
        dim: d.
        epsilon: ε of one message (of the released mean for CSGM).
        clients: n, the number of clients whose mean is estimated.
        timed: whether to measure encoding and decoding.
        variants: which mechanisms; all by default.
        skipped: called with the variants that do not exist at these parameters, and why.

    Examples:
        >>> rows = list(compare(64, 2.0, 1000, timed=False, variants=variants_of("sstq")[:2]))
        >>> rows[0].bits, bool(rows[0].unbiased)
        (10, True)
    """
    x = typical_vector(dim)
    for candidate in all_variants() if variants is None else variants:
        try:
            built = candidate.build(dim, epsilon, clients, one_round=True)
        except ValueError as refusal:
            skipped(candidate, str(refusal))
            continue
        error = built.typical_error(clients)
        encode_ms, decode_ms = _milliseconds(built, x, clients) if timed else (None, None)
        yield Comparison(
            label=candidate.label,
            name=candidate.name,
            bits=built.message_bits,
            coin=built.coin,
            trust=built.trust,
            exact=built.exact,
            unbiased=built.unbiased,
            bias2=error.bias2,
            variance=error.variance,
            encode_ms=encode_ms,
            decode_ms=decode_ms,
        )


def _milliseconds(built: Mechanism, x: NDArray[np.float64], clients: int) -> tuple[float, float]:
    """Milliseconds a client for encoding and for adding up, after one call that is not counted."""

    def encode(count: int) -> Any:
        identifiers = np.arange(count) if built.coin == "public" else None
        return built.encode(np.broadcast_to(x, (count, len(x))), clients=identifiers)

    start = time.perf_counter()
    first = encode(1)
    once = time.perf_counter() - start
    # A round of CSGM takes no more messages than it has clients.
    count = int(np.clip(_SECONDS / max(once, 1e-6), 1, min(_MOST_CLIENTS, clients)))
    start = time.perf_counter()
    messages = encode(count)
    encoding = (time.perf_counter() - start) / count
    aggregator = built.aggregator()
    aggregator.update(first)
    start = time.perf_counter()
    built.aggregator().update(messages)
    return 1e3 * encoding, 1e3 * (time.perf_counter() - start) / count
