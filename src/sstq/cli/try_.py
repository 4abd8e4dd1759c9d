"""`sstq try`: encodes a file, estimates, and compares with the truth."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sstq.cli.common import (
    BOUNDS,
    COLUMNS,
    FORCE,
    GROUPS,
    NO_HEADER,
    WrongUsage,
    argument,
    check_output,
    chosen,
    given,
    option,
    output_option,
    read_bounds,
    read_mechanism,
    take_only,
)
from sstq.cli.terminal import note, show_rows

if TYPE_CHECKING:
    from sstq import Mechanism, Simulation


# The options of each way to try.
_OF_MECHANISM = ("groups", "columns", "no_header")
_OF_WORDS = ("epsilon", "column", "longest")
_OF_NAME = ("epsilon", "mechanism", "clip", "bounds", "columns", "no_header")


def try_(
    vectors: Path = argument(
        "Try with these people, one per row: .npy, Parquet or CSV."
    ),
    epsilon: float | None = option("Spend this ε per person."),
    mechanism: str | None = option(
        "Use this mechanism (see sstq compare).", "--name", show_default="frameunit"
    ),
    spec: Path | None = option(
        "Use the mechanism in this JSON file, of any kind; or a survey.",
        "--mechanism",
        "-m",
    ),
    groups: Path | None = GROUPS,
    clip: float | None = option(
        "Scale longer vectors down to this norm.", show_default="1"
    ),
    bounds: Path | None = BOUNDS,
    columns: str | None = COLUMNS,
    no_header: bool = NO_HEADER,
    column: str | None = option(
        "Find the frequent strings of this column instead.", "--words", metavar="COLUMN"
    ),
    longest: int | None = option(
        "With --words: find strings of at most so many letters.", show_default="16"
    ),
    output: Path | None = output_option("Write all rows to this CSV file.", None),
    force: bool = FORCE,
) -> None:
    """Simulate a collection on one machine: encode a file, estimate its mean, and compare it with the truth.

    Nothing is sent. Try with public or invented data: the true mean is printed. Of private groups the sums are shown,
    and of a survey the items of all questions; --output writes what is too long to print.

    Example: sstq try people.csv --epsilon 3 --bounds bounds.json

    Example: sstq try people.csv --epsilon 3 --columns age,bmi --clip 120

    Example: sstq try people.csv --epsilon 3 --words city

    Example: sstq try people.csv --mechanism survey.json
    """
    typed = given(
        epsilon=epsilon,
        mechanism=mechanism,
        groups=groups,
        clip=clip,
        bounds=bounds,
        columns=columns,
        no_header=no_header or None,
        column=column,
        longest=longest,
    )
    names = chosen(columns, no_header)
    check_output(output, force, inputs=[vectors], suffixes=[".csv"])
    if spec is not None:
        take_only(typed, _OF_MECHANISM, "with --mechanism")
        trial = _with_mechanism(read_mechanism(spec), vectors, names, groups)
        _show(trial, output)
        return
    if epsilon is None:
        raise WrongUsage("pass --epsilon, or --mechanism FILE")
    if column is not None:
        take_only(typed, _OF_WORDS, "with --words")
        _try_words(vectors, epsilon, column, longest, output)
        return
    take_only(typed, _OF_NAME, "without --mechanism and --words")
    name = mechanism or "frameunit"
    _show(_with_name(name, vectors, epsilon, clip, bounds, names), output)


def _with_mechanism(
    mechanism: "Mechanism", path: Path, columns: list[str] | None, groups: Path | None
) -> "Simulation":
    from sstq.simulation import simulate_people

    return simulate_people(
        mechanism, mechanism.input.open(path, columns=columns, groups=groups)
    )


def _with_name(
    name: str,
    path: Path,
    epsilon: float,
    clip: float | None,
    bounds: Path | None,
    columns: list[str] | None,
) -> "Simulation":
    """Try a mechanism that is made for the vectors of a file."""
    import numpy as np

    from sstq.checks import ArgumentError
    from sstq.inputs.vector_tables import VectorColumns, open_vectors
    from sstq.simulation import simulate

    ranges = read_bounds(bounds)
    named = path.suffix != ".npy" and ranges and columns is None
    wanted = VectorColumns(None, list(ranges or ()) if named else columns)
    try:
        file = open_vectors(path, wanted)
    except ArgumentError as error:
        # The names are those of the bounds.
        if named and error.argument == "columns":
            raise ArgumentError("bounds", error.problem) from error
        raise
    if ranges is not None:
        if file.columns and set(ranges) != set(file.columns):
            given = f"{', '.join(file.columns)}, got {', '.join(ranges)}"
            raise WrongUsage(f"--bounds {bounds}: must name the columns {given}")
        ranges = {column: ranges[column] for column in file.columns or ranges}
    rows = np.concatenate([piece.X for piece in file.pieces()])
    trial = simulate(rows, epsilon, mechanism=name, bounds=ranges, clip=clip)
    return replace(trial, estimate=replace(trial.estimate, names=file.columns))


def _show(trial: "Simulation", output: Path | None) -> None:
    title = f"{round(trial.estimate.people):,} people, {trial.bits} bits each"
    if trial.true_items:
        _show_items(trial, title, output)
        return
    rows = list(trial.rows())
    table = [
        (label, f"{value:.5g}", f"{float(f'{stderr:.2g}'):g}", f"{true:.5g}")
        for label, value, stderr, true in rows
    ]
    _show_first(title, ("column", "estimate", "±", "true"), table)
    _write(output, ("column", "estimate", "stderr", "true"), rows)
    _conclude(
        trial,
        f"error {trial.error:.3g}, predicted {trial.predicted_error:.3g}{trial.clip_note}",
    )


def _show_first(
    title: str, header: Sequence[str], table: Sequence[Sequence[str]], caption: str = ""
) -> None:
    """Print the first rows, and how many more there are."""
    rows = [dict(zip(header, cells, strict=True)) for cells in table]
    show_rows(title, header, rows, "write them with --output", caption)


def _write(
    output: Path | None, header: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """Write all rows with all digits, if a file is wanted."""
    from sstq.files.atomic import write_csv

    if output is not None:
        # what is unknown is an empty field
        known = [[None if cell != cell else cell for cell in row] for row in rows]
        write_csv(
            output, header, [dict(zip(header, row, strict=True)) for row in known]
        )
        note(f"wrote {output}")


def _show_items(trial: "Simulation", title: str, output: Path | None) -> None:
    """Show the items of a survey, and how many of their intervals hold."""
    rows = list(trial.items())
    table = [
        (question, item, *(f"{number:.4g}".replace("nan", "–") for number in numbers))
        for question, item, *numbers in rows
    ]
    header = ("question", "item", "estimate", "low", "high", "true")
    caption = "true: of those who have an answer, numbers being within their bounds"
    _show_first(title, header, table, caption)
    _write(output, header, rows)
    held, told = trial.held()
    _conclude(
        trial,
        f"{held:,} of {told:,} intervals hold the true value; those of a question hold at once in 95 % of surveys",
    )


def _conclude(trial: "Simulation", found: str) -> None:
    """Print what was spent and found, on stderr, so that it is there if the table is piped."""
    tried = trial.mechanism
    total = f"total ε = {tried.messages * tried.epsilon:g}, {tried.messages * trial.bits} bits per person"
    note(f"{tried.name}, {total}: {found}")
    if trial.note:
        note(trial.note)


def _try_words(
    table: Path, epsilon: float, column: str, longest: int | None, output: Path | None
) -> None:
    """Find the strings that many people hold, and compare their shares with the true ones."""
    from collections import Counter

    from sstq.studies import Words
    from sstq.studies.files import read_texts

    texts = read_texts(table, column)
    study = Words(epsilon, **given(longest=longest))
    plan = study.plan(len(texts))
    if not plan.works:
        raise ValueError(f"the study cannot work: {plan.problem}")
    result = study.simulate(texts)
    held = Counter(map(study.spelling.normalised, texts))
    cells = zip(result.words, result.shares, result.stderr, strict=True)
    rows = [
        (word, share, error, held[word] / len(texts)) for word, share, error in cells
    ]
    shown = [(word, *(f"{share:.2%}" for share in shares)) for word, *shares in rows]
    title = f"words of {len(texts):,} people"
    _show_first(title, ("string", "share", "±", "true"), shown)
    _write(output, ("string", "share", "stderr", "true"), rows)
    note(f"total ε = {epsilon:g} per person; {plan.of}: {plan.error:.2%}")
    note(result.note)
