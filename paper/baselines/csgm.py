"""CSGM and L2-CSGM: coordinate-subsampled Gaussian mechanisms, central (ε, δ)-privacy behind a trusted aggregator."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from paper.baselines.csgm_accounting import Release
from paper.baselines.noisy_sums import NoisyAggregator, NoisyEstimator
from sstq.extending import (
    CERTIFIED_RESIDUAL,
    Batch,
    Columns,
    ExpectedError,
    Field,
    Floats,
    Floats32,
    Ints,
    KashinMechanism,
    KashinSolved,
    Layout,
    Messages,
    Rows,
    interpolation,
    represent,
    solve_kashin,
    stochastic_round,
    uniform_codebook,
    unit_interval,
)

# Rescaling to the energy bound is in single precision and may exceed it by as much.
_ENERGY_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class CSGMSolved(KashinSolved):
    """The values of CSGM and L2-CSGM: the calibrated noise, and the largest number of coordinates kept."""

    clients: int
    delta: float
    bits: int
    sigma: float
    coordinates: int
    most: int
    frame: Literal["hadamard"] = "hadamard"
    kashin: Literal["certified"] = "certified"


class CSGM(KashinMechanism):
    """The coordinate-subsampled Gaussian mechanism, for coefficients bounded one by one (ℓ∞ geometry).

    A client keeps each of N frame coefficients of at most B = K·clip/√N (a Kashin representation) with probability
    γ = coordinates/N, rounds them at random to b bits, and sends them in clear. The aggregator adds Gaussian noise to
    the N sums, once. Only it and the client know which coefficients were sent, which makes the noise go further: the
    released mean is (ε, δ)-private for σ from N·f_α(B²) (`paper.baselines.csgm_accounting`), and

        E‖x̂ − x‖² ≤ (d/N)²·(N·B²/(γ·n) + N·σ²/(γ·n)²).

    Rounding to one bit (the default), ±B, costs no privacy: the accounting has all coefficients at the bound anyway. A
    message is b bits for each of a fixed number of coefficients (the expected number and a margin), their number and a
    128-bit seed.

    Warning:
        Not local privacy. Messages are in clear, and `decode` shows them: whoever adds them up is trusted, the channel
        to it must be confidential, and only its closed mean is private. The guarantee is for adding or removing one
        client's contribution; the number of messages is public. Noise is floating-point (`exact` is False).

    Reference: W.-N. Chen, D. Song, A. Özgür, P. Kairouz, *Privacy amplification via compression*, NeurIPS 2023.

    Args:
        clients: n, the public number of clients per round, which the mean divides by. More messages are refused.
        delta: the δ of the released mean; `epsilon` is that of the released mean as well.
        bits: b, the bits of a kept coefficient, 1 to 12.
        coordinates: how many of the N coefficients a client keeps on average; the default is the least power of two
            with at most twice the error (as bounded) of keeping all, or all if that is no longer a message.
        frame_size: N, a power of two; the default is 2^⌈log₂ 2.5d⌉.

    Attributes:
        sigma: σ, the standard deviation of the noise of a sum, in units of B.

    Examples:
        >>> mechanism = CSGM(dim=1000, epsilon=1.0, clients=1000)
        >>> mechanism.delta, mechanism.privacy_loss() <= 1.0
        (1e-05, True)
    """

    name = "csgm"
    variants: ClassVar = {"CSGM": {}}
    exact = False
    solved_class = CSGMSolved
    _default_bits: ClassVar[int] = 1
    # The bound of Σ_j y_j² in units of (N/d)·clip², infinite if all coefficients may be at theirs; and the least β.
    _energy_limit: ClassVar[float] = math.inf
    _least_beta: ClassVar[float] = 0.0

    solved: CSGMSolved
    clients: int
    bits: int
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
    ) -> None:
        given = dict(locals())
        bits = self._default_bits if bits is None else bits
        common = self.checked(
            dim=dim, epsilon=epsilon, clients=clients, delta=delta, clip=clip, bits=bits
        )
        framed, frame, recipe = solve_kashin(
            common["dim"], frame_size, frame_seed, None, None
        )
        recipe = replace(
            recipe,
            level=max(self._least_beta * math.sqrt(frame.redundancy), recipe.level),
        )
        weight = self._weight(frame.size, recipe.bound(frame), common["bits"])
        terms = common["epsilon"], common["delta"], weight, frame.size
        if coordinates is None:
            release = Release.default(*terms, common["clients"], common["bits"])
        else:
            release = Release.calibrated(*terms, coordinates)
        framed |= {
            "level": recipe.level,
            "coordinates": release.expected,
            "most": release.most,
        }
        self.settle(given, CSGMSolved(**common, **framed, sigma=release.sigma))

    def check_solved(self) -> None:
        """Refuse solved values that do not belong together."""
        # The aggregator adds noise and sums in 62 bits, 16 of them behind the point; beyond, there would be no noise.
        if not 40 * self.noise_scale + float(self.clients) * self._top_level < 2.0**45:
            raise ValueError(f"sigma = {self.sigma} is too large for sums of 62 bits")

    @cached_property
    def release(self) -> Release:
        """Which coefficients are kept, and what the aggregator releases; see `paper.baselines.csgm_accounting`."""
        solved = self.solved
        kept = self.frame.size, solved.coordinates, solved.most
        return Release(self.epsilon, self.delta, self.weight, *kept, self.sigma)

    @property
    def uncountable(self) -> str:
        """The reason why no estimate comes from counts."""
        return "a trusted aggregator adds noise to the exact sums of a round"

    @property
    def draw(self) -> Release:
        """The release."""
        return self.release

    @cached_property
    def layout(self) -> Layout:
        """The codes of the kept coefficients, zero beyond their number, and, unless all are kept, which ones."""
        most = self.release.most
        fields = [Field("code", 1 << self.bits, count=most)]
        if not self.release.dense:
            fields += [Field("kept", most + 1), Field("seed", 1 << 64, count=2)]
        return Layout(tuple(fields))

    @cached_property
    def estimator(self) -> NoisyEstimator:
        """Noisy sums of the contributions."""
        options = self.frame.size, self.clients, self.noise_scale
        sums = self.contributions, self.mean_of_sums
        return NoisyEstimator(
            self, *options, *sums, self.coordinate_variance, self.single_estimates
        )

    @property
    def words_each(self) -> int:
        """Two secret words are for the seed, one for how many are kept, and the others round."""
        return 3 + self.release.most

    @classmethod
    def _weight(cls, size: int, beta: float, bits: int) -> float:
        """A bound of Σ_j ŷ_j²/B² over the rounded coefficients of one client, kept or not: at most N.

        Rounding moves a coefficient by at most the step 2B/(2^b − 1), and so ‖ŷ‖ by at most √N of them.
        """
        unrounded = math.sqrt(cls._energy_limit * (1 + _ENERGY_ROUNDING)) / beta
        return size * min(1.0, unrounded + 2 / ((1 << bits) - 1)) ** 2

    @property
    def weight(self) -> float:
        """The bound of the sum of a client's squared coefficients, in units of B², that privacy rests on."""
        return self._weight(self.frame.size, self.kashin.bound(self.frame), self.bits)

    @property
    def _top_level(self) -> int:
        """2^b − 1: a code c stands for the odd or even integer 2c − (2^b − 1), in units of B/(2^b − 1)."""
        return (1 << self.bits) - 1

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes."""
        return self.frame.size + self.release.most

    def _bounded(self, unit: Floats32) -> tuple[Floats32, NDArray[np.bool_]]:
        """The coefficients in units of B within the bounds of one and of all, and which rows the bounds changed."""
        coefficients, residuals = represent(self.frame, self.kashin, unit)
        power = np.einsum("ij,ij->i", coefficients, coefficients, dtype=np.float64)
        most = self.frame.size * min(
            1.0, self._energy_limit / self.kashin.bound(self.frame) ** 2
        )
        factors = np.sqrt(most / np.maximum(power, most))
        coefficients *= factors[:, None].astype(np.float32)
        missed = residuals > CERTIFIED_RESIDUAL * np.linalg.norm(unit, axis=1)
        return coefficients, missed | (factors < 1 - CERTIFIED_RESIDUAL)

    def encode_batch(self, batch: Batch) -> Columns:
        """Encode checked rows."""
        unit = self.unit_ball(batch.rows, batch.report)
        most = self.release.most
        seeds = batch.words[:, :2]
        uniforms = unit_interval(batch.words[:, 3:])
        counts = self.release.counts(batch.words[:, 2])
        coefficients, missed = self._bounded(unit)
        if batch.report is not None:
            batch.report.missed += int(missed.sum())
        sent = np.zeros((len(unit), most), dtype=np.float32)
        for row, count in enumerate(counts.tolist()):
            sent[row, :count] = coefficients[
                row, self.release.chosen(seeds[row], count)
            ]
        codes = stochastic_round(uniform_codebook(self.bits).values, sent, uniforms)
        codes[np.arange(most) >= counts[:, None]] = 0
        column = codes[:, 0] if most == 1 else codes
        return (column,) if self.release.dense else (column, counts, seeds)

    def check_messages(self, messages: Messages) -> None:
        """Refuse messages that no client sends."""
        codes = messages.column("code").reshape(-1, self.release.most)
        for row, count in enumerate(
            [] if self.release.dense else messages.column("kept").tolist()
        ):
            if codes[row, count:].any():
                raise ValueError(
                    f"message {row}: the codes beyond its {count} kept coordinates must be zero"
                )

    def contributions(self, messages: Messages) -> Iterator[tuple[Any, Ints]]:
        """The kept coordinates of each message and its integer contributions to their sums, in units of B/(2^b − 1)."""
        codes = messages.column("code").reshape(-1, self.release.most)
        seeds = codes if self.release.dense else messages.column("seed")
        counts = (
            [self.frame.size] * len(codes)
            if self.release.dense
            else messages.column("kept").tolist()
        )
        for code, seed, count in zip(codes, seeds, counts, strict=True):
            yield (
                self.release.chosen(seed, count),
                2 * code[:count].astype(np.int64) - self._top_level,
            )

    def single_estimates(self, messages: Messages) -> Floats:
        """The estimates of single messages."""
        # Without noise: not private, for the aggregator's eyes only.
        sums = np.zeros((len(messages), self.frame.size))
        for row, (kept, values) in zip(sums, self.contributions(messages), strict=True):
            row[kept] = values
        sums *= (self.bound / self._top_level) / self.release.inclusion[0]
        return np.asarray(self.frame.synthesize(sums), dtype=np.float64)

    @property
    def noise_scale(self) -> float:
        """σ in units of a contribution, B/(2^b − 1)."""
        return self.sigma * self._top_level

    def mean_of_sums(self, sums: Floats) -> Floats:
        """The mean of `clients` clients, from the sums of all contributions."""
        scale = (
            self.bound / self._top_level / (self.clients * self.release.inclusion[0])
        )
        return np.asarray(
            self.frame.synthesize((sums * scale)[None])[0], dtype=np.float64
        )

    def _noise_power(self, clients: int) -> float:
        """The noise in the mean of that many clients, summed over the d coordinates."""
        return (
            self.dim**2
            / self.frame.size
            * (self.sigma * self.bound / (clients * self.release.inclusion[0])) ** 2
        )

    def coordinate_variance(self, count: int) -> float:
        """A bound of the variance of a coordinate of the mean: the noise, and at most E[ŷ²]/γ per message."""
        sampled = (
            self.weight
            * self.bound**2
            / self.release.inclusion[0]
            * self.dim
            / self.frame.size**2
        )
        return (
            self._noise_power(self.clients) / self.dim
            + count * sampled / self.clients**2
        )

    def largest_message(self) -> float:
        """All kept coefficients at the bound."""
        return (
            math.sqrt(self.dim * self.release.most / self.frame.size)
            * self.bound
            / self.release.inclusion[0]
        )

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact for one message without noise: sampling (with its cap) and rounding."""
        y = self._bounded(self.unit_ball(rows))[0].astype(np.float64)
        _, weight = interpolation(uniform_codebook(self.bits).values, y)
        energy = np.sum(y**2, axis=1) * self.bound**2
        rounded = (
            energy
            + np.sum(weight * (1 - weight), axis=1)
            * (2 / self._top_level * self.bound) ** 2
        )
        mean = np.asarray(self.frame.synthesize(y * self.bound), dtype=np.float64)
        # E‖x̂‖²: rows of the frame have norm 1, a coordinate is kept with probability p, and two with probability q.
        p, q = self.release.inclusion
        ratio = (self.dim / self.frame.size) ** 2
        square = np.sum(mean**2, axis=1)
        return mean, ratio * rounded / p + (square - ratio * energy) * (
            q / p**2
        ) - square

    def mean_error(self, rows: Rows, repeats: int) -> ExpectedError:
        """That of a whole round: the noise is added once for all clients, so its share falls as 1/n²."""
        error = super().mean_error(rows, repeats)
        noise = self._noise_power(len(rows) * repeats)
        return replace(error, variance=error.variance + noise)

    def aggregator(self) -> NoisyAggregator:
        """Create an empty aggregator."""
        return NoisyAggregator(self.estimator)

    def load_aggregator(self, path: str | os.PathLike[str]) -> NoisyAggregator:
        """Load an aggregator that was saved to a file."""
        return NoisyAggregator.load(path, self.estimator)


