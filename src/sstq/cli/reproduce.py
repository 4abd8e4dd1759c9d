"""`sstq reproduce`: the paper's figures and tables again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.terminal import live_line, note, show_table, warn
from sstq.cli.usage import check_usage

if TYPE_CHECKING:
    from sstq.reproduction import Job, Scale, Section

__all__ = ["reproduce"]

_ALL = "all"


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(metavar="[all|mse|regression|bitwidth|fashion-mnist|cifar-10|tables]", help="Which."),
    ] = _ALL,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, dimensions and rounds: two minutes on two cores.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds. [dim]\\[default: 5; 1 with --quick][/dim]")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at a time. [dim]\\[default: the cores][/dim]")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="A folder with the data sets, or with one folder for each, instead of the cache."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for everything.")] = Path("reproduction"),
) -> None:
    """Run the paper's experiments and set each number beside the paper's.

    Writes report.html, one page with all tables and pictures, and below it a folder for each experiment with CSV and
    PNG files. Every finished piece is kept in the folder: a run that was interrupted goes on when the same command is
    run again, and more seeds add to those that are there. The images need their data sets: sstq data fetch.

    Example: sstq reproduce all --quick --output reproduction
    """
    from sstq.reproduction import EXPERIMENTS, FULL, QUICK, read_result, run_jobs, write_report
    from sstq.schemes.base import check_number, check_option

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
        note(f"{len(done)} of {len(jobs)} pieces are done already")
    with _Progress(len(done), len(jobs)) as progress:
        run_jobs(jobs, results_folder, workers=workers, data=data, finished=progress.finished)
    results = {job: read_result(job, results_folder) or {} for job in jobs}
    sections = [EXPERIMENTS[name].section(scale, results) for name in names]
    page = write_report(sections, output, scale, missing=missing)
    _show(sections, scale)
    typer.echo(page)


def _available(experiment: str, data: Path | None) -> tuple[list[str], list[str]]:
    """Return the experiments to run; of all, those without their data set are left out, with the reason."""
    from sstq.datasets import DatasetUnavailableError, load
    from sstq.reproduction import EXPERIMENTS
    from sstq.reproduction.jobs import data_folder

    if experiment != _ALL:
        return [experiment], []
    names, missing = [], []
    for name, chosen in EXPERIMENTS.items():
        try:
            if chosen.dataset is not None:
                load(chosen.dataset, data_folder(chosen.dataset, data))
        except DatasetUnavailableError as error:
            warn(f"{name} is left out: {error}")
            missing.append(f"{name}, because its data set was not found; sstq data fetch {name} gets it.")
        else:
            names.append(name)
    return names, missing


class _Progress:
    """A live line on a terminal, and a remark for each finished piece."""

    def __init__(self, done: int, total: int) -> None:
        self._done, self._new, self._total = done, 0, total
        self._start = time.monotonic()

    def __enter__(self) -> _Progress:
        self._line = live_line("Reproducing", self._total)
        self._show = self._line.__enter__()
        self._show(self._done, "")
        return self

    def __exit__(self, *error: object) -> None:
        self._line.__exit__(None, None, None)

    def finished(self, job: Job, seconds: float) -> None:
        self._done, self._new = self._done + 1, self._new + 1
        left = (time.monotonic() - self._start) / self._new * (self._total - self._done)
        text = f"{job.path.with_suffix('')} took {seconds:.1f} s, about {left / 60:.0f} min left"
        self._show(self._done, text)
        note(f"{self._done}/{self._total} {text}")


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
    if rows:
        title = "The paper's numbers and ours" + (" (QUICK: fewer seeds, dimensions and rounds)" if scale.quick else "")
        show_table(
            title,
            ["experiment", "setting", "method", "ours", "compared", "paper", "verdict"],
            rows,
            caption="compared: rescaled or shifted by Clean of the same seed, where the start matters.",
        )
