"""`sstq compare`: shows all mechanisms side by side, for a task or by their bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import PICTURES, ForceOption, check_output, figure, output_option, to_json, write_text
from sstq.cli.terminal import note, progress, show_table

if TYPE_CHECKING:
    from sstq.planning.comparison import Comparison

_ROUNDING = 1e-12


def compare(
    dim: Annotated[int, typer.Option(help="Compare for vectors of this length.")] = 1000,
    epsilon: Annotated[float, typer.Option(help="Allow each message this ε.")] = 3.0,
    clients: Annotated[int, typer.Option(help="Compare means of this many people.")] = 1000,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show the error of one person's message against its bits instead.")
    ] = False,
    output: Annotated[
        Path | None, output_option(help="Write all numbers (.csv, .json) or draw them (.png, .svg).")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Compare all mechanisms on a typical unit vector by bits, error and trust.

    With --frontier the error is divided by d, and the least error of all unbiased mechanisms is shown.

    Example: sstq compare --dim 25450 --epsilon 3 --clients 1000 --output compare.png

    Example: sstq compare --frontier --dim 10000 --epsilon 3
    """
    from sstq.checks import check_argument
    from sstq.planning import comparison

    check_output(output, force, suffixes=(".csv", ".json", *PICTURES))
    check_argument("dim", dim, low=2 if frontier else 1)
    check_argument("epsilon", epsilon)
    check_argument("clients", clients)
    rows, left_out = [], []
    variants = comparison.all_families() if frontier else comparison.all_variants()
    crowd = None if frontier else clients
    with progress("Comparing", len(variants)) as advance:
        for variant in variants:
            try:
                rows.append(comparison.compare(variant, dim, epsilon, crowd))
            except ValueError as refusal:
                left_out.append(f"left out: {variant.label}: {refusal}")
            advance(1)
    for reason in left_out:
        note(reason)
    rows.sort(key=lambda row: row.mse)
    head: dict[str, Any] = {"dim": dim, "epsilon": epsilon} | ({} if frontier else {"clients": clients})
    if frontier:
        head |= _show_frontier(rows, dim, epsilon)
    else:
        _show_comparison(rows, dim, epsilon, clients)
    if output is not None:
        _write(rows, output, head, frontier=frontier)


def _show_comparison(rows: list[Comparison], dim: int, epsilon: float, clients: int) -> None:
    lines = [[row.label, f"{row.bits:,}", _figure(row.mse), _figure(row.bias2), row.trust, row.coin] for row in rows]
    show_table(
        f"The mean of {clients:,} unit vectors, d = {dim:,}, ε = {epsilon:g}",
        ["mechanism", "bits", "error²", "bias²", "trust", "coin"],
        lines,
        caption="Sorted by error². More people do not reduce bias². "
        "CSGM: (ε, 1e-5) for the released mean, not ε per message.",
    )


def _show_frontier(rows: list[Comparison], dim: int, epsilon: float) -> dict[str, float]:
    from sstq.planning.comparison import one_bit_error, optimal_error

    optimum, one_bit = optimal_error(dim, epsilon), one_bit_error(dim, epsilon)
    lines = [
        [row.label, f"{row.bits:,}", row.coin, figure(row.mse / dim), _figure(row.bias2, dim), f"{times:.3g}"]
        for row, times in ((row, row.mse / dim / optimum) for row in rows)
    ]
    show_table(
        f"Error against bits at d = {dim:,}, ε = {epsilon:g}: one unit vector, divided by d",
        ["mechanism", "bits", "coin", "error²/d", "bias²/d", "times the optimum"],
        lines,
        caption=f"The optimum of all unbiased mechanisms is {optimum:.4g}; the least with one bit is {one_bit:.4g}.",
    )
    return {"optimum": optimum, "one_bit": one_bit}


def _figure(error: float, over: float = 1.0) -> str:
    """Return a squared error of unit vectors divided by a number; rounding errors count as zero."""
    return figure(error / over if error > _ROUNDING else 0.0)


def _write(rows: list[Comparison], output: Path, head: dict[str, Any], *, frontier: bool) -> None:
    from dataclasses import asdict

    from sstq.files.atomic import write_csv

    numbers = [asdict(row) | {"mse": row.mse} for row in rows]
    if output.suffix.lower() == ".json":
        write_text(output, to_json(head | {"mechanisms": numbers}))
        return
    if output.suffix.lower() == ".csv":
        write_csv(output, list(numbers[0]), numbers)
    else:
        from sstq.plots import draw_comparison, draw_frontier

        (draw_frontier if frontier else draw_comparison)(rows, output, **head)
    note(f"wrote {output}")
