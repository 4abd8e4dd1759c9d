"""How often the collector's alarms fire: on honest campaigns over their whole life, and on campaigns with cheats."""

import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

import sstq
from benchmarks.harness import Result, benchmark
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.service import alarms

CAMPAIGNS = 1000
LIFE = 20_000
CHEATED = 20
CHEATS = 0.1
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# A new mechanism, with other frames, per campaign.
KINDS = {
    "FrameUnit, one frame": lambda epsilon, seed: sstq.FrameUnit(
        4, epsilon, frame_seed=seed
    ),
    "FrameUnit, 50 frames": lambda epsilon, seed: sstq.FrameUnit(
        8, epsilon, frames=50, frame_seed=seed
    ),
    "GroupUnit": lambda epsilon, seed: sstq.GroupUnit(
        2, epsilon, groups=3, frame_seed=seed
    ),
    "SSTQ": lambda epsilon, seed: sstq.SSTQ(8, epsilon, bits=2, frame_seed=seed),
    "Frequencies": lambda epsilon, _: sstq.Frequencies(6, epsilon),
}


@benchmark
def false_alarms() -> Iterator[Result]:
    """False alarms among 1,000 honest campaigns, and campaigns with 10 % of cheats that are found."""
    with ProcessPoolExecutor() as workers:
        for kind in KINDS:
            raised = sum(
                workers.map(partial(is_raised, kind), range(CAMPAIGNS // len(KINDS)))
            )
            note = f"of {CAMPAIGNS // len(KINDS)}, looked at whenever an eighth is new, up to {LIFE:,} messages"
            yield Result(f"false alarms, {kind}", raised, "campaigns", note)
        for kind in KINDS:
            found = sum(
                workers.map(partial(is_raised, kind, cheats=CHEATS), range(CHEATED))
            )
            note = (
                f"of {CHEATED}, in which {CHEATS:.0%} send one message again and again"
            )
            yield Result(f"cheats found, {kind}", found, "campaigns", note)


def is_raised(kind: str, seed: int, cheats: float = 0.0) -> bool:
    """Whether a campaign of this kind raises an alarm at any look at its messages."""
    mechanism = KINDS[kind](EPSILONS[seed % len(EPSILONS)], seed)
    aggregator = mechanism.aggregator()
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    cheat = sent(mechanism, 1, alike=True, rng=rng)
    while aggregator.count < LIFE:
        more = max(100, math.ceil((alarms.GROWTH - 1) * aggregator.count))
        messages = Messages.concatenate(
            [cheat, sent(mechanism, more, alike=seed % 2 == 0, rng=rng)]
        )
        taken = np.arange(1, more + 1)
        taken[: int(cheats * more)] = 0
        aggregator.update(messages[taken])
        found = alarms.look(mechanism, aggregator, aggregator.mean())
        if any(said.startswith(alarms.ALARM) for said in found.values()):
            return True
    return False


def sent(
    mechanism: Mechanism, count: int, *, alike: bool, rng: np.random.Generator
) -> Messages:
    """Messages of honest people: all with one vector of norm clip, which is the hardest crowd, or all different."""
    if isinstance(mechanism, sstq.Frequencies):
        return mechanism.encode(
            np.full(count, 1)
            if alike
            else rng.integers(0, mechanism.categories, count),
            rng,
        )
    X = (
        np.tile(np.arange(1.0, mechanism.dim + 1), (count, 1))
        if alike
        else rng.normal(size=(count, mechanism.dim))
    )
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    if mechanism.groups is None:
        return mechanism.encode(X, rng)
    return mechanism.encode(
        X,
        rng,
        groups=np.full(count, 1) if alike else rng.integers(0, mechanism.groups, count),
    )
