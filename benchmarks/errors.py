"""Errors of means: GroupUnit beside the ball, clips, attackers, and how often regions hold the mean.

For the regions, people are drawn from a population of a few vectors, so that all messages of a round are independent
draws from one law. How often each message occurs is then one multinomial draw: a round of a million people takes a
millisecond.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sstq
from benchmarks.harness import Result, benchmark
from benchmarks.references import unit_vectors
from sstq.aggregation import Aggregator, Estimate
from sstq.frames.kashin import represent
from sstq.inputs.trial_vectors import typical_vector
from sstq.planning.clipping import relative_error, suggest_clip
from sstq.planning.poisoning import poisoning_bound
from sstq.scalar.codebooks import interpolation

GROUPS_DIM = 64
GROUPS_CLIENTS = 10_000
GROUPS_ROUNDS = 30


@benchmark
def groups() -> Iterator[Result]:
    """GroupUnit, 64 numbers per person: second moment of a message over d, against one ball; rounds."""
    rng = np.random.default_rng(1)
    x = unit_vectors(GROUPS_CLIENTS, GROUPS_DIM)
    for count in (10, 100):
        for epsilon in (1.0, 2.0, 3.0, 4.0, 6.0, 8.0):
            mechanism = sstq.GroupUnit(
                GROUPS_DIM, epsilon, groups=count, share_people=0.0
            )
            ball = sstq.FrameUnit(GROUPS_DIM * count, epsilon)
            note = (
                f"{mechanism.blocks} blocks; one ball {ball.gain**2 / GROUPS_DIM:.4g}"
            )
            yield Result(
                f"{count} groups, epsilon {epsilon:g}",
                mechanism.gain**2 / GROUPS_DIM,
                "second moment over d",
                note,
            )
    labels = rng.integers(10, size=GROUPS_CLIENTS)
    truth = np.zeros((10, GROUPS_DIM))
    np.add.at(truth, labels, x / GROUPS_CLIENTS)
    for epsilon in (2.0, 3.0, 4.0, 6.0, 8.0):
        mechanism = sstq.GroupUnit(GROUPS_DIM, epsilon, groups=10, frames=64)
        errors = []
        for number in range(GROUPS_ROUNDS):
            own = mechanism.with_seed(number)
            aggregator = own.aggregator()
            aggregator.update(own.encode(x, rng=number, groups=labels))
            errors.append(
                np.sum((aggregator.mean().value.reshape(10, GROUPS_DIM) - truth) ** 2)
            )
        expected = (
            mechanism.expected_mse(x[:200], groups=labels[:200]).variance
            * 200
            / GROUPS_CLIENTS
        )
        what = f"squared error of {GROUPS_ROUNDS} rounds of {GROUPS_CLIENTS} people, epsilon {epsilon:g}"
        yield Result(
            what,
            float(np.mean(errors)) / expected,
            "× the exact one",
            "± 1 % by chance",
        )


STRATA_DIM = 256
STRATA_EPSILON = 6.0


@benchmark
def shifts() -> Iterator[Result]:
    """How far 1 % of malicious clients move a mean, d = 1000, ε = 3, in units of clip."""
    for name, options in (
        ("privunit", {}), ("frameunit", {}), ("privunitg", {}), ("projunit", {}),
        ("sstq", {"bits": 2}), ("sstq", {"bits": 4}), ("sstq", {"bits": 4, "channel": "optimal"}),
        ("sqkr", {}), ("sqkr", {"variant": "dense"}), ("vqsgd", {}),
    ):  # fmt: skip
        mechanism = sstq.mechanism(name, dim=1000, epsilon=3.0, **options)
        bound = poisoning_bound(mechanism, 0.01)
        told = ", ".join(f"{option} = {value}" for option, value in options.items())
        yield Result(
            f"{name} {told}", bound.shift, "× clip", f"{bound.input_shift:.3g} by lies"
        )


CLIP_RUNS = 15


@benchmark
def clips() -> Iterator[Result]:
    """The error of a mean at the clip of a private survey of norms over the least possible one, of 240 runs."""
    laws = {
        "log-normal": lambda rng, n: rng.lognormal(sigma=0.5, size=n),
        "equal": lambda _, n: np.ones(n),
        "Pareto": lambda rng, n: np.minimum(1 + rng.pareto(2.5, n), 20.0),
        "two values": lambda rng, n: rng.choice([0.2, 2.0], n, p=[0.9, 0.1]),
    }
    for name, law in laws.items():
        ratios = [
            clip_ratio(law(np.random.default_rng(seed), people), epsilon, seed)
            for people in (10_000, 100_000)
            for epsilon in (0.5, 1.0)
            for seed in range(CLIP_RUNS)
        ]
        yield Result(
            f"{name}: mean of {len(ratios)}",
            float(np.mean(ratios)),
            "×",
            f"at most {max(ratios):.3g}",
        )


def clip_ratio(norms: NDArray[np.float64], epsilon: float, seed: int) -> float:
    """As docs/planning.md does it: a survey of logarithms in 16 bins, and what it says of the clip."""
    survey = sstq.Survey(epsilon, {"norm": sstq.Number(-3.0, 3.0, bins=16)})
    found: Any = (
        survey.aggregator().update(survey.encode({"norm": np.log(norms)}, seed)).mean()
    )
    answer = found["norm"]
    mechanism = sstq.SSTQ(64, 3.0, bits=2)
    last = np.flatnonzero(answer.cdf_band()[1] < 1).max()
    weights = np.diff(np.where(np.arange(16) <= last, answer.cdf, 1.0), prepend=0)
    chosen = suggest_clip(
        np.exp(answer.edges), mechanism, len(norms), weights=weights
    ).clip
    noise = relative_error(mechanism, len(norms)) * chosen
    error = np.hypot(np.mean(np.maximum(norms - chosen, 0)), noise)
    return float(error / suggest_clip(norms, mechanism, len(norms)).error)


ROUNDS = 2000
LEVEL = 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Vectors (K, d) of norm at most 1, all equally frequent, with a group each for mechanisms that take groups."""

    vectors: Floats
    groups: NDArray[np.int64] | None = None

    def estimand(self, mechanism: Any) -> Floats:
        """What the regions should hold."""
        if self.groups is None:
            return np.asarray(self.vectors.mean(axis=0))
        sums = np.zeros((mechanism.groups, mechanism.dim))
        np.add.at(sums, self.groups, self.vectors)
        return sums.ravel() / len(self.vectors)


