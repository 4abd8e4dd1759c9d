"""`sstq frontier`: shows error against bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.common import ForceOption
from sstq.cli.numbers import (
    CsvOption,
    JsonOption,
    PngOption,
    check_outputs,
    error_figure,
    figure,
    unbiased_cell,
    write_numbers,
)
from sstq.cli.terminal import note, progress, show_table
from sstq.cli.usage import check_usage

if TYPE_CHECKING:
    from sstq.planning.comparison import Comparison, Variant

__all__ = ["frontier"]


def frontier(
    dim: Annotated[int, typer.Option(help="The length of the vectors.")] = 1000,
    epsilon: Annotated[float, typer.Option(help="The ε of one message.")] = 3.0,
    csv: CsvOption = None,
    json: JsonOption = None,
    png: PngOption = None,
    force: ForceOption = False,
) -> None:
    """Show error against bits for every local mechanism, with the least possible error.

    The error is that of one client's estimate of a typical unit vector, divided by d. Two lines bound it: the optimum
    of all unbiased mechanisms, and the least error with one bit.

    Example: sstq frontier --dim 10000 --epsilon 3 --png frontier.png
    """
    check_outputs(csv, json, png, force)
    from sstq.checks import check_number
    from sstq.planning import comparison as library

    with check_usage():
        check_number("dim", dim, 2, 2**30, integer=True)
        check_number("epsilon", epsilon, 0.01, 20)
    points, left_out = [], []
    families = library.all_families()
    with progress("Weighing", len(families)) as advance:

        def leave_out(candidate: Variant, reason: str) -> None:
            left_out.append(f"{candidate.label}: {reason}")
            advance(1)

        for point in library.frontier(dim, epsilon, families=families, skipped=leave_out):
            points.append(point)
            advance(1)
    for reason in left_out:
        note(f"left out: {reason}")
    ranked = sorted(points, key=lambda point: point.mse)
    optimum, one_bit = library.optimal_error(dim, epsilon), library.one_bit_error(dim, epsilon)
    show_table(
        f"Error against bits at d = {dim:,}, ε = {epsilon:g}: one client's unit vector, divided by d",
        ["mechanism", "bits", "coin", "bias²/d", "variance/d", "MSE/d", "times the optimum", "unbiased"],
        [
            [
                point.label,
                f"{point.bits:,}",
                point.coin,
                error_figure(point.bias2, dim),
                figure(point.variance / dim),
                figure(point.mse / dim),
                f"{point.mse / dim / optimum:.3g} ×",
                unbiased_cell(point.unbiased, point.bias2),
            ]
            for point in ranked
        ],
        caption=f"The optimum of all unbiased mechanisms is {optimum:.4g}; the least with one bit is {one_bit:.4g}. "
        "Sorted by error. unbiased: over messages and public coins, for this frame.",
    )
    rows = [_numbers(point, dim) for point in ranked]
    write_numbers(rows, csv, json, {"epsilon": epsilon, "optimum": optimum, "one_bit": one_bit}, "points")
    if png is not None:
        from sstq.plots import draw_frontier

        draw_frontier(points, png, dim=dim, epsilon=epsilon, optimum=optimum, one_bit=one_bit)
        note(f"wrote {png}")


def _numbers(point: Comparison, dim: int) -> dict[str, object]:
    same = {name: getattr(point, name) for name in ("name", "bits", "coin", "unbiased", "bias2", "variance")}
    return {"family": point.label, **same, "dim": dim, "error": point.mse / dim}
