"""`sstq bench`: speed on this machine, and whether it has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.common import require_folder_of
from sstq.cli.terminal import live_line, note, show_table, warn

if TYPE_CHECKING:
    from sstq.bench import Change, Result, Run
    from sstq.bench.harness import Benchmark

__all__ = ["bench", "run_benchmarks"]

_COMPARED = "new/old: this run over the other; * where they differ by more than the noise of both runs."
_MATTERS = ("processor", "cores", "kernels", "vector width")


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats: about 20 seconds.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this measurement; may be given several times.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the results and facts of the machine as JSON.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="OLD.json", help="Show the ratios of this run to an earlier one's results.")
    ] = None,
) -> None:
    """Measure this machine: memory bandwidth, the transform, encoding, threads, aggregation and start-up.

    Candidates run in turns in one process and count with the least of their repeats, so that a busy machine disturbs
    little; ± is how far the median of the repeats lies above it. The whole takes about two minutes.

    Example: sstq bench --output bench.json
    """
    from sstq.bench import suite

    run_benchmarks(suite(quick), only or [], output, compare)


def run_benchmarks(
    benchmarks: Mapping[str, Benchmark], names: Sequence[str], output: Path | None, compare: Path | None
) -> None:
    """Run the named benchmarks, or all of them; print a table each, write the results and compare them."""
    from sstq.bench.harness import check_names, title_of
    from sstq.bench.report import Run, read_run, write_run
    from sstq.bench.report import compare as compare_runs

    check_names(names, benchmarks)
    old = None if compare is None else read_run(compare)
    if output is not None:
        require_folder_of(output)
    chosen = list(names) or list(benchmarks)
    results: dict[str, list[Result]] = {name: [] for name in chosen}
    with live_line("Measuring", len(chosen)) as show:
        for done, name in enumerate(chosen):
            show(done, name)
            for result in benchmarks[name]():
                results[name].append(result)
                show(done, f"{name}: {result.what}")
    run = Run.of_now(results)
    changes = {} if old is None else compare_runs(run, old)
    for name in chosen:
        _show(f"{name}: {title_of(benchmarks[name])}", name, results[name], changes)
    if old is not None:
        _say_what_differs(run, old, len(changes), sum(change.significant for change in changes.values()))
    if output is not None:
        write_run(run, output)
        note(f"wrote {output}")


def _show(title: str, name: str, results: list[Result], changes: Mapping[tuple[str, str], Change]) -> None:
    columns = ["what", "measured", "±", "target", "", "note"] + ["new/old", ""] * bool(changes)
    rows = []
    for result in results:
        spread = "" if result.spread is None else f"{100 * result.spread:.0f} %"
        row = [result.what, f"{result.figure:.3g} {result.unit}", spread, result.goal, result.verdict, result.note]
        if changes:
            change = changes.get((name, result.what))
            row += ["", ""] if change is None else [f"{change.ratio:.3g}", "*" * change.significant]
        rows.append(row)
    show_table(title, columns, rows, caption=_COMPARED if changes else "")


def _say_what_differs(new: Run, old: Run, compared: int, changed: int) -> None:
    for fact in _MATTERS:
        if new.machine.get(fact) != old.machine.get(fact):
            warn(f"another machine: {fact} was {old.machine.get(fact)}, is {new.machine.get(fact)}")
    note(f"{changed} of {compared} figures differ from those of {old.date} by more than noise")
