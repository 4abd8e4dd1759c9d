"""`sstq reproduce`: reproduces the paper's figures and tables."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.terminal import live_line, note, show_table, warn
from sstq.cli.usage import check_usage

if TYPE_CHECKING:
    from paper.reproduction import Job, Scale, Section

__all__ = ["reproduce"]

_ALL = "all"


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(metavar="[all|mse|regression|bitwidth|fashion-mnist|cifar-10|once|tables]", help="Which."),
    ] = _ALL,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run fewer seeds, dimensions and rounds, in about two minutes on two cores.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="The number of seeds. [dim]\\[default: 5; 1 with --quick][/dim]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="The number of parallel processes. [dim]\\[default: the number of cores][/dim]")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Read the data sets from this folder, or one folder per data set in it, instead of the cache."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write everything to this folder.")] = Path(
        "reproduction"
    ),
) -> None:
    """Run the paper's experiments and compare each number with the paper's.

    Writes report.html, one page with all tables and pictures, and one folder per experiment with CSV and
    PNG files. Finished pieces are kept in the folder: to resume an interrupted run, run the same command
    again; more seeds add to the existing ones. The image experiments need their data sets: sstq data fetch NAME.
    The experiment `once` is not in the paper: it measures classifiers from people who each answer once.

    Example: sstq reproduce all --quick --output reproduction
    """
    from sstq.canvas import require_matplotlib
    from sstq.checks import check_number, check_option
    from sstq.kernels.threads import core_count
    from paper.reproduction import EXPERIMENTS, FULL, QUICK, read_result, run_jobs, write_report

    require_matplotlib()
    scale = QUICK if quick else FULL
    with check_usage():
        check_option("experiment", experiment, (_ALL, *EXPERIMENTS))
        if seeds is not None:
            scale = replace(scale, seeds=check_number("--seeds", seeds, 1, 1000, integer=True))
        if workers is not None:
            check_number("--workers", workers, 1, 1024, integer=True)
    names, missing = _available(experiment, data)
    output.mkdir(parents=True, exist_ok=True)
    results_folder = output / "results"
    jobs = list(dict.fromkeys(job for name in names for job in EXPERIMENTS[name].jobs(scale)))
    done = [job for job in jobs if read_result(job, results_folder) is not None]
    if done:
        note(f"{len(done)} of {len(jobs)} pieces were done before")
    start = time.monotonic()
    with _progress(jobs, done, workers or core_count()) as finished:
        run_jobs(jobs, results_folder, workers=workers, data=data, finished=finished)
    time_taken = _time_taken(time.monotonic() - start, len(jobs), len(done), core_count())
    results = {job: read_result(job, results_folder) or {} for job in jobs}
    sections = [EXPERIMENTS[name].section(scale, results) for name in names]
    page = write_report(sections, output, scale, missing=missing, time_taken=time_taken)
    _show(sections, scale)
    note(time_taken)
    typer.echo(page)


def _available(experiment: str, data: Path | None) -> tuple[list[str], list[str]]:
    """Return the experiments to run; with `all`, those without their data set are left out, with the reason."""
    from paper.datasets import DatasetUnavailableError, load
    from paper.reproduction import EXPERIMENTS
    from paper.reproduction.jobs import data_folder

    if experiment != _ALL:
        return [experiment], []
    names, missing = [], []
    for name, chosen in EXPERIMENTS.items():
        try:
            if chosen.dataset is not None:
                load(chosen.dataset, data_folder(chosen.dataset, data))
        except DatasetUnavailableError as error:
            warn(f"{name} is left out: {error}")
            missing.append(f"{name}, because its data set was not found; run `sstq data fetch {name}`.")
        else:
            names.append(name)
    return names, missing


@contextmanager
def _progress(jobs: Sequence[Job], done: Sequence[Job], workers: int) -> Iterator[Callable[[Job, float], None]]:
    """Show the progress; yields a function that takes each finished piece and its seconds."""
    total, before = sum(job.cost for job in jobs), sum(job.cost for job in done)
    count, cost, start = len(done), before, time.monotonic()

    with live_line("Reproducing", total, estimate=False) as show:

        def finished(job: Job, seconds: float) -> None:
            nonlocal count, cost
            count, cost = count + 1, cost + job.cost
            left = _seconds_left(time.monotonic() - start, cost - before, total - cost, workers)
            remains = f"about {left / 60:.0f} min" if left >= 60 else "less than a minute"
            name = job.path.with_suffix("")
            show(cost, f"{count} of {len(jobs)} pieces, {name} took {seconds:.1f} s, {remains} left")

        show(cost, f"{count} of {len(jobs)} pieces")
        yield finished


# This many expected seconds count as done at the expected speed: the first few pieces are small and start slowly.
_TRUSTED_SECONDS = 30.0


def _seconds_left(elapsed: float, cost_done: float, cost_left: float, workers: int) -> float:
    """Return the remaining time, from the expected costs of the pieces and the time taken so far."""
    seconds_per_cost = (elapsed + _TRUSTED_SECONDS / workers) / (cost_done + _TRUSTED_SECONDS)
    return cost_left * seconds_per_cost


def _time_taken(seconds: float, pieces: int, done_before: int, cores: int) -> str:
    """Say how long the run took.

    Examples:
        >>> _time_taken(4503.0, 500, 0, 2)
        'All 500 pieces took 75 min on 2 cores.'
        >>> _time_taken(33.0, 500, 480, 2)
        '20 of 500 pieces took 0.6 min on 2 cores; the others were done by earlier runs.'
    """
    minutes = f"{seconds / 60:.{0 if seconds > 600 else 1}f} min on {cores} core{'s' if cores > 1 else ''}"
    if done_before:
        return f"{pieces - done_before} of {pieces} pieces took {minutes}; the others were done by earlier runs."
    return f"All {pieces} pieces took {minutes}."


def _show(sections: list[Section], scale: Scale) -> None:
    rows = [
        [
            section.name,
            line.setting,
            line.label,
            f"{line.ours:.4g}",
            f"{line.compared:.4g}",
            f"{line.paper.value:g}",
            line.verdict,
        ]
        for section in sections
        for line in section.lines
        if line.paper is not None and line.verdict
    ]
    once = [
        [
            line.setting,
            line.label,
            f"{line.ours:.1f} %",
            "" if math.isnan(line.half_width) else f"{line.half_width:.1f}",
        ]
        for section in sections
        if section.name == "once"
        for line in section.lines
    ]
    if once:
        show_table(
            "One message per person, once",
            ["setting", "method", "accuracy", "±"],
            once,
            caption="±: half a 95 % interval over seeds.",
        )
    if rows:
        title = "The paper's numbers and ours" + (" (QUICK: fewer seeds, dimensions and rounds)" if scale.quick else "")
        show_table(
            title,
            ["experiment", "setting", "method", "ours", "compared", "paper", "verdict"],
            rows,
            caption="compared: rescaled or shifted by Clean with the same seed, if the starting point matters.",
        )
