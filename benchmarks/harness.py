"""Timing that is robust on a busy machine: interleaved repeats, the minimum of each, ratios within one process.

A minimum comes with the spread of its repeats, and what is computed from minima carries the spreads along, so that a
later run can distinguish a change from noise.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

from sstq.files.atomic import atomic_file

FULL = os.environ.get("SSTQ_BENCHMARK_FULL") == "1"
"""Whether to measure what takes long."""


class Measured(float):
    """A measured number and the relative spread of its repeats; products and quotients add the spreads up."""

    spread: float

    def __new__(cls, value: float, spread: float = 0.0) -> Measured:  # noqa: D102
        made = super().__new__(cls, value)
        made.spread = spread
        return made

    @classmethod
    def least_of(cls, repeats: Sequence[float]) -> Measured:
        """Return the least of the repeats; its spread is how far their median lies above it, relatively."""
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
    """One line of a benchmark's table: a measured figure and, if there is one, its target (at least, or at most)."""

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
        return (
            ""
            if self.target is None
            else f"{'≤' if self.at_most else '≥'} {self.target:g}"
        )


@dataclass(frozen=True)
class Remark:
    """A remark about what a benchmark could not measure here, and why."""

    text: str


Benchmark = Callable[[], Iterable[Result | Remark]]


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a benchmark under its function's name; the first line of its docstring titles the table."""
    BENCHMARKS[function.__name__] = function
    return function


def in_turns(*clocks: Callable[[], float], repeats: int) -> list[list[float]]:
    """Return the seconds of each clock in every turn, after one uncounted call each.

    Every other turn runs in reverse order, so that no clock always follows the same other clock.

    Args:
        clocks: functions that do their work and return the seconds to count.
        repeats: the number of turns.
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
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fastest(*candidates: Callable[[], object], repeats: int = 9) -> list[Measured]:
    """Return the least seconds of each candidate, called in turns after one uncounted call each."""
    clocks = [partial(seconds_of, candidate) for candidate in candidates]
    return [Measured.least_of(taken) for taken in in_turns(*clocks, repeats=repeats)]


def run_python(*arguments: str, **variables: str) -> str:
    r"""Run a new interpreter and return its output; ChildProcessError, with the last line of its errors, if it fails.

    Args:
        arguments: the arguments of the interpreter.
        variables: environment variables, in addition to those of this process.
    """
    done = subprocess.run(  # noqa: S603 (this interpreter, with our own arguments)
        [sys.executable, *arguments],
        capture_output=True,
        check=False,
        text=True,
        env=os.environ | variables,
    )
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ChildProcessError(
            f"python {' '.join(arguments)} ended with code {done.returncode}: {complaint}"
        )
    return done.stdout


def memory_of(process: int | str = "self", what: str = "VmRSS") -> int:
    """Return the bytes that a process holds, as Linux counts them; the peak is VmHWM.

    The peak of `resource` would be that of the parent, if that was larger.
    """
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return 1024 * int(status.split(f"{what}:")[1].split()[0])


def machine_facts() -> dict[str, str | int]:
    """Return what figures depend on: the processor, the cores and threads, and the versions."""
    from sstq.kernels.threads import core_count, thread_count

    facts: dict[str, str | int] = {
        "processor": platform.processor() or platform.machine()
    }
    with suppress(OSError):
        names = re.findall(
            r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8")
        )
        facts |= {"processor": names[0]} if names else {}
    facts |= {
        "cores": core_count(),
        "threads": thread_count(),
        "python": platform.python_version(),
    }
    return facts | {
        name: metadata.version(name) for name in ("sstq", "numpy", "scipy", "numba")
    }


def write_run(results: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Write the results of a run as JSON, with the facts about the machine."""
    lines = [
        {
            "benchmark": name,
            "what": line.what,
            "figure": float(line.figure),
            "unit": line.unit,
            "spread": line.spread,
        }
        for name, table in results.items()
        for line in table
    ]
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "results": lines,
    }
    with atomic_file(path) as file:
        file.write(json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n")
