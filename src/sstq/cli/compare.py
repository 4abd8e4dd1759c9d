"""`sstq compare`: shows all mechanisms side by side."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sstq.cli.common import (
    FORCE,
    PLOT,
    check_output,
    check_picture,
    option,
    output_option,
    save_picture,
    write_text,
)
from sstq.cli.terminal import note, progress, show_table

# A squared error below is a rounding error.
_ROUNDING = 1e-12


def compare(
    dim: int = option("Compare for vectors of this length.", default=1000),
    epsilon: float = option("Allow each message this ε.", default=3.0),
    clients: int = option("Compare means of this many people.", default=1000),
    output: Path | None = output_option("Write all numbers to this JSON file.", None),
    plot: Path | None = PLOT,
    force: bool = FORCE,
) -> None:
    """Compare all mechanisms on a typical unit vector by bits and error.

    Example: sstq compare --dim 25450 --epsilon 3 --clients 1000 --plot compare.png
    """
    from sstq.checks import check_argument
    from sstq.planning import comparison

    check_output(output, force, suffixes=(".json",))
    check_picture(plot, force)
    task: dict[str, Any] = {"dim": dim, "epsilon": epsilon, "clients": clients}
    for name, value in task.items():
        check_argument(name, value)
    rows = []
    variants = comparison.all_variants()
    with progress("Comparing", len(variants)) as advance:
        for variant in variants:
            try:
                rows.append(comparison.compare(variant, dim, epsilon, clients))
            except ValueError as refusal:
                note(f"left out: {variant.label}: {refusal}")
            advance(1)
    rows.sort(key=lambda row: row.mse)
    show_table(
        f"The mean of {clients:,} unit vectors, d = {dim:,}, ε = {epsilon:g}",
        ["mechanism", "bits", "error²", "bias²"],
        [
            [row.label, f"{row.bits:,}", f"{row.mse:.3g}", _figure(row.bias2)]
            for row in rows
        ],
        caption="Sorted by error². More people do not reduce bias².",
    )
    if plot is not None:
        from sstq.plots import draw_comparison

        save_picture(draw_comparison(rows, **task), plot)
    if output is not None:
        numbers = [asdict(row) | {"mse": row.mse} for row in rows]
        write_text(
            output,
            json.dumps(task | {"mechanisms": numbers}, indent=2, allow_nan=False)
            + "\n",
        )


def _figure(error: float) -> str:
    return f"{error:.3g}" if error > _ROUNDING else "0"
