"""What draws with more than two levels could gain under a shuffler, where privacy losses are normal.

A row with score t (standard normal in many dimensions) has the probability q·(1 + g(t)), g = 0 below some threshold.
With ḡ = E[g], q = 1/(1 + ḡ) of the uniform one. The alignment is a = E[g·t]/(1 + ḡ). A message of somebody who is
replaced shifts the others' counts most if their vectors are nowhere near: by 2·E[g²]/(1 + ḡ)/n in squares, m of them by
μ². So a mean of n people with m messages each has the variance d/(a²·n·m) = 2·E[g²]·(1 + ḡ)/E[g·t]²·d/(μ²·n²), which
is to be compared with 4·d/(μ²·n²), that of central Gaussian noise. E[g²]/(1 + ḡ) = μ²·n/(2m) fixes the height of g.
"""

import math
from collections.abc import Iterator

from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm

from benchmarks.harness import Result, benchmark
from sstq.accounting import gaussian_sigma

CLIENTS = 100_000


def over_central(mean: float, square: float, aligned: float, power: float) -> float:
    """The variance over the central one for g = h·s, from E[s], E[s²] and E[s·t]; h follows from the budget."""
    height = (power * mean + math.sqrt((power * mean) ** 2 + 4 * power * square)) / (2 * square)
    return square * (1 + height * mean) / (2 * aligned**2)


def two_levels(power: float) -> tuple[float, float]:
    """The least variance with g constant above a threshold, and the share of rows above it."""

    def variance(log_share: float) -> float:
        share = math.exp(log_share)
        return over_central(share, share, norm.pdf(norm.isf(share)), power)

    found = minimize_scalar(variance, bounds=(-14, math.log(0.5)), method="bounded", options={"xatol": 1e-8})
    return float(found.fun), math.exp(found.x)


def three_levels(power: float) -> float:
    """The least variance with two thresholds."""

    def variance(values: tuple[float, float, float]) -> float:
        first, second, part = values
        if not (0 < first < second and 0 < part < 1):
            return math.inf
        low, high, between = norm.sf(first), norm.sf(second), norm.sf(first) - norm.sf(second)
        aligned = norm.pdf(second) + part * (norm.pdf(first) - norm.pdf(second))
        return over_central(high + part * between, high + part**2 * between, aligned, power) if low > 0 else math.inf

    start = norm.isf(two_levels(power)[1])
    options = {"maxiter": 5000, "xatol": 1e-7, "fatol": 1e-10}
    found = minimize(variance, (0.8 * start, start + 0.4, 0.5), method="Nelder-Mead", options=options)
    return float(found.fun)


def linear(power: float) -> float:
    """The least variance of all: g = h·(t − τ)⁺, which has the least E[g²] for its E[g] and E[g·t]."""

    def variance(threshold: float) -> float:
        tail, density = norm.sf(threshold), norm.pdf(threshold)
        square = (1 + threshold**2) * tail - threshold * density
        return over_central(density - threshold * tail, square, tail, power)

    return float(minimize_scalar(variance, bounds=(0, 6), method="bounded").fun)


@benchmark
def more_levels() -> Iterator[Result]:
    """Draws with more levels under a shuffler, normal limit, (1, 1e-6), n = 100,000: variance over the central one."""
    for messages in (1, 16, 64, 256, 4096, 10**8):
        power = CLIENTS / gaussian_sigma(1.0, 1e-6) ** 2 / (2 * messages)
        two, share = two_levels(power)
        three, best = three_levels(power), linear(power)
        note = f"a share {share:.2g} inside; three levels {three:.3g}, any number {best:.3g}"
        yield Result(f"two levels, {messages:,} message{'s' * (messages > 1)}", two, "× the central Gaussian", note)
