"""Flat randomized response: two integers."""

import math
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.exactness import TOTAL, check_epsilon, exp_lower
from sstq.scalar.channels.base import SIZE_MAX, Channel
from sstq.scalar.codebooks import check_bits

# Beyond, the weight of an other token would have too few digits. vqSGD has 2·d tokens.
_SIZE_MAX_FLAT = 1 << 40


@dataclass(frozen=True)
class FlatChannel(Channel):
    """Randomized response on M tokens: the token itself with weight ``own``, each other one with weight ``other``.

    Args:
        epsilon: the privacy budget.
        size: M, the number of tokens and of codes, in [2, 2^40]; the matrix is built up to 4096.
        own: integer weight a of the token itself.
        other: integer weight b of each other token; a + (M − 1)·b = 2^62 and a/b ≤ e^ε.

    Examples:
        >>> FlatChannel(epsilon=1.0, size=2, own=3 * 2**60, other=2**60)
        Traceback (most recent call last):
        ...
        ValueError: the channel is not 1.0-LDP: its largest ratio of weights is 3, above e^epsilon

    """

    name: str = field(init=False, default="flat")
    epsilon: float
    size: int
    own: int
    other: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        for label in ("size", "own", "other"):
            _check_integer(label, getattr(self, label))
        if not 2 <= self.size <= _SIZE_MAX_FLAT:
            raise ValueError(f"size = {self.size} is not in [2, 2^40]")
        for label in ("own", "other"):
            if not 0 < getattr(self, label) < TOTAL:
                raise ValueError(f"{label} = {getattr(self, label)} is not in (0, 2^62)")
        total = self.own + (self.size - 1) * self.other
        if total != TOTAL:
            raise ValueError(f"own + (size − 1)·other = {total} is not 2^62: the rows do not sum to it")
        self._check_ratio()

    @property
    def inputs(self) -> int:
        """The number of tokens."""
        return self.size

    @property
    def outputs(self) -> int:
        """The number of codes."""
        return self.size

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which codes can occur: all."""
        return np.ones(self.size, dtype=np.bool_)

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The integer weights, built anew at each call (134 MB for 12 bits)."""
        if self.size > SIZE_MAX:
            raise ValueError(f"the matrix of {self.size} tokens is not built; own and other say all that is in it")
        weights = np.full((self.size, self.size), self.other, dtype=np.int64)
        np.fill_diagonal(weights, self.own)
        return weights

    def probabilities(self) -> NDArray[np.float64]:
        """Return the weights divided by 2^62."""
        return self.matrix / TOTAL

    def _draw(self, tokens: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        # The token when word < a, else the ⌊(word − a)/b⌋-th of the other tokens in order.
        beyond = words.astype(np.int64) - self.own
        other = beyond // self.other
        return np.where(beyond < 0, tokens, other + (other >= tokens))

    def moments(self, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return E[w|token] and E[w²|token] of decoding values w, in closed form from the two integers.

        Examples:
            >>> first, second = flat_channel(1, 3.0).moments([-1.0, 1.0])
            >>> first.round(4), second
            (array([-0.9051,  0.9051]), array([1., 1.]))
        """
        w = self._check_values(values)
        gain, floor = (self.own - self.other) / TOTAL, self.other / TOTAL
        return gain * w + floor * math.fsum(w), gain * w**2 + floor * math.fsum(w**2)

    def to_dict(self) -> dict[str, Any]:
        """Return the integers themselves, for JSON."""
        return asdict(self)

    def ratio(self) -> Fraction:
        """Return the largest ratio of two weights in one column, exactly."""
        return Fraction(max(self.own, self.other), min(self.own, self.other))


def flat_channel(bits: int, epsilon: float) -> FlatChannel:
    """Return randomized response on M = 2^bits tokens with the whole budget (paper, Section 3).

    With E just below e^ε, b = ⌈2^62/(E + M − 1)⌉ and a = 2^62 − (M − 1)·b ≤ E·b: sound by construction, and the budget
    lost to rounding is about (e^ε + M)/2^62.

    Examples:
        >>> channel = flat_channel(4, 3.0)
        >>> 3.0 - 1e-10 < channel.privacy_loss() <= 3.0
        True
    """
    return flat_channel_of_size(1 << check_bits(bits), epsilon)


def flat_channel_of_size(size: int, epsilon: float) -> FlatChannel:
    """Return randomized response on any number of tokens with the whole budget.

    Examples:
        >>> flat_channel_of_size(6, 1.0).privacy_loss() <= 1.0
        True
    """
    other = math.ceil(TOTAL / (exp_lower(check_epsilon(epsilon)) + size - 1))
    return FlatChannel(float(epsilon), size, TOTAL - (size - 1) * other, other)


def _check_integer(label: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{label} = {value!r} is not an integer")
