"""Exact sums of decoded values as integers in fixed point: in the frame domain, or of whole vectors.

A number that needs more than 63 bits is kept in two limbs, high·2^30 + low, each of which adds up on its own.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.aggregation.base import Aggregator
from sstq.frames.tight import Frame
from sstq.kernels import LIMB_BITS
from sstq.messages.batch import Messages

# Decoded numbers at a time: enough that calls do not matter, few enough for the second-level cache.
_NUMBERS_AT_A_TIME = 1 << 18
# Up to this many dimensions the square of a covariance is computed exactly.
_AXES = 64


class FrameAggregator(Aggregator):
    """Sums in the frame domain, O(1) per message, for mechanisms whose estimate from one message is d·w·u_j.

    One row of integers per frame coordinate counts the messages and holds the sum of their values (two limbs) and of
    their squares. One synthesis gives the mean. The mechanism has `frame`, whose rows are the u_j; `decoding_values`,
    the w of every code in units of `decoding_scale`; and `indices_and_codes(messages)`.
    """

    def _empty_state(self) -> NDArray[np.int64]:
        values = self._mechanism.decoding_values
        self._table, self._exponent = _fixed_point_table(values)
        self._scale = float(self._mechanism.decoding_scale)
        self._largest_value = self._scale * float(np.max(np.abs(values)))
        return np.zeros((self._mechanism.frame.size, 4), dtype=np.int64)

    def _add(self, messages: Messages, times: NDArray[np.int64] | None) -> None:
        index, code = self._mechanism.indices_and_codes(messages)
        if times is None:
            kernels.accumulate(self._state, index, code, self._table)
            return
        terms = np.insert(self._table, 0, 1, axis=1)[code] * times[:, None]
        for column, values in zip(self._state.T, terms.T, strict=True):
            np.add.at(column, index.astype(np.int64), values)

    def _check_state(self, state: NDArray[np.int64], count: int) -> None:
        super()._check_state(state, count)
        counts = state[:, 0]
        if np.any(counts < 0) or np.any(counts > count) or int(counts.sum()) != count:
            raise ValueError(f"its sums must be those of {count} messages, got another number")

    def _coordinate_totals(self) -> NDArray[np.float64]:
        """The sum of the decoded values of every coordinate, in units of the decoding scale."""
        return _from_limbs(self._state[:, 1:3], self._exponent - 2 * LIMB_BITS)

    def _coordinate_squares(self) -> NDArray[np.float64]:
        """The sum of the squares of the decoded values of every coordinate, in units of the decoding scale squared."""
        return _from_limbs(self._state[:, 3:], 2 * self._exponent - LIMB_BITS)

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        frame, scale = self._mechanism.frame, self._scale
        totals, squares = self._coordinate_totals(), self._coordinate_squares()
        # In place: in ten million dimensions allocating an array takes as long as transforming it.
        totals *= scale * (frame.size / self._count)
        value = np.asarray(frame.synthesize(totals[None])[0], dtype=np.float64)
        power = frame.column_power(squares)
        power *= (frame.dim * scale) ** 2 / self._count
        return value, power

    def _largest(self) -> tuple[float, float]:
        frame = self._mechanism.frame
        return largest_of_row(frame, frame.dim * self._largest_value)

    def _directions(self, value: NDArray[np.float64], stderr: NDArray[np.float64]) -> float:
        """(tr Σ)²/tr Σ² of the covariance Σ of one message: coordinates that are large by themselves make it less.

        A message squared with itself tells nothing of Σ²; with all those of a coordinate taken as equally large,
        these terms are known and left out.
        """
        frame, count = self._mechanism.frame, self._count
        squares = self._coordinate_squares()
        squares *= (frame.dim * self._scale) ** 2 / count
        with_itself = float(np.sum(squares**2 / np.maximum(self._state[:, 0], 1)))
        square = (trace_of_square(frame, squares, value) - with_itself) * count / (count - 1)
        total = count * float(np.sum(stderr**2))
        return total**2 / square if square > total**2 / frame.dim else float(frame.dim)


def largest_of_row(frame: Frame, factor: float) -> tuple[float, float]:
    """The largest entry and the norm of factor·u for a row u: in a Hadamard frame all entries are alike, up to mixing.

    Rows differ little in both, and in a basis not at all, so one stands for all.
    """
    row = frame.rows(np.zeros(1, dtype=np.int64))[0]
    return factor * float(np.max(np.abs(row))), factor * float(np.linalg.norm(row))


def trace_of_square(frame: Frame, weights: NDArray[np.float64], mean: NDArray[np.float64]) -> float:
    """The trace of (M − mean·meanᵀ)² with M = Σ_j weights_j·u_j·u_jᵀ.

    That of M² is E‖M·z‖² over random signs z, or the sum over all axes z if those are few. There are as many signs as
    make it right to about 2 % in any dimension, unless a few weights are all that matter.
    """
    dim, redundancy = frame.dim, frame.redundancy
    if dim <= _AXES:
        probes, repeats = np.eye(dim), 1
    else:
        repeats = max(1, _AXES**2 // dim)
        probes = np.random.default_rng(0).choice([-1.0, 1.0], size=(repeats, dim))
    coefficients = frame.analyze(np.vstack([probes, mean]))
    images = frame.synthesize(coefficients[:-1] * weights) * redundancy
    along = float(weights @ coefficients[-1] ** 2)
    return float(np.sum(images**2)) / repeats - 2 * along + float(mean @ mean) ** 2


class VectorAggregator(Aggregator):
    """Sums of whole decoded vectors, O(d) per message, for messages that decode to dense vectors.

    One row of integers per coordinate holds the sum of the decoded values (two limbs) and of their squares (one).
    The fixed point has a public unit, the mechanism's `decoding_scale`: about the root mean square of a decoded
    coordinate. One beyond 2^8 units cannot come from an honest client and is refused.
    """

    # Values are kept to 2^-44 of the unit, and their squares to 2^-14 of its square.
    _columns, _value_bits, _square_bits, _limit = 3, 44, 14, 2.0**8

    @property
    def _unit(self) -> float:
        return float(self._mechanism.decoding_scale)

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.dim, self._columns), dtype=np.int64)

    def _add(self, messages: Messages, times: NDArray[np.int64] | None) -> None:  # noqa: ARG002 (never counts)
        # Beside the state, which must stay as it is if a later vector is refused.
        added, unit, limit = self._empty_state(), self._unit, self._limit
        size = max(1, _NUMBERS_AT_A_TIME // self._mechanism.dim)
        for start in range(0, len(messages), size):
            vectors = self._mechanism.decode(messages[start : start + size])
            if not kernels.accumulate_vectors(added, vectors, unit, limit, self._value_bits, self._square_bits):
                raise ValueError(
                    f"decoded coordinates must be at most {limit * unit:g}: no honest client sends larger ones"
                )
        self._state += added

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        value = _from_limbs(self._state[:, :2], -self._value_bits)
        squares = _from_limbs(self._state[:, 2:], -self._square_bits)
        return value * (self._unit / self._count), squares * (self._unit**2 / self._count)


class BoundedAggregator(VectorAggregator):
    """Sums of decoded vectors without privacy noise, whose coordinates may differ by many orders of magnitude.

    A coordinate, and its standard error, may be as small as the data: squares take two limbs. The unit is the
    mechanism's `decoding_bound`, which no decoded coordinate exceeds.
    """

    private_file = True

    # Values are kept to 2^-59 of the bound and squares to 2^-59 of its square.
    _columns, _value_bits, _square_bits, _limit = 4, 59, 59, 1.0

    @property
    def _unit(self) -> float:
        return float(self._mechanism.decoding_bound)


def _fixed_point_table(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """A few decoding values as integers: (M, 3) rows of high limb, low limb, square, and the exponent of their bound.

    With |w| ≤ 2^e: high·2^30 + low = w·2^(60−e) and square = w²·2^(30−2e), to the nearest integer: finer than doubles.
    """
    exponent = math.frexp(float(np.max(np.abs(values))))[1]
    rows = []
    for value in values.tolist():
        scaled = round(Fraction(value) * Fraction(2) ** (2 * LIMB_BITS - exponent))
        square = round(Fraction(value) ** 2 * Fraction(2) ** (LIMB_BITS - 2 * exponent))
        rows.append((*divmod(scaled, 1 << LIMB_BITS), square))
    return np.array(rows, dtype=np.int64), exponent


def _from_limbs(limbs: NDArray[np.int64], exponent: int) -> NDArray[np.float64]:
    """Combine sums kept in limbs, the highest in column 0, to doubles times 2^exponent."""
    sums = limbs[:, 0].astype(np.float64)
    for low in limbs.T[1:]:
        sums *= 2.0**LIMB_BITS
        sums += low
    sums *= 2.0**exponent
    return sums
