"""Shuffled messages by definition: exact enumeration for small crowds, sums over one count for large ones."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
from scipy.stats import binom

from sstq.accounting.composition import _walk
from sstq.accounting.shuffling import Crowd


def histograms(densities):
    """The distribution of the shuffled messages of clients with these densities, by histogram."""
    size = len(densities[0])
    result = {(0,) * size: Fraction(1)}
    for density in densities:
        grown = defaultdict(Fraction)
        for counts, mass in result.items():
            for message, chance in enumerate(density):
                grown[
                    (*counts[:message], counts[message] + 1, *counts[message + 1 :])
                ] += mass * chance
        result = grown
    return result


def hockey_stick(first, second, scale):
    """sup P − scale·Q, for two dictionaries."""
    return sum(
        max(Fraction(0), first[key] - scale * second.get(key, 0)) for key in first
    )


def product(first, second):
    """The distribution of two independent outcomes."""
    pairs = itertools.product(first.items(), second.items())
    return {(one, other): mass * weight for (one, mass), (other, weight) in pairs}


def two_level(size, members, ratio):
    """The density of a two-level draw: candidates in `members` are `ratio` times as likely as others."""
    other = 1 / (len(members) * ratio + size - len(members))
    return [
        other * ratio if candidate in members else other for candidate in range(size)
    ]


def claimed(ratio, inside, clients, scale):
    """1/n·E(Z₁ + … + Z_n)⁺ of the claim, exactly."""
    values = [ratio - scale, 1 - ratio * scale, 1 - scale, Fraction(0)]
    chances = [inside, inside, 1 - inside * (ratio + 1), inside * (ratio - 1)]
    sums = {Fraction(0): Fraction(1)}
    for _ in range(clients):
        grown = defaultdict(Fraction)
        for value, mass in sums.items():
            for step, chance in zip(values, chances, strict=True):
                grown[value + step] += mass * chance
        sums = grown
    return sum(mass * value for value, mass in sums.items() if value > 0) / clients


def _excess(c, rest, ratio, scale):
    """E(rest·(1 − t) + (E − t)·a + (1 − tE)·(c − a))⁺ for a ~ Bin(c, 1/2), by two tails of a."""
    # Positive from the least integer a above (c·(tE − 1) + rest·(t − 1))/((E − 1)(t + 1)) on.
    least = (
        np.floor(
            (c * (scale * ratio - 1) + rest * (scale - 1)) / ((ratio - 1) * (scale + 1))
        )
        + 1
    )
    mean = c / 2 * binom.sf(least - 2, np.maximum(c - 1, 0), 0.5)  # E[a; a ≥ least]
    fixed = rest * (1 - scale) + (1 - scale * ratio) * c
    return np.maximum(
        (ratio - 1) * (1 + scale) * mean + fixed * binom.sf(least - 1, c, 0.5), 0.0
    )


def attained_delta(epsilon, share, clients, total):
    """δ where no other client has a candidate inside that one of the client's two vectors has; a lower bound.

    The server sees the two counts of both inside sets; everything else only dilutes them.
    """
    ratio = math.exp(epsilon)
    scale = math.exp(total)
    inside = share / (share * ratio + 1 - share)
    mean = 2 * inside * clients
    reach = 12 * math.sqrt(2 * inside * clients) + 60
    c = np.arange(
        max(0, math.floor(mean - reach)), min(clients, math.ceil(mean + reach)) + 1
    )
    rest = (clients - c) * max(0.0, 1 - inside * (ratio + 1)) / (1 - 2 * inside)
    return (
        float(
            np.sum(binom.pmf(c, clients, 2 * inside) * _excess(c, rest, ratio, scale))
        )
        / clients
    )


def clones_delta(epsilon, clients, total):
    """δ of fair clones C ~ Bin(n − 1, 2/(e^ε₀ + 1)), exactly but for 1e-30 of C.

    With b* the greatest count whose ratio exceeds e^ε, and B ~ Bin(c, 1/2),
    δ_c = (e^ε₀ − e^ε)/(e^ε₀ + 1)·Pr[B = b*] − (e^ε − 1)·Pr[B < b*].
    """
    others = clients - 1
    chance = 2 / (math.exp(epsilon) + 1)
    reach = 12 * math.sqrt(others * chance) + 60
    c = np.arange(
        max(0, int(others * chance - reach)),
        min(others, int(others * chance + reach)) + 1,
    )
    # Of c + 1 messages, P/Q = (e^ε₀·a + b)/(a + e^ε₀·b) exceeds e^ε where b is less than this share of them.
    share = math.expm1(total - epsilon) / (math.expm1(-epsilon) * (math.exp(total) + 1))
    most = np.ceil((c + 1) * share) - 1
    gain = (
        -math.expm1(total - epsilon)
        / (1 + math.exp(-epsilon))
        * binom.pmf(most, c, 0.5)
    )
    loss = math.expm1(total) * binom.cdf(most - 1, c, 0.5)
    return float(np.sum(binom.pmf(c, others, chance) * np.maximum(gain - loss, 0.0)))


def claimed_delta(epsilon, share, clients, total):
    """δ of the claim in floating point, by a sum over both counts; for crowds of some thousands."""
    ratio = math.exp(epsilon)
    scale = math.exp(total)
    inside = share / (share * ratio + 1 - share)
    mean = 2 * inside * clients
    reach = 12 * math.sqrt(2 * inside * clients) + 60
    chance = (1 - inside * (ratio + 1)) / (1 - 2 * inside)
    result = 0.0
    for c in range(
        max(0, math.floor(mean - reach)), min(clients, math.ceil(mean + reach)) + 1
    ):
        rest = np.arange(clients - c + 1)
        weights = binom.pmf(rest, clients - c, chance)
        likely = weights > 0
        excess = _excess(np.full(likely.sum(), c), rest[likely], ratio, scale)
        result += binom.pmf(c, clients, 2 * inside) * float(
            np.sum(weights[likely] * excess)
        )
    return result / clients


def shuffled_delta(epsilon, clients, total, messages=None):
    """The δ that the code gives n clients' shuffled messages at a total ε: tighter each time, as δ is known better."""
    crowd = Crowd.of(epsilon, clients, messages)
    best = 1.0
    near = 1e-6
    if total >= crowd.local * crowd.slots:
        return 0.0
    while (delta := crowd.losses(near).delta(total)) < 0.99 * best:
        best = delta
        near = max(delta, 1e-100)
    return min(best, delta)


def two_level_shuffled_epsilon(epsilon, share, clients, delta, messages=1):
    """The ε that the code gives the shuffled messages of a two-level draw."""
    return Crowd.of(epsilon, clients, messages, share=share).epsilon(delta)


def optimal_delta(epsilon, rounds, total):
    """The least δ of T rounds of ε-LDP at a total ε, by the sum that `compose` inverts."""
    return (
        0.0
        if rounds * Fraction(epsilon) <= Fraction(total)
        else _walk(epsilon, rounds).delta(total)
    )
