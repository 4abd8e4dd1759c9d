"""Timing that is robust on a busy machine: interleaved repeats, the minimum of each, ratios within one process.

A minimum comes with the spread of its repeats, and what is computed from minima carries the spreads along, so that a
later run can distinguish a change from noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sstq.checks import did_you_mean

__all__ = ["Benchmark", "Measured", "Remark", "Result", "check_names", "fastest", "in_turns", "seconds_of", "title_of"]


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

    @classmethod
    def least_of(cls, repeats: Sequence[float]) -> Measured:
        """Return the least of the repeats; its spread is how far their median lies above it, relatively.

        Examples:
            >>> Measured.least_of([2.0, 4.0, 3.0]).spread
            0.5
        """
        least = min(repeats)
        return cls(least, statistics.median(repeats) / least - 1)

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
    """One line of a benchmark's table: a measured figure and, if there is one, its target (at least, or at most).

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


@dataclass(frozen=True)
class Remark:
    """A remark about what a benchmark could not measure here, and why.

    Examples:
        >>> Remark("sorting on two cores: there is one").text
        'sorting on two cores: there is one'
    """

    text: str


Benchmark = Callable[[], Iterable[Result | Remark]]


def title_of(benchmark: Benchmark) -> str:
    """Return the first line of a benchmark's docstring.

    Examples:
        >>> def sorting(quick):
        ...     '''Sorting, by size.'''
        >>> title_of(partial(sorting, True))
        'Sorting, by size.'
    """
    function = benchmark.func if isinstance(benchmark, partial) else benchmark
    return (function.__doc__ or "").split("\n", 1)[0]


def check_names(names: Iterable[str], benchmarks: Mapping[str, Benchmark]) -> None:
    """Raise ValueError for unknown names of benchmarks.

    Examples:
        >>> check_names(["sort"], {"sorting": list})
        Traceback (most recent call last):
        ValueError: name must be one of sorting, got 'sort'; did you mean 'sorting'?
    """
    for name in names:
        if name not in benchmarks:
            close = did_you_mean(name, benchmarks)
            raise ValueError(f"name must be one of {', '.join(benchmarks)}, got {name!r}{close}")


def in_turns(*clocks: Callable[[], float], repeats: int) -> list[list[float]]:
    """Return the seconds of each clock in every turn, after one uncounted call each.

    Every other turn runs in reverse order, so that no clock always follows the same other clock.

    Args:
        clocks: functions that do their work and return the seconds to count.
        repeats: the number of turns.

    Examples:
        >>> in_turns(lambda: 1.0, lambda: 2.0, repeats=3)
        [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    for clock in clocks:
        clock()
    seconds: list[list[float]] = [[] for _ in clocks]
    turn = list(zip(clocks, seconds, strict=True))
    for _ in range(repeats):
        turn.reverse()
        for clock, taken in turn:
            taken.append(clock())
    return seconds


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds that one call takes.

    Examples:
        >>> seconds_of(lambda: sum(range(1000))) > 0
        True
    """
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fastest(*candidates: Callable[[], object], repeats: int = 9) -> list[Measured]:
    """Return the least seconds of each candidate, called in turns after one uncounted call each.

    Examples:
        >>> few, many = fastest(lambda: sum(range(100)), lambda: sum(range(100_000)), repeats=3)
        >>> few < many, many.spread >= 0
        (True, True)
    """
    clocks = [partial(seconds_of, candidate) for candidate in candidates]
    return [Measured.least_of(taken) for taken in in_turns(*clocks, repeats=repeats)]
