"""`sstq aggregate`: estimates the mean and its error from message files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sstq.cli import groups
from sstq.cli.common import (
    ForceOption,
    GroupNamesOption,
    MechanismOption,
    VerboseOption,
    advise_next_round,
    check_output,
    output_option,
    read_mechanism,
    safe_figure,
    summarize_mechanism,
    to_json,
    warn_of_seed,
    write_text,
)
from sstq.cli.counts import add_counts, whether_simulated
from sstq.cli.terminal import complain, note, progress, show_facts, show_table, warn
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    from sstq import Aggregator, Estimate, GroupEstimate, Mechanism, SurveyEstimate

_RESULTS = ("mean.npy", "stderr.npy", "summary.json")
_SURVEY, _SHOWN_ROWS = "survey.csv", 12


def aggregate(
    messages: Annotated[
        list[str],
        typer.Argument(
            metavar="MESSAGES...",
            help="Aggregate these message files (sstq encode): framed, or Parquet, also at s3://, gs:// and https://.",
        ),
    ],
    mechanism: MechanismOption,
    output: Annotated[
        Path,
        output_option(help="Write mean.npy (means.npy and groups.csv), stderr.npy and summary.json to this folder."),
    ],
    state: Annotated[
        Path | None,
        typer.Option(help="Save the progress in this file. [dim]\\[default: state.npz in the output folder][/dim]"),
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Read tables of counts, Parquet or CSV, instead of messages (sstq sql).")
    ] = False,
    query: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Read the counts that this query of a DuckDB or SQLite file gives."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Estimate one mean per group of this column of the Parquet files or counts."
        ),
    ] = None,
    group_names: GroupNamesOption = None,
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

    With --by country, a column of Parquet files (sstq encode --by), there is one mean per group and no state: pass
    all files at once. means.npy and stderr.npy have one row per line of groups.csv, which has the group's clients, the
    norm of its mean, the error, and a mark. A group is marked "too few" if it has fewer than 30 clients, and "within
    error" unless its mean is longer than both the radius of its 95 % region and √2 times its error. Messages with a
    private group (GroupUnit) give shares, sums and means of every group in groups.npz, and one line per group in
    groups.csv.

    With --counts the files are tables that a SQL engine made of the messages: a column per field and one named
    messages, how often each occurred. The result is the same bit for bit. A table with the same rows as one that
    was added before is skipped with a warning. Counts do not say whether a seed was used: `simulated` is then null.

    Example: sstq aggregate day1.sstq day2.sstq --mechanism mechanism.json --output result
    """
    shared = read_mechanism(mechanism)
    counts = counts or query is not None
    if counts:
        with check_usage():
            _ = shared.counted_layout
    if by is not None and shared.name == "survey":
        raise WrongUsage("--by: a survey has no single mean per group; count each group by itself, with WHERE")
    if by is not None and shared.trust == "aggregator":
        raise WrongUsage(f"--by needs a mechanism whose single messages are private, unlike {shared.name}")
    if by is not None and state is not None:
        raise WrongUsage("--state is for one mean; with --by pass all files at once")
    names = None if group_names is None else groups.read_group_names(group_names, shared)
    output.mkdir(parents=True, exist_ok=True)
    if by is not None:
        bad = _aggregate_by(shared, messages, by, output, counts, query, skip_bad, force)
    else:
        state_path = output / "state.npz" if state is None else state
        check_output(state_path, True, "--state")
        resumed = state_path.exists()
        results = _RESULTS if shared.groups is None else (*_RESULTS, *groups.PRIVATE_RESULTS)
        for name in (*results, _SURVEY) if shared.name == "survey" else results:
            check_output(output / name, force or resumed)
        sums = shared.load_aggregator(state_path) if resumed else shared.aggregator()

        def add(path: str) -> bool:
            new = add_counts(sums, sums._sources, shared, path, query, None) if counts else sums.update_from_file(path)
            if new:
                sums.save(state_path)
            return new

        bad = _add_files(add, messages, skip_bad)
        _report(shared, sums, output, state_path, names, verbose)
    if bad:
        complain(f"{len(bad)} of {len(messages)} files were refused and are not in the mean:")
        for error in bad:
            complain(error)
        raise typer.Exit(1)


