"""Section 5 and Appendix D of the paper: SSTQ with the metric-aware Laplace channel and identity decoding.

All of it is about the paper's rate ε/(2Δ) = ε/(4B). A calibrated rate r ≥ ε/(4B) is less noisy, so that the bounds on
error and bias hold with 4·B·r in the place of ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from paper.theory.optimized_codebooks import flat_second_moment
from paper.theory.representations import (
    Setting,
    SettingOptions,
    check_epsilon,
    make_setting,
)
from sstq.checks import check_argument, check_number, check_option
from sstq.scalar.codebooks import (
    BITS_MAX,
    Codebook,
    optimized_codebook,
    panter_dite_codebook,
    uniform_codebook,
)
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import Rate, laplace_probabilities, resolve_rate

__all__ = [
    "MetricAwareMoments",
    "assignment_probabilities",
    "balanced_bits",
    "best_flat_bits",
    "censored_gaussian",
    "gap_constant",
    "metric_aware_bias_bound",
    "metric_aware_drift",
    "metric_aware_moments",
    "metric_aware_mse_bound",
    "metric_aware_privacy_loss",
    "oscillation_ratio",
    "refined_mse_bound",
    "shape_factor",
    "spatial_constant",
    "stated_bits",
]


def metric_aware_privacy_loss(codebook: Codebook, epsilon: float) -> float:
    """Theorem 5.1: the metric-aware channel is ε-LDP. Exactly, it is ε·(3 + max(c_{M−1}, −c_2))/8-LDP.

    Warning:
        True, but at most half of the budget is spent: ε(2M − 3)/(4(M − 1)) < ε/2 with a uniform codebook. The proof
        allows both the kernel and its normaliser e^{ε|c_k − c_m|/(2Δ)}; but where the kernel's ratio is that large, at
        the two ends, the normalisers are equal. `rate="calibrated"` of the channel spends all of ε.

    Returns:
        The exact privacy loss of the channel with the paper's rate.
    """
    epsilon = check_epsilon(epsilon)
    values = np.unique(codebook.values)
    return (
        epsilon
        * resolve_rate(values, epsilon, "paper")
        / resolve_rate(values, epsilon, "calibrated")
    )


def gap_constant(codebook: Codebook) -> float:
    """Theorem 5.2's C ≥ 1: the largest gap of the codebook over that of the uniform one, 2B/(2^b − 1)."""
    return float(np.diff(codebook.values).max()) * (codebook.size - 1) / 2


def metric_aware_drift(
    codebook: Codebook, epsilon: float, rate: Rate = "paper"
) -> float:
    """The largest drift max_k |E[z | c_k] − c_k| in units of B, which the proof of Theorem 5.2 bounds by 8/ε.

    With it in the place of 8/ε the theorem's bound on the bias becomes ζ² ≤ (K²/ρ)·drift², which never exceeds 4·K²/ρ.
    """
    return float(
        np.abs(
            metric_aware_moments(codebook, epsilon, rate).means
            - np.unique(codebook.values)
        ).max()
    )


@dataclass(frozen=True)
class MetricAwareMoments:
    """Section 5.1 and Appendix D: what the channel does to each codeword, in units of B.

    Attributes:
        means: μ_i = E[z | c_i], (M,).
        variances: V_i = E[(z − c_i)² | c_i], (M,).
        modifiers: W_k = 2(μ_{k+1} − μ_k)/(c_{k+1} − c_k) − 1 of each gap, (M − 1,). Below 1 where the channel shrinks:
            rounding then costs less than its own variance, and it may even be negative.
    """

    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    modifiers: NDArray[np.float64]

    @property
    def largest_variance(self) -> float:
        """V_max, which Appendix D bounds by 128/ε²."""
        return float(self.variances.max())


def metric_aware_moments(
    codebook: Codebook, epsilon: float, rate: Rate = "paper"
) -> MetricAwareMoments:
    """Return μ_i, V_i and W_k of the metric-aware channel on the distinct codewords.

    Examples:
        >>> moments = metric_aware_moments(uniform_codebook(2), 3.0)
        >>> moments.means.round(3), round(moments.largest_variance, 2) < 128 / 9
        (array([-0.255, -0.11 ,  0.11 ,  0.255]), True)
    """
    values = np.unique(codebook.values)
    answers = laplace_probabilities(
        values, resolve_rate(values, check_epsilon(epsilon), rate)
    )
    means = answers @ values
    variances = np.einsum("ij,ij->i", answers, (values - values[:, None]) ** 2)
    return MetricAwareMoments(
        means, variances, 2 * np.diff(means) / np.diff(values) - 1
    )


