"""Benchmark results as JSON, and comparing two runs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.harness import Measured, Result
from benchmarks.speed.machine import machine_facts
from sstq.files.atomic import atomic_file
from sstq.files.strict_json import read_json

__all__ = ["Change", "Run", "compare", "read_run", "write_run"]

FORMAT, VERSION = "sstq-bench", 2
# Even with no spread at all two runs differ: by the placement of memory, the temperature, the clock.
LEAST_NOISE = 0.05


@dataclass(frozen=True)
class Run:
    """The results of one run, by benchmark, and facts about the machine.

    Attributes:
        results: the lines of each benchmark's table.
        machine: facts about the machine.
        date: when the run started.
        quick: whether it has fewer sizes and repeats; a line with the same name may then mean less work.
        complete: whether everything requested was measured; False if it was interrupted or failed.
    """

    results: Mapping[str, Sequence[Result]]
    machine: Mapping[str, Any]
    date: str
    quick: bool = False
    complete: bool = True

    @classmethod
    def of_now(cls, results: Mapping[str, Sequence[Result]], quick: bool = False) -> Run:
        """Create a run on this machine, with the current time.

        Examples:
            >>> Run.of_now({"sorting": [Result("ints", 2.0, "µs")]}).machine["cores"] > 0
            True
        """
        return cls(results, machine_facts(), datetime.now(UTC).isoformat(timespec="seconds"), quick)


@dataclass(frozen=True)
class Change:
    """The change of a figure between two runs.

    Attributes:
        ratio: new divided by old.
        noise: the relative difference that may be noise: the spreads of both runs together, at
            least 5 %; None if it was not timed in repeats.
    """

    ratio: float
    noise: float | None

    @property
    def significant(self) -> bool:
        """Whether the figures differ by more than noise.

        Examples:
            >>> Change(ratio=1.04, noise=0.05).significant, Change(ratio=0.5, noise=0.3).significant
            (False, True)
        """
        most = 1 + (LEAST_NOISE if self.noise is None else self.noise)
        return not 1 / most <= self.ratio <= most


def compare(new: Run, old: Run) -> dict[tuple[str, str], Change]:
    """Return the changes of all figures that both runs have, by benchmark and line.

    Examples:
        >>> old, new = (Run({"sorting": [Result("ints", Measured(t, 0.01), "µs")]}, {}, "") for t in (2.0, 3.0))
        >>> change = compare(new, old)["sorting", "ints"]
        >>> change.ratio, change.significant
        (1.5, True)
    """
    before = {(name, r.what, r.unit): r for name, results in old.results.items() for r in results}
    changes = {}
    for name, results in new.results.items():
        for result in results:
            other = before.get((name, result.what, result.unit))
            if other is not None and other.figure > 0 and result.figure > 0:
                spreads = (result.spread, other.spread)
                noise = None if None in spreads else max(LEAST_NOISE, sum(s for s in spreads if s is not None))
                changes[name, result.what] = Change(float(result.figure) / float(other.figure), noise)
    return changes


def write_run(run: Run, path: str | os.PathLike[str]) -> None:
    """Write a run as JSON, one line per result, completely or not at all.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_run(Run.of_now({"sorting": [Result("ints", 2.0, "µs")]}), f"{folder}/bench.json")
        ...     read_run(f"{folder}/bench.json").results["sorting"][0].figure
        2.0
    """
    results = [
        {"benchmark": name, "spread": result.spread} | asdict(result) | {"figure": float(result.figure)}
        for name, lines in run.results.items()
        for result in lines
    ]
    facts = {"format": FORMAT, "version": VERSION, "date": run.date, "quick": run.quick, "complete": run.complete}
    as_json = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    head = as_json(facts | {"machine": run.machine}, indent=2).removesuffix("\n}")
    lines = ",\n".join(f"    {as_json(result)}" for result in results)
    with atomic_file(path) as file:
        file.write(f'{head},\n  "results": [\n{lines}\n  ]\n}}\n'.encode())


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run that `write_run` wrote; ValueError for anything else."""
    name = os.fspath(path)
    try:
        document = read_json(Path(path).read_bytes(), booleans=True)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{name} must be written by sstq bench: its format is not {FORMAT!r}")
    if document.get("version") != VERSION:
        raise ValueError(
            f"{name} has version {document.get('version')} of the format; this library reads version {VERSION}"
        )
    try:
        return _run_of(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is incomplete or malformed: {error!r}") from error


def _run_of(document: dict[str, Any]) -> Run:
    results: dict[str, list[Result]] = {}
    for line in _checked(document, "results", list):
        if not isinstance(line, dict):
            raise TypeError(f"a result must be an object, got {line!r}")
        figure, spread, target = (_number(line, key) for key in ("figure", "spread", "target"))
        if figure is None or (spread is not None and spread < 0):
            raise ValueError(f"figure must be a number and spread at least 0, got {figure} and {spread}")
        what, unit, note = (_checked(line, key, str) for key in ("what", "unit", "note"))
        figure = figure if spread is None else Measured(figure, spread)
        read = Result(what, figure, unit, note, target, _checked(line, "at_most", bool))
        results.setdefault(_checked(line, "benchmark", str), []).append(read)
    date, machine = _checked(document, "date", str), _checked(document, "machine", dict)
    return Run(results, machine, date, _checked(document, "quick", bool), _checked(document, "complete", bool))


def _checked(holder: dict[str, Any], key: str, kind: type) -> Any:
    value = holder[key]
    if not isinstance(value, kind):
        raise TypeError(f"{key} must be of type {kind.__name__}, got {value!r}")
    return value


def _number(line: dict[str, Any], key: str) -> float | None:
    value = line[key]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key} must be a finite number, got {value!r}")
    return float(value)
