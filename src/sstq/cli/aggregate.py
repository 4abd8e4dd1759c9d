"""`sstq aggregate`: estimates the mean and its error from message files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli import groups, private_groups
from sstq.cli.common import (
    ForceOption,
    MechanismOption,
    VerboseOption,
    check_output,
    read_mechanism,
    summarize_mechanism,
    warn_of_seed,
)
from sstq.cli.numbers import PICTURES, safe_figure
from sstq.cli.private_groups import GroupNamesOption, read_group_names
from sstq.cli.terminal import complain, note, progress, show_facts, warn
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import Aggregator, Estimate, GroupedAggregator, Mechanism

__all__ = ["aggregate"]

_RESULTS = ("mean.npy", "stderr.npy", "summary.json")


def aggregate(
    messages: Annotated[
        list[Path],
        typer.Argument(metavar="MESSAGES...", help="Aggregate these message files, framed or Parquet (sstq encode)."),
    ],
    mechanism: MechanismOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Write mean.npy (means.npy and groups.csv), stderr.npy and summary.json to this folder.",
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(help="Save the progress in this file. [dim]\\[default: state.npz in the output folder][/dim]"),
    ] = None,
    overall: Annotated[
        bool, typer.Option("--overall", help="Estimate one mean of all messages, ignoring public labels.")
    ] = False,
    group_names: GroupNamesOption = None,
    png: Annotated[Path | None, typer.Option(help="Draw the means of the groups (.png, .svg or .pdf).")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Continue without files that are refused; the exit code is still 1.")
    ] = False,
    verbose: VerboseOption = False,
    force: ForceOption = False,
) -> None:
    """Estimate the mean and its standard error from message files.

    The state is saved after every file, and files already counted are skipped. After an interruption, or when more
    files have arrived, run the same command again. A file is added as a whole or not at all. The result is the same
    bit for bit, whatever the order of the files and however messages are spread over them. Results are overwritten only
    if the state that they come from exists, or with --force.

    The measured error norm is the norm of the standard errors, which come from the messages themselves; `sstq inspect`
    predicts it for typical vectors. Mechanisms that need a trusted aggregator (CSGM) close the round here:
    noise is added once, running the command again gives the same mean, and further files are refused; the
    measured error norm is then a bound computed from public numbers.

    Messages with public labels (sstq encode --by) give one mean per group: means.npy and stderr.npy have one row per
    line of groups.csv, which has the group's clients, the norm of its mean, the error, and a mark. A group is
    marked "too few" if it has fewer than 30 clients, and "within error" unless its mean is longer than both the radius
    of its 95 % region and √2 times its error. It is still listed. Messages with a private group (GroupUnit) give
    shares, sums and means of every group in groups.npz, and one line per group in groups.csv.

    Example: sstq aggregate day1.sstq day2.sstq --mechanism mechanism.json --output result
    """
    from sstq.aggregation import Aggregator

    shared = read_mechanism(mechanism)
    check_output(png, force, "--png")
    if png is not None and png.suffix.lower() not in PICTURES:
        raise WrongUsage(f"--png {png}: the name must end in {', '.join(PICTURES)}")
    output.mkdir(parents=True, exist_ok=True)
    state_path = output / "state.npz" if state is None else state
    check_output(state_path, True, "--state")
    resumed = state_path.exists()
    grouped = not overall and _labelled(messages, state_path if resumed else None)
    if overall and resumed and groups.is_grouped_state(state_path):
        raise WrongUsage(f"--overall: {state_path} holds one mean per group; choose another --output or --state")
    if png is not None and not grouped:
        raise WrongUsage("--png draws the means of groups; these messages have no public labels (sstq encode --by)")
    names = read_group_names(group_names, shared)
    if png is not None:
        groups.require_pictures()
    single = _RESULTS if shared.groups is None else (*_RESULTS, *private_groups.RESULTS)
    for name in groups.RESULTS if grouped else single:
        check_output(output / name, force or resumed)
    aggregator: Aggregator[Any] | GroupedAggregator
    if grouped:
        aggregator = groups.start(shared, state_path if resumed else None)
    else:
        aggregator = shared.load_aggregator(state_path) if resumed else shared.aggregator()
    bad = _add_files(aggregator, messages, state_path, skip_bad, overall)
    if isinstance(aggregator, Aggregator):
        _report(shared, aggregator, output, state_path, names, verbose)
    else:
        groups.report(shared, aggregator, output, png)
    if bad:
        complain(f"{len(bad)} of {len(messages)} files were refused and are not in the mean:")
        for error in bad:
            complain(error)
        raise typer.Exit(1)


def _labelled(paths: list[Path], state: Path | None) -> bool:
    """Return whether there is one mean per group, as in the state, or else as in the first complete file."""
    from sstq.messages.files import describe_messages

    if state is not None:
        return groups.is_grouped_state(state)
    for path in paths:
        try:
            return describe_messages(path).label_column is not None
        except (ValueError, OSError):
            continue  # it is refused, with the reason, later
    return False


def _report(
    shared: Mechanism,
    aggregator: Aggregator[Any],
    output: Path,
    state_path: Path,
    names: list[str] | None,
    verbose: bool,
) -> None:
    """Write the mean and its summary, and print the summary."""
    from sstq import GroupEstimate

    estimate = aggregator.mean()
    if shared.trust == "aggregator":
        # The mean has closed the round: only its noisy sums are kept, so the same mean comes out again.
        aggregator.save(state_path)
    summary = _summary(shared, estimate)
    _write_results(output, estimate, summary)
    privacy = {name: safe_figure(summary[name]) for name in ("epsilon", "privacy_loss") if summary[name] is not None}
    facts = [(name.replace("_", " "), value) for name, value in (summary | privacy).items()]
    show_facts(str(output), facts, verbose=verbose)
    if isinstance(estimate, GroupEstimate):
        private_groups.report(estimate, output, names)
    if estimate.note:
        warn(estimate.note)
        same = f"--name {shared.name} --dim {shared.dim} --epsilon {shared.epsilon!r} --clip {shared.clip!r}"
        several = f" --set messages={shared.messages}" if shared.messages > 1 else ""
        note(f"for the next round: sstq spec {same} --clients {round(estimate.people)}{several} --output next.json")
    if estimate.simulated:
        warn_of_seed("some of these messages were simulated with a seed")


def _add_files(
    aggregator: Aggregator[Any] | GroupedAggregator,
    paths: list[Path],
    state: Path,
    skip_bad: bool,
    overall: bool,
) -> list[Exception]:
    """Add the files, saving the state after each; returns the refusals, or raises the first one."""
    refusals: dict[int, Exception] = {}
    repeated = 0
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    with progress("Aggregating", sum(sizes)) as advance:
        for number, added in _outcomes(aggregator, paths, skip_bad, overall):
            if isinstance(added, Exception):
                refusals[number] = added
                continue
            if added:
                aggregator.save(state)
            repeated += not added
            advance(sizes[number])
    if repeated:
        note(f"{repeated} of {len(paths)} files were already counted and skipped")
    return [refusals[number] for number in sorted(refusals)]


def _outcomes(
    aggregator: Aggregator[Any] | GroupedAggregator, paths: list[Path], skip_bad: bool, overall: bool
) -> Iterator[tuple[int, bool | ValueError | OSError]]:
    """Yield the index of each path and whether its file was added, or why it was refused."""
    from sstq.aggregation import Aggregator

    for number, path in enumerate(paths):
        try:
            if isinstance(aggregator, Aggregator) and not overall:
                _refuse_labels(path)
            yield number, aggregator.update_from_file(path)
        except (ValueError, OSError) as error:
            if not skip_bad:
                raise
            yield number, error


def _refuse_labels(path: Path) -> None:
    """Refuse a file with labels (ValueError) if the others, or the state, have none."""
    from sstq.messages.files import describe_messages

    if column := describe_messages(path).label_column:
        remedy = "pass --overall for one mean of all, or another --output for one per group"
        raise ValueError(f"{path} has public labels by {column!r}, which the other messages do not have; {remedy}")


def _summary(mechanism: Mechanism, estimate: Estimate) -> dict[str, Any]:
    """Return the content of summary.json; error norms are root mean square errors of the mean, in the vectors' unit."""
    import numpy as np

    measured = float(np.linalg.norm(estimate.stderr))
    return {
        "count": estimate.count,
        "mean_norm": float(np.linalg.norm(estimate.value)),
        "measured_error_norm": measured if math.isfinite(measured) else None,
        **summarize_mechanism(mechanism, estimate.count),
        "estimator": estimate.estimator,
        "note": estimate.note,
        "simulated": estimate.simulated,
        "digest": mechanism.digest(),
    }


def _write_results(folder: Path, estimate: Estimate, summary: dict[str, Any]) -> None:
    import numpy as np

    from sstq.files.atomic import atomic_file

    *arrays, numbers = _RESULTS
    for name, values in zip(arrays, (estimate.value, estimate.stderr), strict=True):
        with atomic_file(folder / name) as file:
            np.save(file, values)
    with atomic_file(folder / numbers) as file:
        file.write(json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n")
