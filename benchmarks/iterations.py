"""How many transforms a Kashin representation takes: the library's steps against other ways to the same certificate.

The problem, in the unit of `sstq.frames.kashin`: find t with |t| ≤ β and P t = g, where g = √d·U x and P projects onto
the range of U. Every scheme yields what it has after 1, 2, 3, … steps. A step costs two transforms, an analysis and a
synthesis: P is two of them, and where the first step needs only an analysis, the certificate of the last needs only a
synthesis. Working memory and sums are not counted; the schedules need two vectors, the other schemes three to five.

Each scheme runs with the best parameters found for it on these inputs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Result, benchmark
from sstq import kernels
from sstq.frames.kashin import CERTIFIED_RESIDUAL, Kashin, default_level
from sstq.frames.tight import HadamardFrame, default_frame_size
from sstq.mechanisms.trial_vectors import structured_vectors

Floats32 = NDArray[np.float32]

MOST_STEPS = 100
MISSES_ALLOWED = 1e-3
DIMS_AND_FRAMES = {819: 50, 3276: 25, 25_450: 4}


@dataclass(frozen=True)
class Problem:
    """Unit vectors, the same kinds in each of several frames: x is (frames, n, d), all that follows (frames·n, N)."""

    frames: list[HadamardFrame]
    x: Floats32
    level: float
    is_gaussian: NDArray[np.bool_]

    @classmethod
    def make(cls, dim: int, frame_count: int) -> "Problem":
        """The project's structured inputs at the default level, drawn anew for every frame."""
        size = default_frame_size(dim)
        named = [structured_vectors(dim, np.random.default_rng(10_000 + seed)) for seed in range(frame_count)]
        x = np.array([np.concatenate([*batches.values()]) for batches in named], dtype=np.float32)
        kinds = np.repeat([*named[0]], [len(rows) for rows in named[0].values()])
        frames = [HadamardFrame(dim, size, seed=20_000 + seed) for seed in range(frame_count)]
        return cls(frames, x, default_level(dim, size), np.tile(kinds == "gaussian", frame_count))

    @property
    def bound(self) -> np.float32:
        """β."""
        return np.float32(self.level / np.sqrt(self.frames[0].redundancy))

    def analyze(self, x: NDArray[Any]) -> Floats32:
        """√d·U x, so that g is that of the problem's x."""
        root = np.float32(np.sqrt(self.x.shape[-1]))
        return np.concatenate([root * frame.analyze(rows) for frame, rows in zip(self.frames, x, strict=True)])

    def synthesize(self, t: NDArray[Any]) -> NDArray[Any]:
        """(d/N)·Uᵀy for t = √d·y, in the precision of t."""
        parts = (t / t.dtype.type(np.sqrt(self.x.shape[-1]))).reshape(len(self.frames), -1, t.shape[-1])
        return np.array([frame.synthesize(part) for frame, part in zip(self.frames, parts, strict=True)])

    def project(self, t: Floats32) -> Floats32:
        """P t."""
        return self.analyze(self.synthesize(t))

    def clip(self, t: Floats32) -> Floats32:
        """The nearest point of the box."""
        return np.clip(t, -self.bound, self.bound)

    def missed(self, t: Floats32) -> NDArray[np.bool_]:
        """Which rows miss the certificate; in double precision unless single precision says that many do."""
        for precision in (np.float32, np.float64):
            residuals = np.linalg.norm(self.x - self.synthesize(t.astype(precision)), axis=-1).ravel()
            misses: NDArray[np.bool_] = residuals > CERTIFIED_RESIDUAL
            if not self.few(misses):
                break
        return misses

    def few(self, misses: NDArray[np.bool_]) -> bool:
        """Whether at most one input in a thousand misses, and no Gaussian one."""
        return bool(misses.mean() <= MISSES_ALLOWED and not misses[self.is_gaussian].any())


Scheme = Callable[[Problem], Iterator[Floats32]]


def dot(a: Floats32, b: Floats32) -> Floats32:
    """The inner product of every row, as a column."""
    products: Floats32 = np.einsum("ij,ij->i", a, b)
    return products[:, None]


def scheduled(make_schedule: Callable[[Problem, int], Floats32]) -> Scheme:
    """A scheme that the library's kernel runs; its schedule may depend on the number of steps."""

    def results(problem: Problem) -> Iterator[Floats32]:
        columns = [kernels.SignedColumns(frame.columns, frame.signs, frame.size) for frame in problem.frames]
        for steps in count(1):
            schedule = make_schedule(problem, steps)
            solved = (kernels.kashin_represent(x, c, schedule)[0] for x, c in zip(problem.x, columns, strict=True))
            yield np.concatenate([*solved])

    return results


def library_schedule(problem: Problem, steps: int) -> Floats32:
    """What `sstq.frames.kashin` does."""
    return Kashin("certified", problem.level, steps).schedule(problem.frames[0])


