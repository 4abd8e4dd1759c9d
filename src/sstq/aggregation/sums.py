"""Exact sums with a row for every number, and those of a frame: decoded values as integers in fixed point.

A number that needs more than 63 bits is kept in two limbs, high·2^30 + low, each of which adds up on its own.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from sstq import kernels
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.estimator import Estimator, Sums
from sstq.array_types import Floats, Ints
from sstq.frames.tight import Frame
from sstq.kernels import LIMB_BITS
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column

# Up to this many dimensions the square of a covariance is computed exactly.
_AXES = 64


class DenseState:
    """The sums of a dense estimator, which has a row for every number."""

    def __init__(self, estimator: "DenseEstimator") -> None:
        self._estimator = estimator
        self.rows = np.zeros(estimator.shape, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.rows.nbytes

    def add(self, messages: Messages, times: Ints | None) -> None:
        """Add checked messages, each this many times, or once."""
        self._estimator.add(self.rows, messages, times)

    def merge(self, sums: Ints) -> None:
        """Add the sums of another state."""
        self.rows += sums


class DenseEstimator(Estimator):
    """An estimator whose state has all rows."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The rows and columns of a state."""

    @abstractmethod
    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:
        """Add checked messages to the state, each this many times, or once; a refused message changes nothing.

        Only messages that are estimated from counts are added several times.
        """

    def state(self) -> DenseState:
        """A state without messages."""
        return DenseState(self)

    @property
    def numbers(self) -> int:
        """The number of rows of a state."""
        return self.shape[0]

    def check(self, sums: Sums) -> None:
        """Raise ValueError for sums of another shape."""
        if sums.state.shape != self.shape:
            raise ValueError(
                f"it has sums of shape {sums.state.shape}, expected {self.shape}"
            )


@dataclass(frozen=True, eq=False)
class FrameEstimator(DenseEstimator):
    """Sums in the frame domain, O(1) per message, for mechanisms whose estimate from one message is d·w·u_j.

    The first field of a message is the code and the second is j; a single field is 2·j + code, for two codes.
    One row of integers per frame coordinate counts the messages and holds the sum of their values (two limbs) and of
    their squares. One synthesis gives the mean.

    Attributes:
        frame: its rows are the u_j.
        values: the w of every code, in units of `scale`.
        scale: a public factor of all values.
    """

    frame: Frame
    values: Floats
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """One row per coordinate: a count, two limbs of the sum, and the sum of squares."""
        return self.frame.size, 4

    def places(self, messages: Messages) -> tuple[Column, Column]:
        """The coordinate and the code of every message."""
        if len(messages.columns) == 2:
            code, index = messages.columns
            return index, code
        (number,) = messages.columns
        return number >> 1, number & 1

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
        squares = self._squares(sums)
        value = np.asarray(self.frame.synthesize(totals[None])[0], dtype=np.float64)
        power = self.frame.column_power(squares)
        power *= (self.frame.dim * self.scale) ** 2 / sums.count
        return self.averaged(sums, value, power)

    def sent(self, sums: Sums) -> tuple[Ints, int] | None:
        """How often each sign of each coordinate occurred, if the values are the signs."""
        if self.values.tolist() != [1.0, -1.0]:
            return None
        net = np.rint(self.totals(sums)).astype(np.int64)
        count = sums.state[:, 0]
        return np.concatenate([count + net, count - net]) // 2, 2 * len(count)

    def totals(self, sums: Sums) -> Floats:
        """The sum of the values of every coordinate, in units of the scale."""
        _, exponent = self._fixed_point
        return from_limbs(sums.state[:, 1:3], exponent - 2 * LIMB_BITS)

    def _squares(self, sums: Sums) -> Floats:
        """The sum of the squares of the values of every coordinate, in units of the scale squared."""
        _, exponent = self._fixed_point
        return from_limbs(sums.state[:, 3:], 2 * exponent - LIMB_BITS)

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


def from_limbs(limbs: Ints, exponent: int) -> Floats:
    """Combine sums kept in limbs, the highest in column 0, to doubles times 2^exponent."""
    sums = limbs[:, 0].astype(np.float64)
    for low in limbs.T[1:]:
        sums *= 2.0**LIMB_BITS
        sums += low
    sums *= 2.0**exponent
    return sums
