"""Section 5 and Appendix D of the paper: SSTQ with the metric-aware Laplace channel and identity decoding.

All of it is about the paper's rate ε/(2Δ) = ε/(4B). A calibrated rate r ≥ ε/(4B) is less noisy, so that the bounds on
error and bias hold with 4·B·r in the place of ε.
"""

from __future__ import annotations

import numpy as np

from paper.theory.setting import check_epsilon, make_setting
from sstq.checks import check_argument, check_number
from sstq.scalar.codebooks import Codebook, panter_dite_codebook
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import Rate, laplace_probabilities, resolve_rate

__all__ = [
    "gap_constant",
    "metric_aware_bias_bound",
    "metric_aware_drift",
    "metric_aware_mse_bound",
    "metric_aware_privacy_loss",
    "oscillation_ratio",
    "panter_dite_distortion",
    "refined_mse_bound",
    "spatial_constant",
]


def metric_aware_privacy_loss(codebook: Codebook, epsilon: float) -> float:
    """Theorem 5.1: the metric-aware channel is ε-LDP. Exactly, it is ε·(3 + max(c_{M−1}, −c_2))/8-LDP.

    Warning:
        True, but at most half of the budget is spent: ε(2M − 3)/(4(M − 1)) < ε/2 with a uniform codebook. The proof
        allows both the kernel and its normaliser e^{ε|c_k − c_m|/(2Δ)}; but where the kernel's ratio is that large, at
        the two ends, the normalisers are equal. `rate="calibrated"` of the channel spends all of ε.

    Args:
        codebook: the codewords in units of B, at least two of them different.
        epsilon: the nominal ε in [1e-6, 32].

    Returns:
        The exact privacy loss of the channel with the paper's rate.

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> round(metric_aware_privacy_loss(uniform_codebook(4), 3.0), 6)
        1.45
    """
    epsilon = check_epsilon(epsilon)
    values = np.unique(codebook.values)
    return epsilon * resolve_rate(values, epsilon, "paper") / resolve_rate(values, epsilon, "calibrated")


def gap_constant(codebook: Codebook) -> float:
    """Theorem 5.2's C ≥ 1: the largest gap of the codebook over that of the uniform one, 2B/(2^b − 1).

    Args:
        codebook: the codewords.

    Examples:
        >>> from sstq.scalar.codebooks import optimized_codebook, uniform_codebook
        >>> round(gap_constant(uniform_codebook(4)), 12), round(gap_constant(optimized_codebook(4, 3.0)), 2)
        (1.0, 4.0)
    """
    return float(np.diff(codebook.values).max()) * (codebook.size - 1) / 2


def metric_aware_drift(codebook: Codebook, epsilon: float, rate: Rate = "paper") -> float:
    """The largest drift max_k |E[z | c_k] − c_k| in units of B, which the proof of Theorem 5.2 bounds by 8/ε.

    With it in the place of 8/ε the theorem's bound on the bias becomes ζ² ≤ (K²/ρ)·drift², which never exceeds 4·K²/ρ.

    Args:
        codebook: the codewords.
        epsilon: ε in [1e-6, 32].
        rate: the rate of the Laplace kernel, "paper" or "calibrated".

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> round(metric_aware_drift(uniform_codebook(4), 3.0), 2), round(8 / 3.0, 2)
        (0.76, 2.67)
    """
    values = np.unique(codebook.values)
    answers = laplace_probabilities(values, resolve_rate(values, check_epsilon(epsilon), rate)) @ values
    return float(np.abs(answers - values).max())


def metric_aware_bias_bound(
    dim: int, epsilon: float, *, level: float | None = None, frame_size: int | None = None, clip: float = 1.0
) -> float:
    """Theorem 5.2: the squared bias of identity decoding, ζ² ≤ 64·K²/(ρε²)·clip², for every codebook and ‖x‖ ≤ clip.

    Warning:
        True, but it says something only for ε > 8·K/√ρ, about 14: always answering 0 has squared bias ‖x‖² ≤ clip². At
        ε = 3 the bound is 23, the bias 0.53: three quarters of the signal are gone. `metric_aware_drift` gives a better
        constant.

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32].
        level: K ≥ √(N/d); the default is the library's.
        frame_size: N ≥ d; the default is 2^⌈log₂ 2.5d⌉.
        clip: the bound on ‖x‖.

    Examples:
        >>> round(metric_aware_bias_bound(1000, 3.0), 1)
        23.0
    """
    setting = make_setting(dim, level, frame_size, clip)
    epsilon = check_epsilon(epsilon)
    return 64 * setting.beta2 * setting.clip**2 / epsilon**2


def metric_aware_mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    *,
    gap_constant: float = 1.0,
    norm: float | None = None,
    level: float | None = None,
    frame_size: int | None = None,
    clip: float = 1.0,
) -> float:
    """Theorem 5.2: E‖x̂ − x‖² ≤ d·(K²/ρ)·clip²·(1 + 2C²/(2^b − 1)² + 16/ε + 256/ε²) − ‖x‖², with identity decoding.

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32].
        bits: b in [1, 12].
        gap_constant: C ≥ 1, from `gap_constant(codebook)`; 1 for the uniform codebook.
        norm: ‖x‖ in [0, clip]; by default clip.
        level: K ≥ √(N/d); the default is the library's.
        frame_size: N ≥ d; the default is 2^⌈log₂ 2.5d⌉.
        clip: the bound on ‖x‖.

    Examples:
        >>> from sstq import SSTQ
        >>> mechanism = SSTQ(dim=100, epsilon=3.0, bits=4, channel="metric-aware", rate="paper")
        >>> mechanism.expected_mse(np.full(100, 0.1)).total < metric_aware_mse_bound(100, 3.0, 4)
        True
    """
    constant = check_number("gap_constant", gap_constant, 1 - 1e-9, 4096)
    return _mse_bound(dim, epsilon, bits, constant**2, norm, level, frame_size, clip)


