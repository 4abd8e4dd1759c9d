"""Channels: random maps from tokens to codes that are ε-LDP exactly as implemented, and their decoding values.

A channel is a matrix of non-negative integers; row k holds the weights of the codes given token k and sums to 2^62. One
draw of 62 uniform bits against the cumulative weights picks the code. Every column is positive in all rows with
max/min ≤ e^ε in rational arithmetic, or zero in all rows and never sent. Both are checked, exactly, whenever a channel
is built.

Examples:
    >>> channel = flat_channel(bits=2, epsilon=3.0)
    >>> 3.0 - 1e-10 < channel.privacy_loss() <= 3.0
    True
    >>> channel.sample(np.arange(4), np.array([0, 2**60, 2**61, 2**62 - 1], dtype=np.uint64))
    array([0, 1, 2, 2])
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from sstq.array_types import Bools, Floats, Ints, Words
from sstq.checks import check_argument
from sstq.exactness import TOTAL, exp_lower, largest_ratio, log_upper, rows_sum_to_total
from sstq.scalar.codebooks import BITS_MAX, Codebook
from sstq.scalar.laws import Law

RESIDUAL_MAX = 1e-9
"""The largest bias of an "unbiased" decoder, in units of B."""

_SIZE_MAX = 1 << BITS_MAX
_RANK_TOLERANCE = 1e-12


class Channel(ABC):
    """A random map from tokens to codes, defined by a matrix of integers and named for its construction."""

    name: str
    epsilon: float

    @property
    @abstractmethod
    def matrix(self) -> Ints:
        """The integer weights, (inputs, outputs), each row summing to 2^62."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of tokens and of codes, including codes that never occur."""
        tokens, codes = self.matrix.shape
        return tokens, codes

    @property
    def used(self) -> Bools:
        """Which codes can occur."""
        return self._extremes[0] > 0

    def probabilities(self) -> Floats:
        """Return the weights divided by 2^62."""
        return self.matrix / TOTAL

    def ratio(self) -> Fraction:
        """Return the largest ratio of two weights in one column, exactly."""
        return largest_ratio(*self._extremes)

    def law(self) -> Law:
        """The law of the draw, from its integers."""
        return Law("table", self.shape[0], self.matrix.tolist())

    def privacy_loss(self) -> float:
        """Return the logarithm of `ratio`, rounded up to a double; never above ε."""
        return self._loss

    @cached_property
    def _loss(self) -> float:
        return log_upper(self.ratio())

    def moments(self, values: Floats) -> tuple[Floats, Floats]:
        """Return E[w|token] and E[w²|token] of decoding values w, one per code, from the integer weights."""
        probabilities = self.probabilities()
        return probabilities @ values, probabilities @ values**2

    def sample(self, tokens: Ints, words: Words) -> Ints:
        """Draw a code for each token, with the same work whatever the token and the word.

        The words are uniform integers in [0, 2^62), one for each token, as uint64.
        """
        # Bisection for #{cumulative weights ≤ word}, in as many steps for every token and word.
        remaining = self.shape[1]
        weights = self._cumulative.reshape(-1)
        before = tokens * remaining - 1
        place = before.copy()
        while remaining > 1:
            half = remaining // 2
            place += half * (weights[place + half] <= words)
            remaining -= half
        return np.asarray(place - before)

    @cached_property
    def _extremes(self) -> tuple[Ints, Ints]:
        return self.matrix.max(axis=0), self.matrix.min(axis=0)

    @cached_property
    def _cumulative(self) -> Words:
        return np.cumsum(self.matrix, axis=1).astype(np.uint64)

    def _check_ratio(self) -> None:
        # Rounded up to a double, as ε is one: exact to 58 digits, which ratios of 62-bit integers cannot fall between.
        if not self._loss <= self.epsilon:
            largest = f"its largest ratio of weights is {float(self.ratio()):.17g}, above e^epsilon"
            raise ValueError(f"the channel is not {self.epsilon}-LDP: {largest}")


