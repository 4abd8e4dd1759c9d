"""Section 6 and Appendix E of the paper: distributed SGD with private, compressed gradients.

n clients send estimates ĝ_i of their stochastic gradients g_i, and the server steps w ← w − η·mean(ĝ_i).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from paper.theory.metric_aware import metric_aware_bias_bound, metric_aware_mse_bound
from paper.theory.optimized_codebooks import optimized_mse_bound
from sstq.checks import check_number

__all__ = [
    "Descent",
    "dsgd_bound",
    "dsgd_bound_at",
    "dsgd_burn_in",
    "dsgd_noise",
    "dsgd_rate",
    "dsgd_rounds",
    "dsgd_step_size",
    "flat_descent",
    "metric_aware_descent",
    "server_cap_bias",
]

_HUGE = 1e100
# Points of the two integrals of `server_cap_bias`.
_QUADRATURE = 101


@dataclass(frozen=True)
class Descent:
    """Assumption 6.1: what is known about the problem and the mechanism.

    Attributes:
        smoothness: L > 0, the Lipschitz constant of ∇F.
        initial_gap: Δ₀ = F(w₀) − inf F ≥ 0.
        clients: n, the number of clients.
        gradient_bound: G with E‖g_i‖² ≤ G².
        omega: ω with E‖ĝ_i − g_i‖² ≤ ω·G².
        sigma: σ with E‖g_i − ∇f_i‖² ≤ σ².
        zeta: ζ with ‖E[mean ĝ_i] − ∇F‖ ≤ ζ.

    Examples:
        >>> Descent(smoothness=1.0, initial_gap=2.0, clients=100, gradient_bound=1.0, omega=50.0)
        Descent(smoothness=1.0, initial_gap=2.0, clients=100, gradient_bound=1.0, omega=50.0, sigma=0.0, zeta=0.0)
        >>> Descent(smoothness=-1.0, initial_gap=2.0, clients=100, gradient_bound=1.0, omega=50.0)
        Traceback (most recent call last):
        ...
        sstq.checks.ArgumentError: smoothness must be a number in [1e-100, 1e+100], got -1.0
    """

    smoothness: float
    initial_gap: float
    clients: int
    gradient_bound: float
    omega: float
    sigma: float = 0.0
    zeta: float = 0.0

    def __post_init__(self) -> None:
        check_number("smoothness", self.smoothness, 1 / _HUGE, _HUGE)
        check_number("clients", self.clients, 1, 2**62, integer=True)
        for name in ("initial_gap", "gradient_bound", "omega", "sigma", "zeta"):
            check_number(name, getattr(self, name), 0, _HUGE)


def dsgd_noise(descent: Descent) -> float:
    """Theorem 6.2's V = 2(ωG² + σ²)/n + ζ², a bound on E‖mean ĝ_i − ∇F‖²."""
    power = descent.omega * descent.gradient_bound**2 + descent.sigma**2
    return 2 * power / descent.clients + descent.zeta**2


def dsgd_step_size(descent: Descent, rounds: int) -> float:
    """Theorem 6.2's η = min{1/(4L), √(Δ₀/(LVT))}."""
    rounds = _check_rounds(rounds)
    longest = 1 / (4 * descent.smoothness)
    noise = dsgd_noise(descent)
    if noise == 0:
        return longest
    return min(
        longest, math.sqrt(descent.initial_gap / (descent.smoothness * noise * rounds))
    )


def dsgd_bound_at(descent: Descent, rounds: int, step_size: float) -> float:
    """Remark F.1 and the proof of Theorem 6.2: mean_t E‖∇F(w_t)‖² ≤ 4Δ₀/(ηT) + 2ζ² + 4ηLV for any η ≤ 1/(4L).

    Warning:
        The remark omits η ≤ 1/(4L), without which the proof does not hold: a step above 2/L diverges on a quadratic.
    """
    step_size = check_number(
        "step_size", step_size, 1 / _HUGE, (1 + 1e-12) / (4 * descent.smoothness)
    )
    progress = 4 * descent.initial_gap / (step_size * _check_rounds(rounds))
    return (
        progress
        + 2 * descent.zeta**2
        + 4 * step_size * descent.smoothness * dsgd_noise(descent)
    )


def dsgd_bound(descent: Descent, rounds: int) -> float:
    """Theorem 6.2, non-asymptotic: min_t E‖∇F(w_t)‖² ≤ 16LΔ₀/T + 8√(Δ₀LV/T) + 2ζ² with η of `dsgd_step_size`.

    It also holds for the mean over t, and for any T.

    Examples:
        >>> round(dsgd_bound(Descent(1.0, 2.0, clients=100, gradient_bound=1.0, omega=50.0), 800), 3)
        0.44
    """
    rounds = _check_rounds(rounds)
    curvature = descent.smoothness * descent.initial_gap
    return (
        16 * curvature / rounds
        + 8 * math.sqrt(curvature * dsgd_noise(descent) / rounds)
        + 2 * descent.zeta**2
    )


def dsgd_burn_in(descent: Descent) -> float:
    """Theorem 6.2's T₀ = 16LΔ₀/V, from which round on the asymptotic rate holds; infinite without noise."""
    noise = dsgd_noise(descent)
    return 16 * descent.smoothness * descent.initial_gap / noise if noise else math.inf


