"""Run benchmarks by name, or all of them."""

from typing import Annotated

import typer

# Importing a module registers its benchmarks.
import benchmarks.clients
import benchmarks.clients_js
import benchmarks.comparison
import benchmarks.coverage
import benchmarks.densities
import benchmarks.flower
import benchmarks.frames
import benchmarks.groups
import benchmarks.iterations
import benchmarks.kernels
import benchmarks.levels
import benchmarks.more_levels
import benchmarks.peers
import benchmarks.pipeline
import benchmarks.service
import benchmarks.shuffled
import benchmarks.shuffler
import benchmarks.shuffling
import benchmarks.strata
import benchmarks.theory
import benchmarks.training
import benchmarks.trust
import benchmarks.tuning  # noqa: F401
from benchmarks.command import Compare, Output, run_benchmarks
from benchmarks.harness import BENCHMARKS
from sstq.cli.common import ForceOption
from sstq.cli.terminal import complain


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(BENCHMARKS)}; all if none is given.")] = None,
    output: Output = None,
    compare: Compare = None,
    force: ForceOption = False,
) -> None:
    """Run benchmarks and print a table each."""
    try:
        run_benchmarks(BENCHMARKS, names or [], output, compare, force=force)
    except BrokenPipeError:
        raise  # the reader of our output went away, which typer settles
    except (ValueError, OSError, ImportError) as error:
        complain(error)
        raise typer.Exit(1) from error


typer.run(main)
