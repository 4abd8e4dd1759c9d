"""Shuffled messages: the best draws at (1, 1e-6), their law, how much accuracy trust buys, and the shuffler's speed.

Four million envelopes do not fit into the memory that mixing takes, and are mixed on disk. With SSTQ_BENCHMARK_FULL=1
there are twenty million as well, which takes some minutes and 4 GB of disk.
`python -m benchmarks.shuffled docs/trust.png` draws the error against the people by whom they trust.
"""

import itertools
import multiprocessing
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.harness import FULL, Remark, Result, benchmark, fastest, memory_of
from benchmarks.service import NO_POSTGRES, databases
from sstq.accounting import gaussian_sigma, shuffled_epsilon, two_level_local_epsilon
from sstq.mechanisms import FrameUnit
from sstq.planning import shuffled_mechanism
from sstq.planning.plans import central_error
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy
from tests.accounting.references import attained_delta, two_level_shuffled_epsilon

EPSILON = 1.0
DELTA = 1e-6
# Dimensions, groups, people and messages of the plans.
PLANS = [(1000, None, 100_000, m) for m in (1, 16, 64, 256)] + [
    (64, 10, 59_000, m) for m in (1, 16)
]


@benchmark
def shuffled() -> Iterator[Result]:
    """Best draws under a shuffler at (1, 1e-6): exact error times people over dimensions, beside the central one."""
    for plan in PLANS:
        dim, groups, clients, messages = plan
        mechanism = shuffled_mechanism(
            dim, EPSILON, DELTA, clients, messages=messages, groups=groups
        )
        coordinates = dim * (groups or 1)
        error = mechanism.typical_error(clients)
        central = coordinates * (2 * gaussian_sigma(EPSILON, DELTA) / clients) ** 2
        what = f"error·n/d, {_what(plan)}"
        note = f"ε₀ = {mechanism.epsilon:.3f}, k = {mechanism.choice.inside}, {mechanism.message_bits} bits; "
        note += f"{error.total / central:.3g} × the central Gaussian's"
        yield Result(what, error.total * clients / coordinates, "", note)


def _what(plan: tuple[int, int | None, int, int]) -> str:
    dim, groups, clients, messages = plan
    kind = f"{groups} groups of {dim}" if groups else f"d = {dim}"
    return f"{kind}, n = {clients:,}, {messages} message{'s' * (messages > 1)}"


PEOPLE = (10**3, 10**4, 10**5, 10**6, 10**7)
LOCAL_EPSILONS = (0.1, 1.0, 3.0, 5.0, 7.0, 10.0)
SHARES = (0.5, 0.1, 0.01, 0.001)
DELTAS = (1e-4, 1e-6, 1e-9, 1e-12)
# Bisection stops here: the excess over the attained value is known to about this.
ACCURACY = 1e-4


def attained_epsilon(
    epsilon: float, share: float, clients: int, delta: float, most: float
) -> float:
    """The ε of the data set that attains almost all of the bound `most`, rounded down."""
    low = 0.0
    high = most
    while high - low > ACCURACY * most:
        # Near the bound first: that is where it is.
        middle = (
            max((low + high) / 2, high * (1 - 20 * ACCURACY))
            if high == most
            else (low + high) / 2
        )
        low, high = (
            (middle, high)
            if attained_delta(epsilon, share, clients, middle) > delta
            else (low, middle)
        )
    return low