def _aggregate_by(
    mechanism: Mechanism,
    paths: list[str],
    by: str,
    output: Path,
    counts: bool,
    query: str | None,
    skip_bad: bool,
    force: bool,
) -> list[Exception]:
    """Estimate one mean per label of a column; returns the refusals."""
    for name in groups.PUBLIC_RESULTS:
        check_output(output / name, force)
    sums: dict[str, Aggregator[Any]] = {}
    sources: set[str] = set()

    def add(path: str) -> bool:
        if counts:
            return add_counts(sums, sources, mechanism, path, query, by)
        return groups.add_messages(sums, sources, mechanism, path, by)

    bad = _add_files(add, paths, skip_bad)
    groups.report_public(mechanism, sums, sources, by, output)
    return bad


def _add_files(add: Callable[[str], bool], paths: list[str], skip_bad: bool) -> list[Exception]:
    """Add the files; returns the refusals, or raises the first one."""
    refusals: list[Exception] = []
    repeated = 0
    sizes = [Path(path).stat().st_size if Path(path).is_file() else 1 for path in paths]
    with progress("Aggregating", sum(sizes)) as advance:
        for path, size in zip(paths, sizes, strict=True):
            try:
                repeated += not add(path)
            except (ValueError, OSError) as error:
                if not skip_bad:
                    raise
                refusals.append(error)
            advance(size)
    if repeated:
        note(f"{repeated} of {len(paths)} files were already counted and skipped")
    return refusals


def _report(
    shared: Mechanism, sums: Aggregator[Any], output: Path, state: Path, names: list[str] | None, verbose: bool
) -> None:
    """Write the mean and its summary, and print the summary."""
    import numpy as np

    from sstq import SurveyEstimate
    from sstq.files.atomic import atomic_file

    estimate = sums.mean()
    if shared.trust == "aggregator":
        # The mean has closed the round: only its noisy sums are kept, so the same mean comes out again.
        sums.save(state)
    summary = _summary(shared, estimate, sums.digest, whether_simulated(sums._sources, estimate.simulated))
    document, shown = to_json(summary).encode(), dict(summary)
    for name in ("epsilon", "privacy_loss"):
        if shown[name] is not None:
            shown[name] = safe_figure(shown[name])
    facts = [(name.replace("_", " "), value) for name, value in shown.items()]
    *arrays, numbers = _RESULTS
    for name, values in zip(arrays, (estimate.value, estimate.stderr), strict=True):
        with atomic_file(output / name) as file:
            np.save(file, values)
    with atomic_file(output / numbers) as file:
        file.write(document)
    show_facts(str(output), facts, verbose=verbose)
    if shared.groups is not None:
        groups.report_private(cast("GroupEstimate", estimate), output, names)
    if isinstance(estimate, SurveyEstimate):
        _write_survey(estimate, output / _SURVEY)
    if estimate.note:
        warn(estimate.note)
    if estimate.note and not isinstance(estimate, SurveyEstimate):
        advise_next_round(shared, round(estimate.people))
    if estimate.simulated:
        warn_of_seed()


def _write_survey(estimate: SurveyEstimate, path: Path) -> None:
    """Write the tidy table of a survey's results, and show the first rows of every question."""
    import csv
    import io

    from sstq.mechanisms.survey.estimates import NumberEstimate

    rows, shown = [], []
    for name, found in estimate.results.items():
        own = list(found.rows())
        rows += [[name, *row] for row in own]
        # The mean and the quartiles of a number come before its bins.
        for item, *numbers in own[: 4 if isinstance(found, NumberEstimate) else _SHOWN_ROWS]:
            words = [f"{number:.4g}" if abs(number) < 10_000 else f"{number:.0f}" for number in numbers]
            shown.append([name, item, *("" if word == "nan" else word for word in words)])
    text, columns = io.StringIO(), ["question", "item", "estimate", "stderr", "low", "high"]
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    write_text(path, text.getvalue())
    caption = f"95 % intervals, which hold for all items of a question at once. All {len(rows)} rows are in {path}."
    show_table("Results", columns, shown, caption=caption)


def _summary(mechanism: Mechanism, estimate: Estimate, digest: str, simulated: bool | None) -> dict[str, Any]:
    """Return the content of summary.json; error norms are root mean square errors of the mean, in the vectors' unit."""
    import numpy as np

    norms: dict[str, float | None] = {}
    if mechanism.name != "survey":  # which has no one vector, and nan where nobody answered
        measured = float(np.linalg.norm(estimate.stderr))
        norms["mean_norm"] = float(np.linalg.norm(estimate.value))
        norms["measured_error_norm"] = measured if math.isfinite(measured) else None
    return {
        "count": estimate.count,
        **norms,
        **summarize_mechanism(mechanism, estimate.count),
        "estimator": estimate.estimator,
        "note": estimate.note,
        "simulated": simulated,
        "digest": digest,
    }
