"""Timing that survives a busy machine: interleaved repeats, the minimum of each, ratios within one process."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Result:
    """One line of a benchmark's table: a measured figure and, where there is one, its target (at least, or at most)."""

    what: str
    figure: float
    unit: str
    note: str = ""
    target: float | None = None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is met, in rich's markup."""
        if self.target is None:
            return ""
        met = self.figure <= self.target if self.at_most else self.figure >= self.target
        return "[green]met[/]" if met else "[red]missed[/]"

    @property
    def goal(self) -> str:
        """The target in words."""
        return "" if self.target is None else f"{'≤' if self.at_most else '≥'} {self.target:g}"


Benchmark = Callable[[], Iterable[Result]]
_registry: dict[str, Benchmark] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a benchmark under its function's name; its docstring titles the table."""
    _registry[function.__name__] = function
    return function


def fastest(*candidates: Callable[[], object], repeats: int = 9) -> list[float]:
    """Return the least seconds of each candidate, called in turns after one call each that is not counted."""
    for candidate in candidates:
        candidate()
    seconds = [float("inf")] * len(candidates)
    for _ in range(repeats):
        for position, candidate in enumerate(candidates):
            start = time.perf_counter()
            candidate()
            seconds[position] = min(seconds[position], time.perf_counter() - start)
    return seconds


def run(names: list[str]) -> None:
    """Run the named benchmarks, or all of them, and print a table each."""
    unknown = sorted(set(names) - set(_registry))
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are: {', '.join(_registry)}")
    console = Console()
    for name in names or _registry:
        title = (_registry[name].__doc__ or name).splitlines()[0]
        table = Table("", "measured", "target", "", "note", title=f"{name}: {title}", title_justify="left")
        for result in _registry[name]():
            figure = f"{result.figure:.3g} {result.unit}"
            table.add_row(result.what, figure, result.goal, result.verdict, result.note)
        console.print(table)