@benchmark
def shuffling() -> Iterator[Result]:
    """Shuffled messages by their own law, over ε₀ = 0.1 … 10, κ = 0.001 … 0.5, δ = 1e-4 … 1e-12."""
    for clients in PEOPLE:
        excess = 0.0
        gains = 1.0
        below = 0
        above = 0
        for epsilon, share, delta in itertools.product(LOCAL_EPSILONS, SHARES, DELTAS):
            own = two_level_shuffled_epsilon(epsilon, share, clients, delta)
            generic = shuffled_epsilon(epsilon, clients, delta)
            below += attained_delta(epsilon, share, clients, own) > delta * (1 + 1e-9)
            above += own > generic * 1.003
            if own > 1e-6:
                excess = max(
                    excess,
                    own
                    / max(attained_epsilon(epsilon, share, clients, delta, own), 1e-12)
                    - 1,
                )
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
        yield Result(
            what,
            1e3 * once,
            "ms",
            f"the largest ε₀ for (1, 1e-6), {local:.2f}, takes {1e3 * back:.0f} ms",
        )


DIM = 1000
MESSAGES = (1, 16, 256)

LOCAL = "trust nobody: local ε = 1"
CENTRAL = "trust the server: central Gaussian"


@dataclass(frozen=True)
class Point:
    """The root mean square error of a mean over clip, and the local ε that is left if the promise is broken."""

    error: float
    left: float
    sent: str


def label(messages: int) -> str:
    """What a curve behind a shuffler is called."""
    return f"trust a shuffler: {messages} message{'s' * (messages > 1)}"


@cache
def point(curve: str, people: int) -> Point:
    """The point of a curve."""
    if curve == CENTRAL:
        return Point(
            central_error(DIM, EPSILON, DELTA, people),
            float("inf"),
            "the vector itself",
        )
    if curve == LOCAL:
        mechanism = FrameUnit(DIM, EPSILON, clients=people)
    else:
        messages = next(m for m in MESSAGES if label(m) == curve)
        mechanism = shuffled_mechanism(DIM, EPSILON, DELTA, people, messages=messages)
    sent = f"{mechanism.messages} × {mechanism.message_bits} bits"
    return Point(
        mechanism.typical_error(people).total ** 0.5, mechanism.bundle_epsilon, sent
    )


CURVES = (LOCAL, *map(label, MESSAGES), CENTRAL)


@benchmark
def trust() -> Iterator[Result]:
    """Error of a mean of 1,000 dimensions over clip at (1, 1e-6), by whom people trust and how many there are."""
    for curve in CURVES:
        for people in PEOPLE:
            found = point(curve, people)
            note = f"{found.sent}; a local ε of {found.left:.3g} if trust is broken"
            yield Result(f"{curve}, n = {people:,}", found.error, "× clip", note)


