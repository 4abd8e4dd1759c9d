"""`sstq bench`: measures speed on this machine, and compares it with an earlier run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.common import ForceOption, check_output
from sstq.cli.terminal import live_line, note, show_table, warn
from sstq.cli.usage import check_usage

if TYPE_CHECKING:
    from benchmarks.speed import Change, Result, Run
    from benchmarks.speed.harness import Benchmark

__all__ = ["Compare", "Output", "bench", "run_benchmarks"]

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the results and facts about the machine as JSON.")
]
Compare = Annotated[Path | None, typer.Option(metavar="OLD.json", help="Compare with the results of an earlier run.")]

_COMPARED = "new/old: this run divided by the earlier one; * if they differ by more than the noise of both runs."
_MATTERS = ("processor", "cores", "threads", "kernels", "vector width")


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure fewer sizes and repeats, in about 20 seconds.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this measurement; repeatable.")
    ] = None,
    output: Output = None,
    compare: Compare = None,
    force: ForceOption = False,
) -> None:
    """Measure this machine: memory bandwidth, the transform, encoding, threads, aggregation and start-up.

    Candidates run in turns in one process and the fastest of their repeats counts, so that a busy machine disturbs
    little; ± is how far the median of the repeats lies above it. It takes about two minutes. When interrupted, it
    keeps what it has measured.

    Example: sstq bench --output bench.json
    """
    from benchmarks.speed import suite

    run_benchmarks(suite(quick), only or [], output, compare, quick, force=force)


def run_benchmarks(
    benchmarks: Mapping[str, Benchmark],
    names: Sequence[str],
    output: Path | None,
    compare: Path | None,
    quick: bool = False,
    *,
    force: bool = False,
) -> None:
    """Run the named benchmarks, or all of them, and print the table of each when it is done.

    The results are compared with the file `compare` and written to `output`, even if incomplete because a
    benchmark fails or is interrupted; `force` overwrites an existing file. `quick` is what the benchmarks
    were made with.
    """
    from benchmarks.speed.harness import check_names
    from benchmarks.speed.report import Run, read_run

    with check_usage():
        check_names(names, benchmarks)
    old = None if compare is None else read_run(compare)
    check_output(output, force)
    chosen = {name: benchmarks[name] for name in names or benchmarks}
    results: dict[str, list[Result]] = {}
    run = replace(Run.of_now(results, quick), complete=False)
    if old is not None:
        _say_what_differs(run, old)
    try:
        for name, benchmark in chosen.items():
            results[name] = []
            try:
                _measure(name, benchmark, results[name], len(results) - 1, len(chosen))
            finally:
                _show(name, benchmark, run, old)
        run = replace(run, complete=True)
    finally:
        _end(run, old, output)


def _measure(name: str, benchmark: Benchmark, results: list[Result], done: int, total: int) -> None:
    """Run a benchmark, adding to its results as they come, and print its remarks."""
    from benchmarks.speed import Result

    remarks = []
    # One line per benchmark: tables cannot be printed while the progress bar is shown.
    with live_line("Measuring", total) as show:
        show(done, name)
        for line in benchmark():
            if isinstance(line, Result):
                results.append(line)
                show(done, f"{name}: {line.what}")
            else:
                remarks.append(line.text)
    for text in remarks:
        note(f"{name}: {text}")


def _show(name: str, benchmark: Benchmark, run: Run, old: Run | None) -> None:
    """Print the table of a benchmark; its name heads the first column, because piped output has no titles."""
    from benchmarks.speed.harness import title_of

    changes = _changes(run, old)
    columns = [name, "measured", "±", "target", "", "note"] + ["new/old", ""] * (old is not None)
    rows = []
    for result in run.results[name]:
        spread = "" if result.spread is None else f"{100 * result.spread:.0f} %"
        row = [result.what, f"{result.figure:.3g} {result.unit}", spread, result.goal, result.verdict, result.note]
        if old is not None:
            change = changes.get((name, result.what))
            row += ["", ""] if change is None else [f"{change.ratio:.3g}", "*" * change.significant]
        rows.append(row)
    if rows:
        show_table(f"{name}: {title_of(benchmark)}", columns, rows, caption="" if old is None else _COMPARED)


def _changes(run: Run, old: Run | None) -> dict[tuple[str, str], Change]:
    from benchmarks.speed.report import compare

    return {} if old is None else compare(run, old)


def _say_what_differs(new: Run, old: Run) -> None:
    for fact in _MATTERS:
        if new.machine.get(fact) != old.machine.get(fact):
            warn(f"another machine: {fact} was {old.machine.get(fact)}, is {new.machine.get(fact)}")
    if new.quick != old.quick:
        which = ("the earlier run", "this one") if old.quick else ("this run", "the earlier one")
        warn(f"{which[0]} is --quick and {which[1]} is not: equal names may mean different amounts of work")
    if not old.complete:
        warn("the earlier run is incomplete: it was interrupted or failed")


def _end(run: Run, old: Run | None, output: Path | None) -> None:
    """Count the changes and write the run, unless it is empty."""
    from benchmarks.speed.report import write_run

    if not run.complete:
        warn(f"stopped in {list(run.results)[-1]}: this run is incomplete")
    if not any(run.results.values()):
        return
    if old is not None:
        changes = _changes(run, old)
        changed = sum(change.significant for change in changes.values())
        note(f"{changed} of {len(changes)} figures differ from those of {old.date} by more than the noise")
        if not changes:
            warn("the two runs have no figure in common")
    if output is not None:
        write_run(run, output)
        note(f"wrote {output}")
