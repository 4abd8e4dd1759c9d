"""`sstq try`: encodes a file, estimates its mean, and compares it with the truth."""

from pathlib import Path
from typing import Annotated

from sstq.cli.common import BoundsOption, ColumnsOption, WrongUsage, argument, option, read_bounds, split
from sstq.cli.terminal import note, show_table


def try_(
    vectors: Annotated[Path, argument("Try with these vectors, one row per person: .npy, Parquet or CSV.")],
    epsilon: Annotated[float, option("Spend this ε per person.")],
    mechanism: Annotated[str, option("Use this mechanism (see sstq compare).", "--name")] = "frameunit",
    clip: Annotated[float | None, option("Scale longer vectors down to this norm.")] = None,
    bounds: BoundsOption = None,
    columns: ColumnsOption = None,
    words: Annotated[str | None, option("Find the frequent strings of this column instead.", metavar="COLUMN")] = None,
) -> None:
    """Simulate a collection on one machine: encode a file, estimate its mean, and compare it with the truth.

    Nothing is sent and nothing is written. Try with public or invented data: the true mean is printed.

    Example: sstq try people.csv --epsilon 3 --bounds bounds.json

    Example: sstq try people.csv --epsilon 3 --columns age,bmi --clip 120

    Example: sstq try people.csv --epsilon 3 --words city
    """
    if words is not None:
        _try_words(vectors, epsilon, words)
        return
    import numpy as np

    from sstq.inputs.vector_tables import VectorColumns, open_vectors
    from sstq.simulation import simulate

    ranges = read_bounds(bounds)
    named = vectors.suffix != ".npy" and ranges and columns is None
    file = open_vectors(vectors, VectorColumns(None, list(ranges or ()) if named else split(columns)))
    if ranges is not None:
        if file.columns and set(ranges) != set(file.columns):
            given = f"{', '.join(file.columns)}, got {', '.join(ranges)}"
            raise WrongUsage(f"--bounds {bounds}: must name the columns {given}")
        ranges = {column: ranges[column] for column in file.columns or ranges}
    rows = np.concatenate([piece.X for piece in file.pieces()])
    trial = simulate(rows, epsilon, mechanism=mechanism, bounds=ranges, clip=clip)
    title = f"{mechanism}, ε = {epsilon:g}: {len(rows):,} people, {trial.bits} bits each"
    labels = file.columns or [label for label, *_ in trial.rows()]
    table = [
        (label, f"{value:.5g}", f"{stderr:.2g}", f"{true:.5g}")
        for label, (_, value, stderr, true) in zip(labels, trial.rows(), strict=True)
    ]
    show_table(title, ("column", "estimate", "±", "true"), table, caption="")
    # On stderr, so that it is there if the table is piped.
    note(
        f"{mechanism}, {trial.bits} bits per person: error {trial.error:.3g}, predicted {trial.predicted_error:.3g} "
        f"(clip = {trial.mechanism.clip:g})"
    )
    if trial.estimate.note:
        note(trial.estimate.note)


def _try_words(table: Path, epsilon: float, column: str) -> None:
    """Find the strings that many people hold, and compare their shares with the true ones."""
    from collections import Counter

    from sstq.cli.study import read_texts
    from sstq.studies import Words

    texts = read_texts(table, column)
    study = Words(epsilon)
    plan = study.plan(len(texts))
    if not plan.works:
        raise ValueError(f"the study cannot work: {plan.problem}")
    found = study.simulate(texts)
    held = Counter(map(study.spelling.normalised, texts))
    cells = zip(found.words, found.shares, found.stderr, strict=True)
    rows = [(word, f"{share:.2%}", f"{error:.2%}", f"{held[word] / len(texts):.2%}") for word, share, error in cells]
    show_table(f"words, ε = {epsilon:g}: {len(texts):,} people", ("string", "share", "±", "true"), rows, caption="")
    note(f"{plan.of}: {plan.error:.2%}; {max(0.0, found.others[0]):.0%} of the people hold others")
