"""The paper's experiments: `python -m paper mse`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from paper.commands.common import (
    ClientsOption,
    DataOption,
    OutputOption,
    RoundsOption,
    show_table,
)
from paper.reproduction.experiments import EXPERIMENTS
from paper.reproduction.lines import not_compared, write_record
from paper.reproduction.methods import FULL, QUICK, Scale, find_method
from paper.reproduction.runner import read_result, run_jobs

# What an experiment can change; the options of all experiments are the same.
_CHANGES = {
    "mse": ("bits", "epsilon", "dim", "method"),
    "regression": ("clients", "bits", "epsilon", "rounds", "dim", "method"),
    "bitwidth": ("clients", "bits", "epsilon", "rounds", "method"),
    "fashion-mnist": ("clients", "bits", "epsilon", "rounds", "method"),
    "cifar-10": ("clients", "bits", "epsilon", "rounds", "method"),
    "once": ("epsilon",),
}


def experiment_commands() -> dict[str, Callable[..., None]]:
    """The functions of all commands that run an experiment, by its name."""
    return {name: _experiment(name) for name in EXPERIMENTS}


def _experiment(name: str) -> Callable[..., None]:
    def experiment(
        quick: Annotated[
            bool,
            typer.Option("--quick", help="Run fewer seeds, dimensions and rounds."),
        ] = False,
        seeds: Annotated[
            int | None,
            typer.Option(min=1, help="The number of seeds (5; 1 with --quick)."),
        ] = None,
        clients: ClientsOption = None,
        bits: Annotated[
            int | None,
            typer.Option(min=1, help="The bit width b of the paper's methods."),
        ] = None,
        epsilon: Annotated[
            float | None, typer.Option(help="The ε of one message (3).")
        ] = None,
        rounds: RoundsOption = None,
        dim: Annotated[
            list[int] | None,
            typer.Option(min=2, help="Only this dimension; repeatable."),
        ] = None,
        method: Annotated[
            list[str] | None,
            typer.Option(
                metavar="KEY|NAME[:ARGUMENT=VALUE,...]",
                help="Run these methods instead; repeatable.",
            ),
        ] = None,
        processes: Annotated[
            int | None, typer.Option(min=1, help="The number of processes (the cores).")
        ] = None,
        data: DataOption = None,
        output: OutputOption = Path("reproduction"),
    ) -> None:
        scale = QUICK if quick else FULL
        if seeds is not None:
            scale = replace(scale, seeds=seeds)
        given = {
            "clients": clients,
            "bits": bits,
            "epsilon": epsilon,
            "rounds": rounds,
            "dim": dim,
            "method": method,
        }
        changes = {option: value for option, value in given.items() if value}
        for option in changes:
            if option not in _CHANGES[name]:
                raise typer.BadParameter(
                    f"--{option} means nothing to the experiment {name!r}"
                )
        _reproduce(name, _changed(scale, changes), changes, processes, data, output)

    return experiment


def _changed(scale: Scale, changes: Mapping[str, Any]) -> Scale:
    """Return the scale with what the options change."""
    fields: dict[str, Any] = {
        name: changes[name]
        for name in ("clients", "bits", "epsilon")
        if name in changes
    }
    if "bits" in changes:
        fields["bit_widths"] = (changes["bits"],)
    if "epsilon" in changes:
        fields |= {"once_epsilons": (changes["epsilon"],), "once_small_epsilons": ()}
    if "rounds" in changes:
        fields["rounds"] = tuple((kind, changes["rounds"]) for kind, _ in scale.rounds)
    if "dim" in changes:
        fields |= {
            "mse_dims": tuple(changes["dim"]),
            "regression_dims": tuple(changes["dim"]),
        }
    if "method" in changes:
        for method in changes["method"]:
            find_method(method)
        # Trainings are compared with Clean.
        chosen = tuple(dict.fromkeys(("clean", *changes["method"])))
        fields |= {"methods": chosen, "bitwidth_methods": chosen, "image_methods": ()}
    return replace(scale, **fields)


def _named(changes: Mapping[str, Any]) -> str:
    """Name what differs from the paper.

    Examples:
        >>> _named({"clients": 50, "method": ["sqkr", "sstq:bits=6"]})
        'clients = 50, method = sqkr and sstq:bits=6'
    """
    return ", ".join(
        f"{name} = {' and '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in changes.items()
    )


def _reproduce(
    name: str,
    scale: Scale,
    changes: Mapping[str, Any],
    workers: int | None,
    data: Path | None,
    output: Path,
) -> None:
    jobs = list(dict.fromkeys(EXPERIMENTS[name].jobs(scale)))
    results = output / "results"
    done = sum(read_result(job, results) is not None for job in jobs)
    typer.echo(f"{done} of {len(jobs)} pieces were done before", err=True)

    def finished(job: Any, seconds: float) -> None:
        nonlocal done
        done += 1
        typer.echo(
            f"{done} of {len(jobs)}: {job.path.with_suffix('')} took {seconds:.1f} s",
            err=True,
        )

    run_jobs(jobs, results, workers=workers, data=data, finished=finished)
    section = EXPERIMENTS[name].section(
        scale, {job: read_result(job, results) or {} for job in jobs}
    )
    if set(changes) - {"dim", "method"}:
        section = not_compared(section, f"NOT the paper's settings: {_named(changes)}")
    elif changes:
        section = replace(section, title=f"{section.title} ({_named(changes)})")
    write_record(section, output / name)
    show_table(
        section.title
        + (" (QUICK: fewer seeds, dimensions and rounds)" if scale.quick else ""),
        ["setting", "method", "ours", "compared", "paper", "verdict"],
        [
            [line.setting, line.label, f"{line.ours:.4g}"]
            + (
                [f"{line.compared:.4g}", f"{line.paper.value:g}", line.verdict]
                if line.paper
                else [""] * 3
            )
            for line in section.lines
        ],
        "compared: rescaled or shifted by Clean with the same seed, if the starting point matters.",
    )
    typer.echo(output / name)
