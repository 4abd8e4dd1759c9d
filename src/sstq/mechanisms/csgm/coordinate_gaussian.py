"""What CSGM and L2-CSGM share: coordinate-subsampled Gaussian mechanisms behind a trusted aggregator.

A client writes its vector in a tight frame with coefficients bounded by B, keeps each of the N coefficients with
probability γ, rounds the kept ones at random to b bits, and sends them in clear to an aggregator that it trusts. The
aggregator adds Gaussian noise to the N sums, once, when it closes the round. What nobody knows but client and
aggregator, namely which coefficients were sent, makes the noise go further
(`sstq.mechanisms.csgm.subsampled_gaussian`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import NoisyAggregator
from sstq.checks import check_argument, check_number
from sstq.frames.kashin import CERTIFIED_RESIDUAL, certified, represent
from sstq.frames.tight import Frame
from sstq.mechanisms.base import ExpectedError, LocalReport, Trust, Unbiased
from sstq.mechanisms.csgm.coordinate_sampling import SEED_WORDS, CoordinateSampling
from sstq.mechanisms.csgm.subsampled_gaussian import ReleaseBudget
from sstq.mechanisms.framed import KashinMechanism, build_frame, build_recipe
from sstq.messages.arrays import as_vectors
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field, Layout
from sstq.randomness.secret import BitSource, unit_interval
from sstq.scalar.codebooks import interpolation, stochastic_round, uniform_codebook

__all__ = ["CoordinateGaussian"]

# Rescaling to the energy bound is in single precision and may exceed it by as much.
_ENERGY_ROUNDING = 1e-6


class CoordinateGaussian(KashinMechanism):
    """A mechanism but for two choices of its subclasses: the level of the representation and the bound on its energy.

    Attributes:
        energy: the bound of Σ_j y_j² that every client enforces, in units of (N/d)·clip².
        sampling: which coefficients are kept.
        sigma: σ, the standard deviation of the noise of a sum, in units of B.
    """

    exact: ClassVar[bool] = False
    trust: ClassVar[Trust] = "aggregator"
    _default_bits: ClassVar[int] = 1

    clients: int
    bits: int
    energy: float
    sampling: CoordinateSampling
    sigma: float

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        clients: int,
        delta: float = 1e-5,
        clip: float = 1.0,
        bits: int | None = None,
        coordinates: int | None = None,
        frame_size: int | None = None,
        frame_seed: int = 0,
        level: float | None = None,
        steps: int | None = None,
    ) -> None:
        dim, epsilon = check_argument("dim", dim), check_argument("epsilon", epsilon)
        frame = build_frame("hadamard", dim, frame_size, frame_seed)
        kashin = build_recipe("certified", frame, self._default_level(frame) if level is None else level, steps)
        self._set(
            dim=dim,
            epsilon=epsilon,
            clients=check_argument("clients", clients),
            delta=check_argument("delta", delta),
            clip=check_argument("clip", clip),
            bits=check_argument("bits", self._default_bits if bits is None else bits),
            frame=frame,
            kashin=kashin,
            energy=self._energy_bound(kashin.bound(frame)),
            unbiased=Unbiased.ALWAYS if certified(frame, kashin) else Unbiased.NEVER,
        )
        if coordinates is not None:
            coordinates = check_number("coordinates", coordinates, 1, frame.size, integer=True)
        if self._stated is not None and coordinates is not None:
            most = check_number("most", self._stated["most"], 1, frame.size, integer=True)
            self._set_noise(CoordinateSampling(frame.size, coordinates, most), self._stated["sigma"])
            return
        budget = self._budget
        self._set_noise(*budget.calibrate(budget.default_coordinates() if coordinates is None else coordinates))
        # In small frames the seed is longer than all coefficients, which are then the better message.
        if coordinates is None and self.message_bits >= frame.size * self.bits:
            self._set_noise(*budget.calibrate(frame.size))

    @staticmethod
    @abstractmethod
    def _default_level(frame: Frame) -> float:
        """The level K unless one is given."""

    @staticmethod
    @abstractmethod
    def _energy_bound(beta: float) -> float:
        """The bound of Σ_j y_j² in units of (N/d)·clip², for coefficients bounded by β one by one."""

    def _set_noise(self, sampling: CoordinateSampling, sigma: float) -> None:
        """Take the sampling and the noise, and refuse them if they spend more than the budget."""
        self._set(**self._parts | {"sampling": sampling, "sigma": check_number("sigma", sigma, 1e-6, 1e12)})
        spent = self.privacy_loss()
        if not spent <= self.epsilon:
            raise ValueError(f"sigma = {sigma} spends {spent:g} at delta = {self.delta:g}, more than {self.epsilon}")
        # The aggregator adds noise and sums in 62 bits, 16 of them behind the point; beyond, there would be no noise.
        if not 40 * self.noise_scale + float(self.clients) * self._top_level < 2.0**45:
            raise ValueError(f"sigma = {sigma} is too large for sums of 62 bits")

    @property
    def _budget(self) -> ReleaseBudget:
        return ReleaseBudget(self.epsilon, self.delta, self.clients, self.frame.size, self.weight)

    @property
    def weight(self) -> float:
        """A bound of Σ_j ŷ_j²/B² over the rounded coefficients of one client, kept or not: at most N.

        Rounding moves a coefficient by at most the step 2B/(2^b − 1), and so ‖ŷ‖ by at most √N of them.
        """
        unrounded = math.sqrt(self.energy * (1 + _ENERGY_ROUNDING)) / self.kashin.bound(self.frame)
        return self.frame.size * min(1.0, unrounded + 2 / self._top_level) ** 2

    @property
    def layout(self) -> Layout:
        """The codes of the kept coefficients and, unless all are kept, which ones: how many, and the seed of the set.

        Codes beyond the number of kept ones are zero.
        """
        fields = [Field("code", self.bits, 1 << self.bits, count=self.sampling.most)]
        if not self.sampling.dense:
            most = self.sampling.most
            fields.append(Field("kept", most.bit_length(), most + 1))
            fields.append(Field("seed", 64, 1 << 64, count=SEED_WORDS))
        return Layout(tuple(fields))

    @property
    def _top_level(self) -> int:
        """2^b − 1: a code c stands for the odd or even integer 2c − (2^b − 1), in units of B/(2^b − 1)."""
        return (1 << self.bits) - 1

    @property
    def _unit(self) -> float:
        return self.bound / self._top_level

    @cached_property
    def _levels(self) -> NDArray[np.float64]:
        return uniform_codebook(self.bits).values

    @property
    def _row_cost(self) -> int:
        return self.frame.size + self.sampling.most

    def _coefficients(self, unit: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The coefficients in units of B within the bounds of one and of all, and which rows the bounds changed."""
        coefficients, residuals = represent(self.frame, self.kashin, unit)
        power = np.einsum("ij,ij->i", coefficients, coefficients, dtype=np.float64)
        most = self.frame.size * self.energy / self.kashin.bound(self.frame) ** 2
        factors = np.sqrt(most / np.maximum(power, most))
        coefficients *= factors[:, None].astype(np.float32)
        missed = residuals > CERTIFIED_RESIDUAL * np.linalg.norm(unit, axis=1)
        return coefficients, missed | (factors < 1 - CERTIFIED_RESIDUAL)

    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,  # noqa: ARG002 (the coin is private)
        source: BitSource,
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        unit = self._unit_ball(rows, report)
        most = self.sampling.most
        words = source.words((SEED_WORDS + 1 + most) * len(unit)).reshape(len(unit), -1)
        seeds, uniforms = words[:, :SEED_WORDS], unit_interval(words[:, SEED_WORDS + 1 :])
        counts = self.sampling.counts(words[:, SEED_WORDS])
        coefficients, missed = self._coefficients(unit)
        if report is not None:
            report.missed += int(missed.sum())
        sent = np.zeros((len(unit), most), dtype=np.float32)
        for row, count in enumerate(counts.tolist()):
            sent[row, :count] = coefficients[row, self._kept(seeds[row], count)]
        codes = stochastic_round(self._levels, sent, uniforms)
        codes[np.arange(most) >= counts[:, None]] = 0
        column = codes[:, 0] if most == 1 else codes
        return (column,) if self.sampling.dense else (column, counts, seeds)

    def _kept(self, seed: NDArray[np.uint64], count: int) -> Any:
        return slice(None) if self.sampling.dense else self.sampling.chosen(seed, count)

    def _check_columns(self, columns: tuple[Column, ...]) -> None:
        if self.sampling.dense:
            return
        codes = columns[0].reshape(-1, self.sampling.most)
        for row, count in enumerate(columns[1].tolist()):
            if codes[row, count:].any():
                raise ValueError(f"message {row}: the codes beyond its {count} kept coordinates must be zero")

    def contributions(self, messages: Messages) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """The kept coordinates of each message and its integer contributions to their sums, in units of B/(2^b − 1)."""
        codes = messages.column("code").reshape(-1, self.sampling.most)
        seeds = codes if self.sampling.dense else messages.column("seed")
        counts = [self.frame.size] * len(codes) if self.sampling.dense else messages.column("kept").tolist()
        for code, seed, count in zip(codes, seeds, counts, strict=True):
            yield self._kept(seed, count), 2 * code[:count].astype(np.int64) - self._top_level

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d), without noise: not private, for the aggregator's eyes only."""
        self._check_own(messages)
        sums = np.zeros((len(messages), self.frame.size))
        for row, (kept, values) in zip(sums, self.contributions(messages), strict=True):
            row[kept] = values
        sums *= self._unit / self.sampling.inclusion[0]
        return np.asarray(self.frame.synthesize(sums), dtype=np.float64)

    def aggregator(self) -> NoisyAggregator:
        """An empty round, for at most `clients` messages."""
        return NoisyAggregator(self)

    @property
    def noise_scale(self) -> float:
        """σ in units of a contribution, B/(2^b − 1)."""
        return self.sigma * self._top_level

    @property
    def sum_scale(self) -> float:
        """What a sum is multiplied by to estimate the mean coordinate of `clients` clients."""
        return self._unit / (self.clients * self.sampling.inclusion[0])

    def _noise_power(self, clients: int) -> float:
        """The noise in the mean of that many clients, summed over the d coordinates."""
        return self.dim**2 / self.frame.size * (self.sigma * self.bound / (clients * self.sampling.inclusion[0])) ** 2

    def coordinate_variance(self, count: int) -> float:
        """A public bound of the variance of a coordinate of the mean: the noise, and no more than E[ŷ²]/γ a message."""
        sampled = self.weight * self.bound**2 / self.sampling.inclusion[0] * self.dim / self.frame.size**2
        return self._noise_power(self.clients) / self.dim + count * sampled / self.clients**2

    def largest_message(self) -> float:
        """All kept coefficients at the bound."""
        return math.sqrt(self.dim * self.sampling.most / self.frame.size) * self.bound / self.sampling.inclusion[0]

    def privacy_loss(self) -> float:
        """The ε that a released round spends at `delta`, rounded up; see `sstq.mechanisms.csgm.subsampled_gaussian`."""
        return self._budget.spent(self.sampling, self.sigma)

    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact for one message without noise: sampling (with its cap) and rounding."""
        unit = self._unit_ball(rows)
        y = self._coefficients(unit)[0].astype(np.float64)
        _, weight = interpolation(self._levels, y)
        step = 2 / self._top_level
        own = np.sum(y**2, axis=1) * self.bound**2
        rounded = own + np.sum(weight * (1 - weight), axis=1) * (step * self.bound) ** 2
        mean = np.asarray(self.frame.synthesize(y * self.bound), dtype=np.float64)
        # E‖x̂‖²: rows of the frame have norm 1, a coordinate is kept with probability p, and two with probability q.
        p, q = self.sampling.inclusion
        ratio = (self.dim / self.frame.size) ** 2
        square = np.sum(mean**2, axis=1)
        return mean, ratio * rounded / p + (square - ratio * own) * (q / p**2) - square

    def expected_mse(self, x: ArrayLike, clients: int | None = None) -> ExpectedError:
        """The expected squared error of the mean of a whole round, bias and variance apart.

        Args:
            x: (d,), held by each of `clients` clients (1 if not given); or (n, d), one row for each of n clients.
            clients: the number of clients of the round, with a single x.

        Returns:
            As for every mechanism. The noise is added once for all clients, so its share of the variance falls as 1/n²,
            that of sampling and rounding as 1/n. The sampling is that of this mechanism, whatever its `clients`.
        """
        x = as_vectors(x, "x")
        error = super().expected_mse(x, clients)
        count = len(x) if x.ndim == 2 else clients or 1
        return ExpectedError(error.bias2, error.variance + self._noise_power(count))

    def to_dict(self) -> dict[str, Any]:
        """The options and the calibrated noise, as JSON values."""
        names = ("dim", "epsilon", "clients", "delta", "clip", "bits", "sigma")
        recipe = {"level": self.kashin.level, "steps": self.kashin.steps}
        kept = {"coordinates": self.sampling.expected, "most": self.sampling.most}
        return {name: getattr(self, name) for name in names} | self._frame_options() | recipe | kept