def oscillation_ratio(density: Density, bits: int) -> float:
    """Theorem 5.3's R_M: the mean over the gaps of the Panter–Dite codebook of sup f/inf f on the gap.

    For the piecewise constant densities of this library the supremum and infimum are those of the cells that the gap
    touches, so the ratio is at least 1, and infinite where a cell is empty.

    Args:
        density: a public density of the coordinates.
        bits: b in [1, 12].

    Examples:
        >>> oscillation_ratio(Density.uniform(), 4)
        1.0
        >>> [round(oscillation_ratio(Density.censored_gaussian(1.8), bits), 2) for bits in (1, 2, 4, 8)]
        [3.61, 2.53, 1.2, 1.01]
    """
    values = panter_dite_codebook(bits, density).values
    cells = density.masses.size
    first = np.clip(np.floor((values[:-1] + 1) * cells / 2), 0, cells - 1).astype(np.int64)
    last = np.clip(np.ceil((values[1:] + 1) * cells / 2), first + 1, cells).astype(np.int64)
    ratios = []
    for start, stop in zip(first, last, strict=True):
        heights = density.masses[start:stop]
        ratios.append(float(heights.max() / heights.min()) if heights.min() > 0 else np.inf)
    return float(np.mean(ratios))


def spatial_constant(density: Density, bits: int) -> float:
    """Theorem 5.3's constant: C₀² = min(1, ⅔·C_f·R_M), C_f = (∫f^{1/3})³/(4B²) being `Density.shape_factor`.

    Warning:
        The theorem asks for a continuous density, but Kashin representations pile up at exactly ±B (11 % of the
        coordinates at β = 1.8). It holds with such point masses as well, f being the continuous part alone: they are
        codewords and are not rounded.

    Args:
        density: a public density of the coordinates; point masses at ±B are allowed.
        bits: b in [1, 12].

    Examples:
        >>> [round(spatial_constant(Density.censored_gaussian(1.8), bits), 3) for bits in (1, 2, 4, 8)]
        [1.0, 1.0, 0.68, 0.575]
    """
    return min(1.0, 2 / 3 * density.shape_factor() * oscillation_ratio(density, bits))


def panter_dite_distortion(density: Density, bits: int) -> float:
    """Section 5.1, the limit ε → ∞ at high resolution: E[Var(v | y)] → (2/3)·C_f·B²/(M − 1)² for Panter–Dite codebooks.

    It is (1/(6(M − 1)²))·∫f/λ² with the optimal point density λ ∝ f^{1/3}.

    Args:
        density: a public density of the coordinates.
        bits: b in [1, 12].

    Returns:
        The limit in units of B².

    Examples:
        >>> from paper.theory import rounding_variance
        >>> density = Density.censored_gaussian(1.8)
        >>> exact = rounding_variance(panter_dite_codebook(6, density), density)
        >>> round(exact / panter_dite_distortion(density, 6), 2)
        1.0
    """
    bits = check_argument("bits", bits)
    return 2 / 3 * density.shape_factor() / ((1 << bits) - 1) ** 2


def refined_mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    density: Density,
    *,
    norm: float | None = None,
    level: float | None = None,
    frame_size: int | None = None,
    clip: float = 1.0,
) -> float:
    """Theorem 5.3: the bound of Theorem 5.2 with C₀² = min(1, ⅔·C_f·R_M) for C², for the loss-optimal codebook.

    It is about the average over inputs whose coordinates have this density. The bias has the bound of Theorem 5.2.

    Warning:
        True, but what it refines is negligible: 2C²/(2^b − 1)² is 0.009 beside 256/ε² = 28 at b = 4, ε = 3.

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32].
        bits: b in [1, 12].
        density: the known, public density of the coordinates, see `spatial_constant`.
        norm: ‖x‖ in [0, clip]; by default clip.
        level: as in `metric_aware_mse_bound`.
        frame_size: as in `metric_aware_mse_bound`.
        clip: as in `metric_aware_mse_bound`.

    Examples:
        >>> density = Density.censored_gaussian(1.8)
        >>> refined = refined_mse_bound(1000, 3.0, 4, density)
        >>> 0.999 < refined / metric_aware_mse_bound(1000, 3.0, 4) < 1
        True
    """
    constant = spatial_constant(density, bits)
    return _mse_bound(dim, epsilon, bits, constant, norm, level, frame_size, clip)


def _mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    squared_constant: float,
    norm: float | None,
    level: float | None,
    frame_size: int | None,
    clip: float,
) -> float:
    setting = make_setting(dim, level, frame_size, clip)
    epsilon, bits = check_epsilon(epsilon), check_argument("bits", bits)
    length = setting.clip if norm is None else check_number("norm", norm, 0, setting.clip)
    rounding = 2 * squared_constant / ((1 << bits) - 1) ** 2
    return setting.scale * (1 + rounding + 16 / epsilon + 256 / epsilon**2) - length**2