def population(kind: str, dim: int, groups: int | None = None) -> Population:
    """Vectors that are all "alike", "spike" (alike, one coordinate), "short", "different", or of mean "zero"."""
    x = typical_vector(dim)
    rng = np.random.default_rng(1)
    kinds = {
        "alike": lambda: x[None],
        "spike": lambda: np.eye(1, dim),
        "short": lambda: 0.3 * x[None],
        "zero": lambda: np.stack([x, -x]),
        "different": lambda: rng.standard_normal((20, dim)) + 0.5,
    }
    vectors = kinds[kind]()
    if kind == "different":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if groups is None:
        return Population(vectors)
    labels = np.arange(len(vectors)) * groups // len(vectors)
    return Population(vectors, labels)


def sstq_law(mechanism: sstq.SSTQ, vectors: Floats) -> Floats:
    """The probability of every coordinate and code, (N, M), for one of these vectors at random."""
    coordinates, _ = represent(
        mechanism.frame, mechanism.kashin, vectors.astype(np.float32) / mechanism.clip
    )
    lower, weight = interpolation(
        mechanism.codebook.values, coordinates.astype(np.float64)
    )
    upper = np.minimum(lower + 1, len(mechanism.codebook.values) - 1)
    codes = mechanism.channel.matrix / 2.0**62
    law = np.mean(
        codes[lower] + weight[:, :, None] * (codes[upper] - codes[lower]), axis=0
    )
    return np.asarray(law / law.sum())


def frameunit_law(mechanism: sstq.FrameUnit, vectors: Floats) -> Floats:
    """The probability of every row of a single frame with either sign, (N, 2), for one of these vectors at random."""
    own, other = mechanism.choice.probabilities
    law = np.full((mechanism.frame.size, 2), other)
    inside = mechanism.choice.inside
    for vector in vectors:
        scores = mechanism.frame.analyze(vector[None])[0]
        rows = np.argsort(-np.abs(scores), kind="stable")[:inside]
        kept = (1 + np.linalg.norm(vector) / mechanism.clip) / 2
        for sign, chance in ((0, kept), (1, 1 - kept)):
            law[rows, (scores[rows] < 0) ^ sign] += (
                (own - other) * chance / len(vectors)
            )
    return law / law.sum()


