"""Timing that survives a busy machine: interleaved repeats, the minimum of each, ratios within one process.

A minimum comes with the spread of its repeats, and what is computed from minima carries the spreads along, so that a
later run can tell a change from noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

__all__ = ["Benchmark", "Measured", "Result", "check_names", "fastest", "title_of"]


class Measured(float):
    """A measured number and the relative spread of its repeats; products and quotients add the spreads up.

    Examples:
        >>> ratio = Measured(3.0, spread=0.02) / Measured(2.0, spread=0.01)
        >>> float(ratio), round(ratio.spread, 3)
        (1.5, 0.03)
    """

    spread: float

    def __new__(cls, value: float, spread: float = 0.0) -> Measured:  # noqa: D102
        made = super().__new__(cls, value)
        made.spread = spread
        return made

    def __mul__(self, other: float, /) -> Measured:
        return Measured(float(self) * float(other), self.spread + _spread(other))

    def __truediv__(self, other: float, /) -> Measured:
        return Measured(float(self) / float(other), self.spread + _spread(other))

    def __rtruediv__(self, other: float, /) -> Measured:
        return Measured(float(other) / float(self), self.spread + _spread(other))

    __rmul__ = __mul__


def _spread(value: float) -> float:
    return value.spread if isinstance(value, Measured) else 0.0


@dataclass(frozen=True)
class Result:
    """One line of a benchmark's table: a measured figure and, where there is one, its target (at least, or at most).

    Examples:
        >>> line = Result("transform vs copying", 0.4, "×", target=0.5)
        >>> line.goal, line.verdict
        ('≥ 0.5', 'missed')
    """

    what: str
    figure: float
    unit: str
    note: str = ""
    target: float | None = None
    at_most: bool = False

    @property
    def spread(self) -> float | None:
        """The relative spread of the repeats behind the figure; None if it was not timed in repeats."""
        return self.figure.spread if isinstance(self.figure, Measured) else None

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.target is None:
            return ""
        met = self.figure <= self.target if self.at_most else self.figure >= self.target
        return "met" if met else "missed"

    @property
    def goal(self) -> str:
        """The target in words."""
        return "" if self.target is None else f"{'≤' if self.at_most else '≥'} {self.target:g}"


Benchmark = Callable[[], Iterable[Result]]


def title_of(benchmark: Benchmark) -> str:
    """The first line of a benchmark's description.

    Examples:
        >>> def sorting(quick):
        ...     '''Sorting, by size.'''
        >>> title_of(partial(sorting, True))
        'Sorting, by size.'
    """
    function = benchmark.func if isinstance(benchmark, partial) else benchmark
    return (function.__doc__ or "").split("\n", 1)[0]


def check_names(names: Iterable[str], benchmarks: Mapping[str, Benchmark]) -> None:
    """Refuse names of benchmarks that there are not.

    Examples:
        >>> check_names(["sort"], {"sorting": list})
        Traceback (most recent call last):
        ValueError: there is no benchmark 'sort'; there are: sorting
    """
    for name in names:
        if name not in benchmarks:
            raise ValueError(f"there is no benchmark {name!r}; there are: {', '.join(benchmarks)}")


def fastest(*candidates: Callable[[], object], repeats: int = 9) -> list[Measured]:
    """Return the least seconds of each candidate, called in turns after one call each that is not counted.

    Every other turn goes backwards, so that no candidate always finds the caches as the same other one left them. The
    spread of a minimum is how far the median of the repeats lies above it, relatively.

    Examples:
        >>> few, many = fastest(lambda: sum(range(100)), lambda: sum(range(100_000)), repeats=3)
        >>> few < many, many.spread >= 0
        (True, True)
    """
    for candidate in candidates:
        candidate()
    seconds: list[list[float]] = [[] for _ in candidates]
    turn = list(zip(candidates, seconds, strict=True))
    for _ in range(repeats):
        turn.reverse()
        for candidate, taken in turn:
            start = time.perf_counter()
            candidate()
            taken.append(time.perf_counter() - start)
    return [Measured(min(taken), statistics.median(taken) / min(taken) - 1) for taken in seconds]
