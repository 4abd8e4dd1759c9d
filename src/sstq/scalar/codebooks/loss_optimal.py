"""The codebook for the metric-aware channel: the minimiser of its expected squared error.

With identity decoding the answer z to a coordinate y of density f has the loss (paper, Appendix on ℒ*_MA-SSTQ)

    ℒ* = E[(y − z)²] = E[y²] − 2·Σ_k A_k·μ_k + Σ_k π_k·s_k,

where π_k = P(v = c_k) and A_k = E[y·1{v = c_k}] belong to the stochastic rounding, and μ_k = E[z|c_k], s_k = E[z²|c_k]
to the channel. It is the paper's Σ_k W_k∫(y − c_k)(c_{k+1} − y)f + Σ_i π_i·V_i rearranged: no division by gaps.
"""

import numpy as np
from numpy.typing import NDArray

from sstq.scalar.codebooks.base import Codebook, check_bits, uniform_codebook
from sstq.scalar.codebooks.panter_dite import panter_dite_codebook
from sstq.scalar.codebooks.rounding import rounding_moments, token_moments
from sstq.scalar.densities import Density
from sstq.scalar.laplace import Rate, cell_bounds, laplace_probabilities, resolve_rate

BITS_MAX_LOSS_OPTIMAL = 8

_SMALLEST_GAP = 1e-9
_SEARCH = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 30}

_Vector = NDArray[np.float64]


def metric_aware_loss(codebook: Codebook, density: Density, epsilon: float, rate: Rate = "calibrated") -> float:
    """Return ℒ*_MA-SSTQ(Γ) = E[(y − z)²] in units of B² (paper, Section 5.1).

    Args:
        codebook: the codewords Γ.
        density: a public density of the coordinates y in [-1, 1].
        epsilon: the privacy budget; any positive number, as this is not a channel.
        rate: of the Laplace kernel, "calibrated" or "paper".

    Examples:
        >>> round(metric_aware_loss(uniform_codebook(4), Density.uniform(), 3.0), 4)
        0.2974

    """
    if not epsilon > 0:
        raise ValueError(f"epsilon = {epsilon!r} is not positive")
    values = np.unique(codebook.values)
    return _loss(values, density, resolve_rate(values, epsilon, rate))


def loss_optimal_codebook(bits: int, density: Density, epsilon: float, rate: Rate = "calibrated") -> Codebook:
    """Return the codebook of least ℒ*_MA-SSTQ (paper, Section 5.1), symmetric when the density is.

    The logarithms of the gaps are free variables of a quasi-Newton descent from the uniform and the Panter–Dite
    codebooks; a calibrated rate follows the codebook at every step. The loss is not convex, so the best of all that was
    seen is returned: never worse than the two starts.

    Args:
        bits: b in [1, 8], with M = 2^b codewords.
        density: a public density of the coordinates in [-1, 1].
        epsilon: the privacy budget of the channel.
        rate: of the Laplace kernel, "calibrated" or "paper".

    Examples:
        >>> loss_optimal_codebook(2, Density.uniform(), 3.0).values.round(3)
        array([-1.   , -0.292,  0.292,  1.   ])

    """
    if check_bits(bits) > BITS_MAX_LOSS_OPTIMAL:
        raise ValueError(
            f"bits = {bits} is not in [1, {BITS_MAX_LOSS_OPTIMAL}]: beyond, the search for a loss-optimal codebook "
            "takes minutes and gains nothing over 8 bits"
        )
    starts = [uniform_codebook(bits).values, panter_dite_codebook(bits, density).values]
    candidates = starts + [_descend(start, density, epsilon, rate) for start in starts]
    books = [Codebook("loss-optimal", values) for values in candidates]
    return min(books, key=lambda book: metric_aware_loss(book, density, epsilon, rate))


def _loss(values: _Vector, density: Density, decay: float) -> float:
    shares, means = token_moments(*rounding_moments(values, density), density)
    answers = laplace_probabilities(values, decay) @ np.stack([values, values**2], axis=1)
    return float(density.moment(2) - 2 * means @ answers[:, 0] + shares @ answers[:, 1])


