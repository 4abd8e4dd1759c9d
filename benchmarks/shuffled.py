"""Shuffled messages: the best draws at (1, 1e-6), and how tight their law is."""

import itertools
import time
from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from benchmarks.harness import Result, benchmark, fastest
from sstq.accounting import gaussian_sigma, shuffled_epsilon, two_level_local_epsilon
from sstq.aggregation import Estimate
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.mechanisms.trial_vectors import structured_vectors
from sstq.planning import shuffled_mechanism
from tests.accounting.references import attained_delta, two_level_shuffled_epsilon

EPSILON, DELTA, PEOPLE, ROUNDS = 1.0, 1e-6, 2000, 40
# Dimensions, groups, people and messages of the plans.
PLANS = [(1000, None, 100_000, m) for m in (1, 16, 64, 256)] + [(64, 10, 59_000, m) for m in (1, 16)]


@cache
def planned(dim: int, groups: int | None, clients: int, messages: int) -> FrameUnit | GroupUnit:
    """The mechanism of a plan."""
    return shuffled_mechanism(dim, EPSILON, DELTA, clients, messages=messages, groups=groups)


def shuffled_round(mechanism: FrameUnit | GroupUnit, x: np.ndarray, seed: int) -> Estimate:
    """The mean of the messages of a round on fresh frames, every slot shuffled apart."""
    own, rng = mechanism.with_seed(seed), np.random.default_rng(seed)
    messages = own.encode(x, rng, groups=mechanism.groups_in_turn(len(x)))
    aggregator = own.aggregator()
    for start in range(0, len(messages), len(x)):
        slot = messages[start : start + len(x)]
        aggregator.update(slot[rng.permutation(len(x))])
    return aggregator.mean()


def errors_over_expected(
    mechanism: FrameUnit | GroupUnit, x: np.ndarray, rounds: int, seed: int
) -> tuple[float, float]:
    """The squared error of rounds over the expected one, and the standard error of that."""
    groups = mechanism.groups_in_turn(len(x))
    truth = mechanism._estimated(mechanism._held(x, groups)).mean(axis=0)
    squares = [
        float(np.sum((shuffled_round(mechanism, x, seed + number).value - truth) ** 2)) for number in range(rounds)
    ]
    ratios = np.array(squares) / mechanism.typical_error(len(x)).total
    return float(ratios.mean()), float(ratios.std(ddof=1) / rounds**0.5)


@benchmark
def shuffled() -> Iterator[Result]:
    """Best draws under a shuffler at (1, 1e-6): exact error over dimensions, rounds of 2,000 people, and times."""
    for plan in PLANS:
        dim, groups, clients, messages = plan
        begin = time.perf_counter()
        mechanism, coordinates = planned(*plan), dim * (groups or 1)
        seconds = time.perf_counter() - begin
        error = mechanism.typical_error(clients)
        central = coordinates * (2 * gaussian_sigma(EPSILON, DELTA) / clients) ** 2
        what = f"error·n/d, {_what(plan)}"
        note = f"ε₀ = {mechanism.epsilon:.3f}, k = {mechanism.choice.inside}, {mechanism.message_bits} bits; "
        note += f"{error.total / central:.3g} × the central Gaussian's; planned in {seconds:.1f} s"
        yield Result(what, error.total * clients / coordinates, "", note)
    for plan in (PLANS[0], PLANS[1], PLANS[4], PLANS[5]):
        mechanism = planned(*plan)
        for kind in ("gaussian", "spike"):
            x = np.tile(structured_vectors(mechanism.dim, np.random.default_rng(0))[kind][:1], (PEOPLE, 1))
            ratio, spread = errors_over_expected(mechanism, x, ROUNDS, seed=1)
            what = f"squared error of {ROUNDS} rounds of {PEOPLE:,} people, {_what(plan)}, {kind}"
            yield Result(what, ratio, "× the exact one", f"± {100 * spread:.1f} % by chance")
    mechanism = planned(*PLANS[0])
    x = np.random.default_rng(1).standard_normal((20_000, mechanism.dim)).astype(np.float32)
    begin = time.perf_counter()
    messages = mechanism.encode(x, rng=1)
    encoded = time.perf_counter()
    aggregator = mechanism.aggregator()
    aggregator.update(messages)
    aggregator.mean()
    yield Result("messages encoded", len(x) / (encoded - begin), "per second", f"frames of {mechanism.frame.size} rows")
    yield Result("mean", (time.perf_counter() - encoded) / len(x) * 1e6, "µs per message", "a frame for each")


def _what(plan: tuple[int, int | None, int, int]) -> str:
    dim, groups, clients, messages = plan
    kind = f"{groups} groups of {dim}" if groups else f"d = {dim}"
    return f"{kind}, n = {clients:,}, {messages} message{'s' * (messages > 1)}"


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


@benchmark
def shuffling() -> Iterator[Result]:
    """Shuffled messages by their own law, over ε₀ = 0.1 … 10, κ = 0.001 … 0.5, δ = 1e-4 … 1e-12."""
    for clients in CROWDS:
        excess, gains, below, above = 0.0, 1.0, 0, 0
        for epsilon, share, delta in itertools.product(LOCAL, SHARES, DELTAS):
            own = two_level_shuffled_epsilon(epsilon, share, clients, delta)
            generic = shuffled_epsilon(epsilon, clients, delta)
            below += attained_delta(epsilon, share, clients, own) > delta * (1 + 1e-9)
            above += own > generic * 1.003
            if own > 1e-6:
                excess = max(excess, own / max(attained_epsilon(epsilon, share, clients, delta, own), 1e-12) - 1)
                gains = max(gains, generic / own)
        problems = f"{below} below the attained value, {above} above the bound for every mechanism"
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