def assignment_probabilities(
    codebook: Codebook, density: Density
) -> NDArray[np.float64]:
    """π_i of Section 5.1: the probability that a coordinate of this density is rounded to codeword i, (M,).

    With `MetricAwareMoments` it gives the loss: ℒ*_MA = Σ_k W_k·∫(y − c_k)(c_{k+1} − y)f(y)dy + Σ_i π_i·V_i.

    Examples:
        >>> assignment_probabilities(uniform_codebook(2), Density.uniform()).round(3)
        array([0.167, 0.333, 0.333, 0.167])
    """
    values = np.unique(codebook.values)
    lower = values[:-1]
    upper = values[1:]
    mass, first, _ = density.integrals(lower, upper)
    raised = (first - lower * mass) / (upper - lower)
    shares = np.zeros(values.size)
    shares[:-1] += mass - raised
    shares[1:] += raised
    shares[[0, -1]] += density.edges
    return shares


def metric_aware_bias_bound(
    dim: int, epsilon: float, **options: Unpack[SettingOptions]
) -> float:
    """Theorem 5.2: the squared bias of identity decoding, ζ² ≤ 64·K²/(ρε²)·clip², for every codebook and ‖x‖ ≤ clip.

    Warning:
        True, but it says something only for ε > 8·K/√ρ, about 14: always answering 0 has squared bias ‖x‖² ≤ clip². At
        ε = 3 the bound is 23, the bias 0.53: three quarters of the signal are gone. `metric_aware_drift` gives a better
        constant.
    """
    setting = make_setting(dim, **options)
    epsilon = check_epsilon(epsilon)
    return 64 * setting.beta2 * setting.clip**2 / epsilon**2


def metric_aware_mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    *,
    gap_constant: float = 1.0,
    norm: float | None = None,
    **options: Unpack[SettingOptions],
) -> float:
    """Theorem 5.2: E‖x̂ − x‖² ≤ d·(K²/ρ)·clip²·(1 + 2C²/(2^b − 1)² + 16/ε + 256/ε²) − ‖x‖², with identity decoding."""
    constant = check_number("gap_constant", gap_constant, 1 - 1e-9, 4096)
    return _mse_bound(make_setting(dim, **options), epsilon, bits, constant**2, norm)


def censored_gaussian(beta: float, cells: int = 1024) -> Density:
    """The density of a typical vector's Kashin coordinates at level β = K/√ρ, by a model.

    The coordinates Ux of a typical x look Gaussian; the bounded representation clips a stretched copy,
    t = clip(s·G, ±β)/β. It reconstructs x when E[G·clip(s·G, ±β)] = s·erf(β/(s√2)) = 1, which fixes s and has a
    solution only for β > √(π/2).

    Representations are not unique: `Density.kashin` is that of our solver as measured, with next to no mass at ±1.

    Examples:
        >>> density = censored_gaussian(1.8)
        >>> round(density.edges[1], 4), round(density.moment(2), 4)
        (0.0543, 0.3176)
    """
    if not math.sqrt(math.pi / 2) < beta < math.inf:
        raise ValueError(
            f"beta must be above √(π/2) = 1.2533…, the least level of a typical vector, got {beta!r}"
        )
    # u = β/(s√2) is the root of erf(u)/u = √2/β; the left side decreases.
    root = brentq(
        lambda u: math.erf(u) * beta - u * math.sqrt(2),
        1e-9,
        beta / math.sqrt(2),
        xtol=1e-15,
    )
    return Density.gaussian(root, cells)


def shape_factor(density: Density) -> float:
    """Section 5.1: C_f = (∫f^{1/3})³/(4B²), the Panter–Dite compressibility; at most 1.

    The point masses do not count: their f^{1/3} has measure zero, and codewords sit on them.
    """
    width = 2.0 / density.masses.size
    return float((width * np.cbrt(density.masses / width).sum()) ** 3 / 4)


def oscillation_ratio(density: Density, bits: int) -> float:
    """Theorem 5.3's R_M: the mean over the gaps of the Panter–Dite codebook of sup f/inf f on the gap.

    For the piecewise constant densities of this library the supremum and infimum are those of the cells that the gap
    touches, so the ratio is at least 1, and infinite where a cell is empty.

    Examples:
        >>> oscillation_ratio(Density.uniform(), 4)
        1.0
        >>> [round(oscillation_ratio(censored_gaussian(1.8), bits), 2) for bits in (1, 2, 4, 8)]
        [3.61, 2.53, 1.2, 1.01]
    """
    values = panter_dite_codebook(bits, density).values
    cells = density.masses.size
    first = np.clip(np.floor((values[:-1] + 1) * cells / 2), 0, cells - 1).astype(
        np.int64
    )
    last = np.clip(np.ceil((values[1:] + 1) * cells / 2), first + 1, cells).astype(
        np.int64
    )
    ratios = []
    for start, stop in zip(first, last, strict=True):
        heights = density.masses[start:stop]
        ratios.append(
            float(heights.max() / heights.min()) if heights.min() > 0 else np.inf
        )
    return float(np.mean(ratios))