def dsgd_rate(descent: Descent, rounds: int) -> float:
    """Theorem 6.2, asymptotic, with its constant: 8√(Δ₀LV/T) + 2ζ² for T ≥ T₀ of `dsgd_burn_in`.

    Examples:
        >>> descent = Descent(1.0, 2.0, clients=100, gradient_bound=1.0, omega=50.0)
        >>> dsgd_burn_in(descent), round(dsgd_rate(descent, 800), 3)
        (32.0, 0.4)
    """
    rounds = _check_rounds(rounds)
    least = dsgd_burn_in(descent)
    if rounds < least:
        raise ValueError(
            f"rounds must be at least T₀ = {least:g} for the asymptotic rate, got {rounds}"
        )
    curvature = descent.smoothness * descent.initial_gap
    return 8 * math.sqrt(curvature * dsgd_noise(descent) / rounds) + 2 * descent.zeta**2


def dsgd_rounds(descent: Descent, target: float) -> int:
    """Remark F.1: the least T with which `dsgd_bound` promises ‖∇F‖² ≤ target; it grows in proportion to ω.

    With a = 16LΔ₀ and b = 8√(LΔ₀V) the bound is a/T + b/√T + 2ζ², which is solved for √T.

    Examples:
        >>> descent = Descent(1.0, 2.0, clients=100, gradient_bound=1.0, omega=50.0)
        >>> dsgd_rounds(descent, 0.44), dsgd_rounds(descent, 0.044)
        (800, 67563)
    """
    left = check_number("target", target, 1 / _HUGE, _HUGE) - 2 * descent.zeta**2
    if left <= 0:
        raise ValueError(
            f"target must be above 2ζ² = {2 * descent.zeta**2:g}, which no number of rounds removes"
        )
    curvature = descent.smoothness * descent.initial_gap
    slope = 8 * math.sqrt(curvature * dsgd_noise(descent))
    root = (slope + math.sqrt(slope**2 + 64 * curvature * left)) / (2 * left)
    return int(max(1, math.ceil(root**2 * (1 - 1e-12))))


def server_cap_bias(norm: float, noise: float, dim: int, cap: float) -> float:
    """Remark 7.1: ‖E[C_R(ĝ)] − E[ĝ]‖, the bias of a server that scales longer means down to norm R = `cap`.

    ĝ has a mean of norm `norm`, and Gaussian noise of root mean square `noise` spread evenly over `dim` coordinates, as
    a mean of many messages has. Along the mean it is `norm` + s·Z with s = noise/√d, across it s·χ_{d−1}; both are
    integrated numerically.

    Examples:
        >>> round(server_cap_bias(1.0, 84.0, 500, cap=10.0), 2), round(server_cap_bias(1.0, 0.1, 500, cap=10.0), 9)
        (0.88, 0.0)
    """
    from scipy.stats import chi2

    norm = check_number("norm", norm, 0, _HUGE)
    scale = check_number("noise", noise, 0, _HUGE) / math.sqrt(
        check_number("dim", dim, 2, 2**30, integer=True)
    )
    cap = check_number("cap", cap, 1 / _HUGE, _HUGE)
    points, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
    along = norm + scale * points
    across = scale**2 * chi2.ppf((np.arange(_QUADRATURE) + 0.5) / _QUADRATURE, dim - 1)
    lengths = np.sqrt(along[:, None] ** 2 + across)
    kept = along * np.minimum(1, cap / np.maximum(lengths, 1 / _HUGE)).mean(axis=1)
    return abs(float(weights @ kept / weights.sum()) - norm)


def flat_descent(
    dim: int,
    epsilon: float,
    bits: int,
    *,
    level: float | None = None,
    frame_size: int | None = None,
    **known: Any,
) -> Descent:
    """Corollary 6.3: with flat randomized response and the optimized codebook ζ = 0 and ω = O(d·2^b/(ε ∧ ε²)).

    The result goes into `dsgd_bound`; its ω is the explicit bound of Theorem 4.3. `known` has the other attributes of
    `Descent`; its `gradient_bound` is also the clip.

    Warning:
        The corollary asks for E‖g_i‖² ≤ G² only. The mechanism needs a bound on ‖g_i‖ itself, which becomes its clip:
        gradients longer than the clip are shortened, so the estimate is biased and the gradient need not
        converge to 0. So `gradient_bound` must bound the norm of every gradient. Shorter gradients do not help: the
        error is proportional to clip², not to ‖g_i‖².
    """
    omega = optimized_mse_bound(dim, epsilon, bits, level=level, frame_size=frame_size)
    return Descent(omega=omega, **known)


def metric_aware_descent(
    dim: int,
    epsilon: float,
    bits: int,
    *,
    level: float | None = None,
    frame_size: int | None = None,
    **known: Any,
) -> Descent:
    """Corollary 6.4: with the metric-aware channel and identity decoding ζ² = O(G²/ε²), ω = O(d(1 + 1/ε + 1/ε²)).

    Warning:
        True, but it says something only for ε > 8√2·K/√ρ, which is at least 11.3, about 20 at the default level: the
        bound ends in 2ζ² = 128·K²G²/(ρε²), and ‖∇F‖² ≤ G² holds anyway. The corollary's neighbourhood is a weakness of
        the proof, not of the algorithm: identity decoding mostly shrinks gradients, which slows the descent.
    """
    omega = metric_aware_mse_bound(
        dim, epsilon, bits, norm=0.0, level=level, frame_size=frame_size
    )
    bound = max(known["gradient_bound"], 1e-100)
    bias2 = metric_aware_bias_bound(
        dim, epsilon, level=level, frame_size=frame_size, clip=bound
    )
    return Descent(omega=omega, zeta=math.sqrt(bias2), **known)


def _check_rounds(rounds: int) -> int:
    checked: int = check_number("rounds", rounds, 1, 2**62, integer=True)
    return checked
