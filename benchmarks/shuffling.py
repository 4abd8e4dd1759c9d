"""Shuffled messages by their own law: how far the bound is from what some data attain, and what a call costs.

python -m benchmarks shuffling
"""

import itertools
import math
from collections.abc import Iterator
from functools import partial

from benchmarks.harness import Result, benchmark, fastest
from sstq.accounting import shuffled_epsilon, two_level_local_epsilon, two_level_shuffled_epsilon
from sstq.accounting.amplification import closed_form
from tests.accounting.references import attained_delta

CROWDS = (10**3, 10**4, 10**5, 10**6, 10**7)
LOCAL = (0.1, 1.0, 3.0, 5.0, 7.0, 10.0)
SHARES = (0.5, 0.1, 0.01, 0.001)
DELTAS = (1e-4, 1e-6, 1e-9, 1e-12)
# Bisection stops here: the excess over the attained value is known to about this.
ACCURACY = 1e-4


def attained_epsilon(epsilon: float, share: float, clients: int, delta: float, most: float) -> float:
    """The ε of the data set that attains almost all of the bound `most`, rounded down."""
    low, high = 0.0, most
    while high - low > ACCURACY * most:
        # Near the bound first: that is where it is.
        middle = max((low + high) / 2, high * (1 - 20 * ACCURACY)) if high == most else (low + high) / 2
        low, high = (middle, high) if attained_delta(epsilon, share, clients, middle) > delta else (low, middle)
    return low


def closed_forms(epsilon: float, clients: int, delta: float) -> Iterator[float]:
    """The closed forms of 2021 and 2023, where they hold."""
    for chance in (math.exp(-epsilon), 2 / (math.exp(epsilon) + 1)):
        if chance >= 16 * math.log(2 / delta) / clients:
            yield closed_form(epsilon, clients, delta, chance)


@benchmark
def shuffling() -> Iterator[Result]:
    """Shuffled messages by their own law, over ε₀ = 0.1 … 10, κ = 0.001 … 0.5, δ = 1e-4 … 1e-12."""
    for clients in CROWDS:
        excess, gains, below, above, formulas = 0.0, 1.0, 0, 0, 0
        for epsilon, share, delta in itertools.product(LOCAL, SHARES, DELTAS):
            own = two_level_shuffled_epsilon(epsilon, share, clients, delta)
            generic = shuffled_epsilon(epsilon, clients, delta)
            below += attained_delta(epsilon, share, clients, own) > delta * (1 + 1e-9)
            above += own > generic * 1.003
            formulas += any(generic > closed for closed in closed_forms(epsilon, clients, delta))
            if own > 1e-6:
                excess = max(excess, own / max(attained_epsilon(epsilon, share, clients, delta, own), 1e-12) - 1)
                gains = max(gains, generic / own)
        problems = f"{below} below the attained value, {above} above the bound for every mechanism"
        problems += f", {formulas} where that is above a closed form"
        yield Result(
            f"n = {clients:,}: most above the attained ε",
            100 * excess,
            "%",
            f"own law up to {gains:.2f}× better; {problems}",
        )
    for clients, messages in ((59_000, 1), (100_000, 16), (100_000, 256), (10**7, 1)):
        local = two_level_local_epsilon(1.0, 0.01, clients, 1e-6, messages)
        once, back = fastest(
            partial(two_level_shuffled_epsilon, local, 0.01, clients, 1e-6, messages),
            partial(two_level_local_epsilon, 1.0, 0.01, clients, 1e-6, messages),
        )
        what = f"n = {clients:,}, messages per client {messages}, κ = 0.01: one call"
        yield Result(what, 1e3 * once, "ms", f"the largest ε₀ for (1, 1e-6), {local:.2f}, takes {1e3 * back:.0f} ms")
