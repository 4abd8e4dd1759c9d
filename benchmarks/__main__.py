"""Run benchmarks by name, or all of them."""

from pathlib import Path
from typing import Annotated

import typer

# Importing a module registers its benchmarks.
import benchmarks.densities
import benchmarks.flower
import benchmarks.frames
import benchmarks.kernels
import benchmarks.levels
import benchmarks.pipeline
import benchmarks.strata
import benchmarks.theory
import benchmarks.training
import benchmarks.tuning  # noqa: F401
from benchmarks.harness import BENCHMARKS
from sstq.cli.bench import run_benchmarks


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(BENCHMARKS)}; all if none is given.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results and facts of the machine as JSON.")] = None,
    compare: Annotated[Path | None, typer.Option(help="Show the ratios to the results of an earlier run.")] = None,
) -> None:
    """Run benchmarks and print a table each."""
    try:
        run_benchmarks(BENCHMARKS, names or [], json, compare)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error


typer.run(main)