def spatial_constant(density: Density, bits: int) -> float:
    """Theorem 5.3's constant: C₀² = min(1, ⅔·C_f·R_M), C_f being the `shape_factor`.

    Warning:
        The theorem asks for a continuous density, but a representation that is clamped has point masses at exactly ±B:
        27–43 % of the coordinates in the paper's recipe, none in a certified one. It holds with such point masses as
        well, f being the continuous part alone: they are codewords and are not rounded.
    """
    return min(1.0, 2 / 3 * shape_factor(density) * oscillation_ratio(density, bits))


def refined_mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    density: Density,
    *,
    norm: float | None = None,
    **options: Unpack[SettingOptions],
) -> float:
    """Theorem 5.3: the bound of Theorem 5.2 with C₀² = min(1, ⅔·C_f·R_M) for C², for the loss-optimal codebook.

    It is about the average over inputs whose coordinates have this density. The bias has the bound of Theorem 5.2.

    Warning:
        True, but what it refines is negligible: 2C²/(2^b − 1)² is 0.009 beside 256/ε² = 28 at b = 4, ε = 3.
    """
    return _mse_bound(
        make_setting(dim, **options),
        epsilon,
        bits,
        spatial_constant(density, bits),
        norm,
    )


def _mse_bound(
    setting: Setting,
    epsilon: float,
    bits: int,
    squared_constant: float,
    norm: float | None,
) -> float:
    epsilon = check_epsilon(epsilon)
    bits = check_argument("bits", bits)
    length = (
        setting.clip if norm is None else check_number("norm", norm, 0, setting.clip)
    )
    rounding = 2 * squared_constant / ((1 << bits) - 1) ** 2
    return setting.scale * (1 + rounding + 16 / epsilon + 256 / epsilon**2) - length**2


def stated_bits(epsilon: float) -> int:
    """Section 5, as printed: the metric-aware channel needs b = O(⌈log₂ ε⌉) bits; this is ⌈log₂ ε⌉.

    Warning:
        It fails for ε ≤ 1, where it is 0 or less, though no fewer than one bit can be sent; and it does not solve the
        equation that it is derived from, which has √ε in the place of ε (see `balanced_bits`).

    Examples:
        >>> [stated_bits(epsilon) for epsilon in (0.5, 1.0, 3.0, 10.0)]
        [-1, 0, 2, 4]
    """
    return math.ceil(math.log2(check_epsilon(epsilon)))


def balanced_bits(epsilon: float) -> int:
    """Section 5, solved: the least b with (2^b − 1)² ≥ ε ∧ ε², that is ⌈log₂(1 + √(ε ∧ ε²))⌉.

    There the bound's term for rounding, 1/(2^b − 1)², falls below its term for privacy, 1/(ε ∧ ε²).

    Warning:
        The balance is between two terms of a bound whose constants are 2 and 256, so it says little about the error
        itself. For every ε from 0.5 to 20 alike, the metric-aware error is three times its limit at b = 1, 22–26 %
        above it at b = 2, 4 % at b = 3 and 1 % at b = 4. And what it converges to is shrinkage (see
        `metric_aware_bias_bound`).

    Examples:
        >>> [balanced_bits(epsilon) for epsilon in (0.5, 1.0, 3.0, 10.0)]
        [1, 1, 2, 3]
    """
    epsilon = check_epsilon(epsilon)
    return math.ceil(math.log2(1 + math.sqrt(min(epsilon, epsilon**2))))


def best_flat_bits(
    epsilon: float, codebook: str = "optimized", *, beta: float = 1.8
) -> int:
    """The b of least exact error of the flat channel, for typical vectors at level β = K/√ρ.

    The paper has no formula for it; Remark 3.3 says that there is a trade-off. It grows as ε/(3 log 2), not as a
    logarithm: rounding costs about 1/M², randomized response M/(e^ε − 1) more, so that the best M is about e^{ε/3}.
    """
    check_argument("epsilon", epsilon)
    optimized = (
        check_option("codebook", codebook, ("optimized", "uniform")) == "optimized"
    )
    density = censored_gaussian(beta)

    def error(bits: int) -> float:
        book = (
            optimized_codebook(bits, epsilon) if optimized else uniform_codebook(bits)
        )
        return flat_second_moment(book, epsilon, density)

    return min(range(1, BITS_MAX + 1), key=error)