class L2CSGM(CSGM):
    """CSGM with the accounting of ℓ₂ geometry: the sum of the squared coefficients is bounded too.

    A vector of the ball has least-norm coefficients of energy Σ y_j² ≤ (N/d)·clip². With at most 1.05 times that,
    enforced by every client, and single coefficients of at most B at a looser level (β = 3), the divergence is at most
    (E/B²)·f_α(B²) instead of N·f_α(B²): about a third of CSGM's, so that the error comes close to that of the Gaussian
    mechanism without compression. E counts the rounding to b bits, at its worst, so b should not be small (8 bits cost
    5 % of E, the default; one bit makes this CSGM). The default level is 3·√(N/d), or more where the frame has little
    redundancy. The rest is as in `CSGM`, arguments and warning included.

    Reference: W.-N. Chen, B. Isik, P. Kairouz, A. No, S. Oh, Z. Xu, *Improved communication-privacy trade-offs in L2
    mean estimation under streaming differential privacy*, ICML 2024. (The scheme there rotates at random; a redundant
    frame flattens more, and coefficients beyond the bound are represented instead of cut.)

    Examples:
        >>> loose = CSGM(dim=1000, epsilon=1.0, clients=1000, bits=8, coordinates=1024)
        >>> tight = L2CSGM(dim=1000, epsilon=1.0, clients=1000, bits=8, coordinates=1024)
        >>> tight.sigma * tight.bound < loose.sigma * loose.bound
        True
    """

    name = "l2-csgm"
    variants: ClassVar = {"L2-CSGM": {}}
    _default_bits = 8
    # Representations of Gaussian, spiked, constant, sparse, block and Hadamard vectors at β = 3 measure at most 1.05
    # for d from 1 to 25,450 over 3 to 20 frames, no more at higher levels; a row beyond is scaled down and reported.
    _energy_limit = 1.05
    _least_beta = 3.0