def fixed_schedule(problem: Problem, steps: int) -> Floats32:
    """Over-relaxed projections: the same step length throughout."""
    return np.full((steps, 4), (1.45, 0.0, np.inf, problem.bound), dtype=np.float32)


def chebyshev_schedule(problem: Problem, steps: int) -> Floats32:
    """Step lengths that are best for residuals with eigenvalues in [0.16, 1], four of them in turns."""
    rows = np.full((steps, 4), (1.2, 0.0, np.inf, problem.bound), dtype=np.float32)
    nodes = 0.58 + 0.42 * np.cos(np.pi * (np.arange(4) + 0.5) / 4)
    rows[1:, 0] = np.resize(1 / nodes, steps - 1)
    return rows


def quotient_schedule(problem: Problem, steps: int) -> Floats32:
    """Projections onto the whole box from the start, every other one as long as the last fell short."""
    rows = np.full((steps, 4), (1.0, 0.0, np.inf, problem.bound), dtype=np.float32)
    rows[-2::-2, 1] = 2.5
    rows[0, :2] = 1.4, 0.0
    return rows


def splitting(weight: float, relaxation: float) -> Scheme:
    """Reflect at the box, then at the solutions of P t = g, and go part of the way.

    With weight 0 and relaxation 1 that is Douglas and Rachford's scheme. A positive weight pulls towards the least ‖t‖:
    then it is ADMM for the smallest mean of t² that the level allows.
    """

    def results(problem: Problem) -> Iterator[Floats32]:
        g = problem.analyze(problem.x)
        z = np.float32(1 + weight) * g
        while True:
            t = problem.clip(z / np.float32(1 + weight))
            yield t
            reflected = 2 * t - z
            z = z + np.float32(relaxation) * (reflected + g - problem.project(reflected) - t)

    return results


def momentum(problem: Problem) -> Iterator[Floats32]:
    """Nesterov's momentum on projections, starting afresh for a vector whose step turns back."""
    a = problem.analyze(problem.x)
    t = problem.clip(np.float32(1.3) * a)
    yield t
    a = problem.project(a - t)
    last_t, last_a = t, a
    age = np.ones((len(a), 1), dtype=np.float32)
    while True:
        next_age = (1 + np.sqrt(1 + 4 * age**2)) / 2
        weight = (age - 1) / next_age
        ahead, a_ahead = t + weight * (t - last_t), a + weight * (a - last_a)
        last_t, last_a = t, a
        t = problem.clip(ahead + a_ahead)
        yield t
        age = np.where(dot(ahead - t, t - last_t) > 0, np.float32(1), next_age)
        a = problem.project(a_ahead - (t - ahead))


def anderson(problem: Problem) -> Iterator[Floats32]:
    """Anderson acceleration with a memory of one: steps of length 1 from where the last two residuals cancel best."""
    a = problem.analyze(problem.x)
    t = problem.clip(np.float32(1.4) * a)
    yield t
    a = problem.project(a - t)
    last_t, last_a = t, a
    while True:
        change = a - last_a
        weight = dot(change, a) / np.maximum(dot(change, change), np.float32(1e-30))
        mixed, a_mixed = t - weight * (t - last_t), a - weight * change
        last_t, last_a = t, a
        t = problem.clip(mixed + a_mixed)
        yield t
        a = problem.project(a_mixed - (t - mixed))


SCHEMES: dict[str, Scheme] = {
    "projections, r = 1.45": scheduled(fixed_schedule),
    "ADMM, least norm": splitting(weight=0.65, relaxation=1.8),
    "momentum with restarts": momentum,
    "Chebyshev's step lengths": scheduled(chebyshev_schedule),
    "Douglas–Rachford": splitting(weight=0, relaxation=1),
    "Anderson, memory 1": anderson,
    "quotients in a fixed box": scheduled(quotient_schedule),
    "the library: quotients in a growing box": scheduled(library_schedule),
}


def run(problem: Problem, scheme: Scheme) -> tuple[int, Floats32, NDArray[np.bool_]]:
    """The least number of steps with few misses, or MOST_STEPS; the result after them, and which inputs miss."""
    steps = 0
    for t in islice(scheme(problem), MOST_STEPS):
        steps += 1
        misses = problem.missed(t)
        if problem.few(misses):
            break
    return steps, t, misses


@benchmark
def iterations() -> Iterator[Result]:
    """Transforms until at most 1 ‰ of the inputs and no Gaussian one misses the certificate; the paper's recipe: 62."""
    for dim, frame_count in DIMS_AND_FRAMES.items():
        problem = Problem.make(dim, frame_count)
        for name, scheme in SCHEMES.items():
            steps, t, misses = run(problem, scheme)
            power = float(np.mean(t[problem.is_gaussian].astype(np.float64) ** 2))
            note = f"mean of t² {power:.4f}; {misses.sum()} of {len(misses)} miss"
            if not problem.few(misses):
                note = f"not within {MOST_STEPS} steps; {note}"
            yield Result(f"d = {dim}, {name}", 2 * steps, "transforms", note)