def from_counts(
    mechanism: Any, law: Floats, clients: int, rng: np.random.Generator
) -> Aggregator:
    """The aggregator of so many messages from the law of coordinates (or rows) and codes."""
    counts = rng.multinomial(clients, law.ravel()).reshape(law.shape)
    index, code = np.nonzero(counts)
    times = counts[index, code]
    if mechanism.name == "frameunit":
        return mechanism.aggregator().update_counts({"row": 2 * index + code}, times)
    return mechanism.aggregator().update_counts({"index": index, "code": code}, times)


def from_messages(
    mechanism: Any, people: Population, clients: int, rng: np.random.Generator
) -> Aggregator:
    """The same by encoding everybody, for every other mechanism."""
    who = rng.integers(len(people.vectors), size=clients)
    groups = {} if people.groups is None else {"groups": people.groups[who]}
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(people.vectors[who], rng=rng, **groups))
    return aggregator


def estimates(
    mechanism: Any, people: Population, clients: int, rng: np.random.Generator
) -> Iterator[Estimate]:
    """The estimates of rounds without end, with fresh frames where frames leave a bias."""
    if isinstance(mechanism, sstq.SSTQ):
        law = sstq_law(mechanism, people.vectors)
        while True:
            yield from_counts(mechanism, law, clients, rng).mean()
    while True:
        fresh = mechanism.with_seed(int(rng.integers(1 << 62)))
        if isinstance(mechanism, sstq.FrameUnit) and mechanism.frames == 1:
            yield from_counts(
                fresh, frameunit_law(fresh, people.vectors), clients, rng
            ).mean()
        else:
            yield from_messages(fresh, people, clients, rng).mean()


def held(
    found: Iterator[Estimate], truth: Floats, rounds: int, level: float = LEVEL
) -> tuple[int, int]:
    """In how many rounds the ball and the box hold the truth."""
    balls = boxes = 0
    for _, estimate in zip(range(rounds), found, strict=False):
        region = estimate.region(level)
        error = estimate.value - truth
        balls += bool(np.linalg.norm(error) <= region.radius)
        boxes += bool(np.all(np.abs(error) <= region.half_width))
    return balls, boxes


@dataclass(frozen=True)
class Case:
    """Rounds of so many clients with one mechanism."""

    name: str
    dim: int
    epsilon: float
    clients: int
    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    def mechanism(self) -> Any:
        """The mechanism of this case."""
        return sstq.mechanism(
            self.name, dim=self.dim, epsilon=self.epsilon, **self.options
        )

    def people(self) -> Population:
        """Whom its messages are from."""
        return population(self.kind, self.dim, self.options.get("groups"))

    def held(self, rounds: int, seed: int, level: float = LEVEL) -> tuple[int, int]:
        """In how many rounds the ball and the box hold the mean."""
        mechanism = self.mechanism()
        people = self.people()
        found = estimates(mechanism, people, self.clients, np.random.default_rng(seed))
        return held(found, people.estimand(mechanism), rounds, level)

    def __str__(self) -> str:
        options = "".join(f", {name} = {value}" for name, value in self.options.items())
        return f"{self.name}{options}, d = {self.dim}, ε = {self.epsilon:g}, n = {self.clients:,}, {self.kind}"


CASES = [
    Case("sstq", 2, 3.0, 100, "alike"),
    Case("sstq", 40, 0.5, 10_000, "zero"),
    Case("sstq", 1000, 3.0, 1000, "short"),
    Case("sstq", 300, 3.0, 1_000_000, "alike"),
    Case("frameunit", 2, 12.0, 10_000, "spike"),
    Case("frameunit", 250, 3.0, 10_000, "alike"),
    Case("frameunit", 100, 3.0, 10_000, "short"),
    Case("frameunit", 4, 12.0, 300, "alike", {"frames": 4}),
    Case("frameunit", 100, 3.0, 300, "alike", {"frames": 64}),
    Case("frameunit", 100, 3.0, 300, "different", {"frames": 4096}),
    Case("groupunit", 4, 3.0, 300, "alike", {"groups": 4, "frames": 1}),
    Case("groupunit", 10, 1.0, 300, "different", {"groups": 10, "frames": 512}),
]


@benchmark
def coverage() -> Iterator[Result]:
    """Of 2,000 rounds, how many 95 % regions hold the mean, ball and box: at least 94 %."""
    for number, case in enumerate(CASES):
        error = case.mechanism().typical_error(case.clients)
        note = f"bias over noise {(error.bias2 / error.variance) ** 0.5:.2g}, if all are alike"
        for kind, count in zip(
            ("ball", "box"), case.held(ROUNDS, seed=number), strict=True
        ):
            yield Result(f"{case}: {kind}", 100 * count / ROUNDS, "%", note, target=94)