def draw(path: Path) -> None:
    """Draw all curves with their names at their ends."""
    figure = new_figure(8.6, 5.2, layout="constrained")
    axes = figure.subplots()
    colours = (SECOND, "#d68a5c", ACCENT, "#7a2606", INK)
    for curve, colour in zip(CURVES, colours, strict=True):
        errors = [point(curve, people).error for people in PEOPLE]
        axes.plot(PEOPLE, errors, "o-", color=colour, linewidth=2, markersize=5)
        axes.annotate(
            curve,
            (PEOPLE[-1], errors[-1]),
            (10, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.axhline(1, color=FAINT, linewidth=1, linestyle="--")
    axes.annotate("as long as a vector: nothing is learned above", (PEOPLE[-1], 1), (0, 5), color=FAINT,
                  textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="people",
        ylabel="error of the mean over clip",
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    figure.suptitle("Error of a mean of 1,000 dimensions; (ε, δ) = (1, 10⁻⁶) behind a shuffler and for the server",
                    color=INK, fontsize=11)  # fmt: skip
    save(figure, path)


MILLION = 10**6
CROWDS = (MILLION, 4 * MILLION, *((20 * MILLION,) if FULL else ()))
ROW = 2_000  # people whose envelopes share a row, as under load
OPENED = 20_000
REPEATS = 3


T = TypeVar("T")


class Mixed(NamedTuple):
    """One crowd: seconds from waiting envelopes to durable batches, and by how much the peak of memory grew."""

    seconds: float
    megabytes: float


@benchmark
def shuffler() -> Iterator[Result | Remark]:
    """The shuffler on both databases, and how fast the collector opens envelopes."""
    with databases() as (_, urls):
        for kind, new in urls.items():
            for people in CROWDS:
                database = new(people)
                _in_process(_fill, database, people)
                found = _in_process(_mix, database, people)
                what = f"{kind}: {people:,} envelopes mixed and durable"
                target = 10.0 if people == MILLION else None
                yield Result(what, found.seconds, "s", target=target, at_most=True)
                yield Result(
                    f"{kind}: memory for {people:,} envelopes",
                    found.megabytes,
                    "MB",
                    target=400,
                    at_most=True,
                )
        if len(urls) == 1:
            yield NO_POSTGRES
    yield from _opening()


def _in_process(work: Callable[..., T], *arguments: object) -> T:
    """In a process of its own, whose peak of memory is that of the work."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _campaign() -> tuple[FrameUnit, object]:
    from datetime import UTC, datetime

    from sstq.client import Campaign, Shuffling

    mechanism = FrameUnit(dim=1000, epsilon=3.0, frames=1 << 19)
    terms = Shuffling("https://shuffle.example", "00" * 32, "11" * 32, threshold=2)
    return mechanism, Campaign(
        "steps", mechanism, closes=datetime(2100, 1, 1, tzinfo=UTC), shuffling=terms
    )


def _fill(database: str, people: int) -> None:
    from sstq.client.sealing import CROWD_BYTES
    from sstq.service.crowds import joined_by_crowd
    from sstq.service.receiving import Upload
    from sstq.service.store import Store

    mechanism, campaign = _campaign()
    store = Store(database, joined_by_crowd)
    store.create("steps", mechanism, "{}")
    crowd = secrets.token_bytes(CROWD_BYTES)
    for _ in range(people // ROW):
        body = crowd + secrets.token_bytes(ROW * campaign.envelope_bytes)
        store.receive([Upload("steps", secrets.token_bytes(16), ROW, body)])
    store.close()


def _mix(database: str, people: int) -> Mixed:
    from sstq.service.crowds import joined_by_crowd, settle, waiting
    from sstq.service.store import Store

    _, campaign = _campaign()
    store = Store(database, joined_by_crowd)
    before = memory_of()
    begun = time.perf_counter()
    (crowd,) = waiting(store, "steps")
    assert settle(store, campaign, campaign.shuffling, [crowd]) == {"mixed": people}
    seconds = time.perf_counter() - begun
    store.close()
    return Mixed(seconds, (memory_of(what="VmHWM") - before) / 2**20)


def _opening() -> Iterator[Result]:
    from sstq.client.sealing import OVERHEAD, SealingKey, open_envelopes, seal
    from sstq.service.background import Workers
    from sstq.service.batches import open_all

    key = SealingKey.generate()
    info = b"info"
    size = 4 + OVERHEAD
    begun = time.perf_counter()
    envelopes = [
        seal(number.to_bytes(4, "big"), key.public, info) for number in range(OPENED)
    ]
    yield Result(
        "envelopes sealed by a client, one core",
        OPENED / (time.perf_counter() - begun),
        "/s",
    )
    (alone,) = fastest(
        lambda: open_envelopes(key.secret, info, envelopes), repeats=REPEATS
    )
    yield Result("envelopes opened, one core", OPENED / alone, "/s", target=7_000)
    workers = Workers()
    body = b"".join(envelopes)
    try:
        found = list(open_all(workers, key.secret, info, body, size))
        (together,) = fastest(
            lambda: list(open_all(workers, key.secret, info, body, size)),
            repeats=REPEATS,
        )
    finally:
        workers.stop()
    assert found == [number.to_bytes(4, "big") for number in range(OPENED)]
    yield Result(
        f"envelopes opened, {os.cpu_count()} processes", OPENED / together, "/s"
    )
    yield Result("processes against one core", alone / together, "×")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