@dataclass(frozen=True)
class FlatChannel(Channel):
    """Randomized response on M tokens: the token itself with weight ``own``, each other one with weight ``other``.

    Args:
        epsilon: the privacy budget.
        size: M, the number of tokens and of codes; the matrix is built up to 4096.
        own: integer weight a of the token itself.
        other: integer weight b of each other token, 0 < b < a; a + (M − 1)·b = 2^62 and a/b ≤ e^ε.

    Examples:
        >>> FlatChannel(epsilon=1.0, size=2, own=3 * 2**60, other=2**60)
        Traceback (most recent call last):
        ...
        ValueError: the channel is not 1.0-LDP: its largest ratio of weights is 3, above e^epsilon
    """

    name = "flat"
    epsilon: float
    size: int
    own: int
    other: int

    def __post_init__(self) -> None:
        if not 0 < self.other < self.own == TOTAL - (self.size - 1) * self.other:
            raise ValueError(
                f"own must be above other and a row sum to 2^62, got {self.own} and {self.other}"
            )
        self._check_ratio()

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of tokens and of codes."""
        return self.size, self.size

    @property
    def used(self) -> Bools:
        """Which codes can occur: all."""
        return np.ones(self.size, dtype=np.bool_)

    @property
    def matrix(self) -> Ints:
        """The integer weights, built again at each call (134 MB for 12 bits)."""
        if self.size > _SIZE_MAX:
            raise ValueError(
                f"the matrix of {self.size} tokens is too large to build; use own and other"
            )
        weights = np.full((self.size, self.size), self.other, dtype=np.int64)
        np.fill_diagonal(weights, self.own)
        return weights

    @property
    def gain(self) -> float:
        """The gap p − q: the factor by which it shrinks any function of the token that sums to zero.

        A division of integers is rounded correctly everywhere, so that two machines decode alike.
        """
        return (self.own - self.other) / TOTAL

    def law(self) -> Law:
        """The law of the draw, from its integers."""
        return Law("flat", self.size, [(self.own, self.other)])

    def ratio(self) -> Fraction:
        """Return the ratio of the two weights."""
        return Fraction(self.own, self.other)

    def moments(self, values: Floats) -> tuple[Floats, Floats]:
        """Return E[w|token] and E[w²|token] of decoding values w, one per code."""
        floor = self.other / TOTAL
        return self.gain * values + floor * math.fsum(
            values
        ), self.gain * values**2 + floor * math.fsum(values**2)

    def sample(self, tokens: Ints, words: Words) -> Ints:
        """Draw a code for each token, with the same work whatever the token and the word."""
        # The token when word < a, else the ⌊(word − a)/b⌋-th of the other tokens in order.
        beyond = words.astype(np.int64) - self.own
        other = beyond // self.other
        return np.where(beyond < 0, tokens, other + (other >= tokens))


def flat_channel(bits: int, epsilon: float) -> FlatChannel:
    """Return randomized response on M = 2^bits tokens with the whole budget (paper, Section 3)."""
    return flat_channel_of_size(1 << check_argument("bits", bits), epsilon)


def flat_channel_of_size(size: int, epsilon: float) -> FlatChannel:
    """Return randomized response on any number M of tokens with the whole budget.

    With E just below e^ε, b = ⌈2^62/(E + M − 1)⌉ and a = 2^62 − (M − 1)·b ≤ E·b: sound by construction, and the budget
    lost to rounding is about (e^ε + M)/2^62.
    """
    other = math.ceil(TOTAL / (exp_lower(epsilon) + size - 1))
    return FlatChannel(epsilon, size, TOTAL - (size - 1) * other, other)


@dataclass(frozen=True, eq=False)
class TableChannel(Channel):
    """A channel given by its matrix of integer weights.

    Args:
        name: the construction it comes from, such as "metric-aware".
        epsilon: the privacy budget.
        weights: the matrix, (inputs, outputs) non-negative int64 weights, each row summing to 2^62.

    Examples:
        >>> TableChannel("table", 1.0, [[2**61, 2**61], [2**62, 0]])
        Traceback (most recent call last):
        ...
        ValueError: column 1 of matrix is zero in some rows and positive in others: seeing it would reveal the token
    """

    name: str
    epsilon: float
    weights: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _read_matrix(self.weights))
        if self.weights.min() < 0:
            raise ValueError(
                f"matrix must have non-negative weights, got {self.weights.min()}"
            )
        for row in np.flatnonzero(~rows_sum_to_total(self.weights)):
            raise ValueError(f"row {row} of matrix must sum to exactly 2^62")
        tops, bottoms = self._extremes
        for column in np.flatnonzero((bottoms == 0) & (tops > 0)):
            mixed = (
                f"column {column} of matrix is zero in some rows and positive in others"
            )
            raise ValueError(f"{mixed}: seeing it would reveal the token")
        self._check_ratio()

    @property
    def matrix(self) -> Ints:
        """The integer weights, as given."""
        return self.weights


def _read_matrix(matrix: object) -> Ints:
    """Return a read-only int64 copy; ValueError for anything else, including floats, which are not exact."""
    try:
        weights = np.array(matrix)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"matrix must be a rectangular table of integers: {error}"
        ) from None
    if (
        weights.ndim != 2
        or weights.dtype != np.int64
        or not all(1 <= length <= _SIZE_MAX for length in weights.shape)
    ):
        got = f"{weights.dtype} of shape {weights.shape}"
        raise ValueError(
            f"matrix must be a table of int64 weights with sides in [1, {_SIZE_MAX}], got {got}"
        )
    weights.setflags(write=False)
    return weights


def unbiased_decoder(channel: Channel, codebook: Codebook) -> Floats:
    """Return values w with Σ_i P(i|k)·w_i = c_k for every token k, P being the channel's integers over 2^62.

    For the flat channel w_k = (2^62·c_k − b·Σc)/(a − b). In general the linear system is solved by rank-revealing QR;
    of several solutions the one of least Σ_i π_i·w_i² (π the mean of the rows) is taken. Codes never sent get 0.
    ValueError when no solution is unbiased within 1e-9.

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> unbiased_decoder(flat_channel(1, 3.0), uniform_codebook(1)).round(4)
        array([-1.1048,  1.1048])
    """
    if isinstance(channel, FlatChannel):
        total = math.fsum(codebook.values)
        contrast = channel.own - channel.other
        values: Floats = codebook.values * (TOTAL / contrast) - total * (
            channel.other / contrast
        )
    else:
        values = _least_variance_solution(channel, codebook.values)
    residual = float(np.abs(channel.moments(values)[0] - codebook.values).max())
    if not residual <= RESIDUAL_MAX:
        best = f"the best is off by {residual:.1e}, above {RESIDUAL_MAX}"
        raise ValueError(
            f"no decoder is unbiased for this channel: {best}; use fewer bits or a larger epsilon"
        )
    return values


def _least_variance_solution(channel: Channel, targets: Floats) -> Floats:
    from scipy.linalg import lstsq

    distinct, first = np.unique(targets, return_index=True)
    used = channel.used
    rows = channel.probabilities()[np.ix_(first, used)]
    # In the unknowns √π·w the least norm is the least variance. Directions that no row can tell apart (cells thinner
    # than the arithmetic) are cut by the rank tolerance; they would only add noise.
    scales = 1 / np.sqrt(rows.mean(axis=0))
    solution = lstsq(
        rows * scales, distinct, cond=_RANK_TOLERANCE, lapack_driver="gelsy"
    )[0]
    values = np.zeros(channel.shape[1])
    values[used] = scales * solution
    return values
