"""Exact sums of decoded values as integers in fixed point: in the frame domain, or of whole vectors.

A number that needs more than 63 bits is kept in two limbs, high·2^30 + low, each of which adds up on its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from sstq import kernels
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.estimator import DenseEstimator, Sums
from sstq.array_types import Floats, Ints
from sstq.frames.tight import Frame
from sstq.kernels import LIMB_BITS
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column

# Decoded numbers at a time: enough that calls do not matter, few enough for the second-level cache.
_NUMBERS_AT_A_TIME = 1 << 18
# Up to this many dimensions the square of a covariance is computed exactly.
_AXES = 64


@dataclass(frozen=True, eq=False)
class FrameEstimator(DenseEstimator):
    """Sums in the frame domain, O(1) per message, for mechanisms whose estimate from one message is d·w·u_j.

    One row of integers per frame coordinate counts the messages and holds the sum of their values (two limbs) and of
    their squares. One synthesis gives the mean.

    Attributes:
        frame: its rows are the u_j.
        values: the w of every code, in units of `scale`.
        scale: a public factor of all values.
        places: the j and the code of every message.
    """

    frame: Frame
    values: Floats
    scale: float
    places: Callable[[Messages], tuple[Column, Column]]

    @property
    def shape(self) -> tuple[int, int]:
        """One row per coordinate: a count, two limbs of the sum, and the sum of squares."""
        return self.frame.size, 4

    @cached_property
    def _fixed_point(self) -> tuple[Ints, int]:
        return _fixed_point_table(self.values)

    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:
        """Add the values of the codes at their coordinates."""
        index, code = self.places(messages)
        table, _ = self._fixed_point
        if times is None:
            kernels.accumulate(state, index, code, table)
            return
        terms = np.insert(table, 0, 1, axis=1)[code] * times[:, None]
        for column, values in zip(state.T, terms.T, strict=True):
            np.add.at(column, index.astype(np.int64), values)

    def decode(self, messages: Messages) -> Floats:
        """The estimates d·w·u_j of single messages."""
        index, code = self.places(messages)
        estimates = self.frame.rows(index.astype(np.int64))
        estimates *= (self.frame.dim * self.scale * self.values[code])[:, None]
        return estimates

    def check(self, sums: Sums) -> None:
        """Raise ValueError unless the counts are those of so many messages."""
        super().check(sums)
        counts = sums.state[:, 0]
        if (
            np.any(counts < 0)
            or np.any(counts > sums.count)
            or int(counts.sum()) != sums.count
        ):
            raise ValueError(
                f"its sums must be those of {sums.count} messages, got another number"
            )

    def estimate(self, sums: Sums) -> Estimate:
        """The mean, by one synthesis."""
        totals = self.totals(sums)
        # In place: in ten million dimensions allocating an array takes as long as transforming it.
        totals *= self.scale * (self.frame.size / sums.count)
        value = np.asarray(self.frame.synthesize(totals[None])[0], dtype=np.float64)
        power = self.frame.column_power(self._squares(sums))
        power *= (self.frame.dim * self.scale) ** 2 / sums.count
        return self.averaged(sums, value, power)

    def sent(self, sums: Sums) -> tuple[Ints, int] | None:
        """How often each sign of each coordinate occurred, if the values are the signs."""
        if self.values.tolist() != [1.0, -1.0]:
            return None
        net = np.rint(self.totals(sums)).astype(np.int64)
        count = sums.state[:, 0]
        return np.concatenate([count + net, count - net]) // 2, 2 * len(count)

    def at_coordinates(self, sums: Sums) -> Ints:
        """How many messages there are of each coordinate."""
        return sums.state[:, 0]

    def totals(self, sums: Sums) -> Floats:
        """The sum of the values of every coordinate, in units of the scale."""
        _, exponent = self._fixed_point
        return _from_limbs(sums.state[:, 1:3], exponent - 2 * LIMB_BITS)

    def _squares(self, sums: Sums) -> Floats:
        """The sum of the squares of the values of every coordinate, in units of the scale squared."""
        _, exponent = self._fixed_point
        return _from_limbs(sums.state[:, 3:], 2 * exponent - LIMB_BITS)

    def largest(self) -> tuple[float, float]:
        """The largest coordinate and the norm of a row of the frame, times the largest value."""
        largest_value = self.scale * float(np.max(np.abs(self.values)))
        return largest_of_row(self.frame, self.frame.dim * largest_value)

    def directions(self, sums: Sums, value: Floats, stderr: Floats) -> float:
        """(tr Σ)²/tr Σ² of the covariance Σ of one message: coordinates that are large by themselves make it less.

        A message squared with itself tells nothing of Σ²; with all those of a coordinate taken as equally large,
        these terms are known and left out.
        """
        frame = self.frame
        count = sums.count
        squares = self._squares(sums)
        squares *= (frame.dim * self.scale) ** 2 / count
        with_itself = float(np.sum(squares**2 / np.maximum(sums.state[:, 0], 1)))
        square = (
            (trace_of_square(frame, squares, value) - with_itself) * count / (count - 1)
        )
        total = count * float(np.sum(stderr**2))
        return total**2 / square if square > total**2 / frame.dim else float(frame.dim)


def largest_of_row(frame: Frame, factor: float) -> tuple[float, float]:
    """The largest entry and the norm of factor·u for a row u: in a Hadamard frame all entries are alike, up to mixing.

    Rows differ little in both, and in a basis not at all, so one stands for all.
    """
    row = frame.rows(np.zeros(1, dtype=np.int64))[0]
    return factor * float(np.max(np.abs(row))), factor * float(np.linalg.norm(row))


def trace_of_square(frame: Frame, weights: Floats, mean: Floats) -> float:
    """The trace of (M − mean·meanᵀ)² with M = Σ_j weights_j·u_j·u_jᵀ.

    That of M² is E‖M·z‖² over random signs z, or the sum over all axes z if those are few. There are as many signs as
    make it right to about 2 % in any dimension, unless a few weights are all that matter.
    """
    dim = frame.dim
    redundancy = frame.redundancy
    if dim <= _AXES:
        probes = np.eye(dim)
        repeats = 1
    else:
        repeats = max(1, _AXES**2 // dim)
        probes = np.random.default_rng(0).choice([-1.0, 1.0], size=(repeats, dim))
    coefficients = frame.analyze(np.vstack([probes, mean]))
    images = frame.synthesize(coefficients[:-1] * weights) * redundancy
    along = float(weights @ coefficients[-1] ** 2)
    return float(np.sum(images**2)) / repeats - 2 * along + float(mean @ mean) ** 2


@dataclass(frozen=True, eq=False)
class VectorEstimator(DenseEstimator):
    """Sums of whole decoded vectors, O(d) per message, for messages that decode to dense vectors.

    One row of integers per coordinate holds the sum of the decoded values (two limbs) and of their squares (one).
    One beyond 2^8 units cannot come from an honest client and is refused.

    Attributes:
        dim: d.
        unit: the public unit of the fixed point, about the root mean square of a decoded coordinate.
        vectors: the vectors of messages, (n, d).
    """

    adds_vectors: ClassVar[bool] = True
    # Values are kept to 2^-44 of the unit, and their squares to 2^-14 of its square.
    columns: ClassVar[int] = 3
    value_bits: ClassVar[int] = 44
    square_bits: ClassVar[int] = 14
    most_units: ClassVar[float] = 2.0**8

    dim: int
    unit: float
    vectors: Callable[[Messages], Floats]

    @property
    def shape(self) -> tuple[int, int]:
        """One row per coordinate."""
        return self.dim, self.columns

    def decode(self, messages: Messages) -> Floats:
        """The vectors that messages decode to."""
        return self.vectors(messages)

    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:  # noqa: ARG002 (never counts)
        """Add the decoded vectors."""
        # Beside the state, which must stay as it is if a later vector is refused.
        added = np.zeros_like(state)
        bits = self.value_bits, self.square_bits
        size = max(1, _NUMBERS_AT_A_TIME // self.dim)
        for start in range(0, len(messages), size):
            vectors = self.vectors(messages[start : start + size])
            if not kernels.accumulate_vectors(
                added, vectors, self.unit, self.most_units, *bits
            ):
                raise ValueError(
                    f"decoded coordinates must be at most {self.most_units * self.unit:g}: no honest client sends "
                    "larger ones"
                )
        state += added

    def estimate(self, sums: Sums) -> Estimate:
        """The mean of the vectors."""
        value = _from_limbs(sums.state[:, :2], -self.value_bits)
        squares = _from_limbs(sums.state[:, 2:], -self.square_bits)
        return self.averaged(
            sums,
            value * (self.unit / sums.count),
            squares * (self.unit**2 / sums.count),
        )


def _fixed_point_table(values: Floats) -> tuple[Ints, int]:
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


def _from_limbs(limbs: Ints, exponent: int) -> Floats:
    """Combine sums kept in limbs, the highest in column 0, to doubles times 2^exponent."""
    sums = limbs[:, 0].astype(np.float64)
    for low in limbs.T[1:]:
        sums *= 2.0**LIMB_BITS
        sums += low
    sums *= 2.0**exponent
    return sums