def _loss_gradient(values: _Vector, density: Density, decay: float) -> _Vector:
    """Return ∂ℒ*/∂c at a fixed rate."""
    lower, upper = rounding_moments(values, density)
    shares, means = token_moments(lower, upper, density)
    probabilities = laplace_probabilities(values, decay)
    first, second = probabilities @ values, probabilities @ values**2
    # The answers' own values.
    gradient: _Vector = 2 * (shares @ probabilities * values - means @ probabilities)
    # The hats of the rounding: moving c_j moves the interpolant of μ, s by −slope on both sides.
    change = -2 * np.diff(first) * lower[1] + np.diff(second) * lower[0]
    gradient[:-1] -= change / np.diff(values)
    change = -2 * np.diff(first) * upper[1] + np.diff(second) * upper[0]
    gradient[1:] -= change / np.diff(values)
    # The cell boundaries: mass moves between neighbouring answers, at the density of the kernel there.
    middles = cell_bounds(values)[1][:-1]
    density_at = _kernel(middles, values, decay)
    gain = -2 * means[:, None] * -np.diff(values) + shares[:, None] * -np.diff(values**2)
    flow = (gain * density_at).sum(axis=0) / 2
    gradient[:-1] += flow
    gradient[1:] += flow
    # The centre of the kernel: a shift to the right is a shift of all boundaries to the left, ends included.
    ends = _kernel(np.array([-1.0, 1.0]), values, decay)
    gradient -= (gain * density_at).sum(axis=1)
    expected = -2 * means * first + shares * second
    at_ends = -2 * means[:, None] * values[[0, -1]] + shares[:, None] * values[[0, -1]] ** 2 - expected[:, None]
    gradient -= at_ends[:, 1] * ends[:, 1] - at_ends[:, 0] * ends[:, 0]
    return gradient


def _kernel(points: _Vector, values: _Vector, decay: float) -> _Vector:
    """Return the truncated Laplace density at the points, a row for each codeword as centre."""
    normalisers = -np.expm1(-decay * (1 + values)) - np.expm1(-decay * (1 - values))
    kernel: _Vector = decay * np.exp(-decay * np.abs(points - values[:, None])) / normalisers[:, None]
    return kernel


def _calibrated_gradient(values: _Vector, density: Density, decay: float) -> _Vector:
    """Return dℒ*/dc when the rate follows the codebook: r = 2ε/(3 + max(c_{M−1}, −c_2))."""
    step = 1e-5 * decay
    slope = (_loss(values, density, decay + step) - _loss(values, density, decay - step)) / (2 * step)
    gradient = _loss_gradient(values, density, decay)
    place, sign = (-2, 1) if values[-2] >= -values[1] else (1, -1)
    gradient[place] -= sign * slope * decay / (3 + sign * values[place])
    return gradient


def _descend(start: _Vector, density: Density, epsilon: float, rate: Rate) -> _Vector:
    """Return the codebook that L-BFGS reaches from ``start`` in the logarithms of the gaps."""
    from scipy.optimize import minimize

    size = start.size
    gap = np.arange(size - 1)
    # A gap and its mirror image share one variable when the density is symmetric.
    variable = np.minimum(gap, size - 2 - gap) if density.symmetric else gap

    def codewords(logs: _Vector) -> tuple[_Vector, _Vector]:
        gaps = np.exp(logs[variable])
        gaps *= 2 / gaps.sum()
        values = np.concatenate([[-1.0], -1.0 + np.cumsum(gaps[:-1]), [1.0]])
        return ((values - values[::-1]) / 2 if density.symmetric else values), gaps

    def objective(logs: _Vector) -> tuple[float, _Vector]:
        values, gaps = codewords(logs)
        decay = resolve_rate(values, epsilon, rate)
        differentiate = _calibrated_gradient if rate == "calibrated" else _loss_gradient
        by_value = differentiate(values, density, decay)
        by_gap = np.cumsum(by_value[:0:-1])[::-1]  # a gap moves every codeword above it
        by_log = gaps * (by_gap - gaps @ by_gap / 2)
        gradient = np.zeros(logs.size)
        np.add.at(gradient, variable, by_log)
        return _loss(values, density, decay), gradient

    logs = np.zeros(variable.max() + 1)
    logs[variable] = np.log(np.maximum(np.diff(start), _SMALLEST_GAP))
    bounds = [(np.log(_SMALLEST_GAP), np.log(2.0))] * logs.size
    found = minimize(objective, logs, jac=True, method="L-BFGS-B", bounds=bounds, options=_SEARCH)
    return codewords(found.x)[0]
