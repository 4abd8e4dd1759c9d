"""`sstq compare` and `sstq mechanisms`: show all mechanisms side by side."""

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
    from sstq.planning.comparison import Comparison

__all__ = ["compare", "mechanisms"]

_CENTRAL = "CSGM: (ε, 1e-5) for the released mean, not ε per message."


def mechanisms(
    dim: Annotated[int, typer.Option(help="The length of the vectors.")] = 1000,
    epsilon: Annotated[float, typer.Option(help="The ε of one message (of the released mean for CSGM).")] = 3.0,
    clients: Annotated[int, typer.Option(help="The number of clients.")] = 1000,
) -> None:
    """List all mechanisms with their bits, error, trust, coin and exactness of the guarantee.

    The error is that of the mean of the clients' unit vectors, MSE = bias² + variance.

    Example: sstq mechanisms --dim 25450 --epsilon 3
    """
    rows = _compare(dim, epsilon, clients, timed=False)
    columns = ["mechanism", "name", "bits", "bias²", "MSE", "trust", "coin", "exact", "unbiased"]
    show_table(
        f"Mechanisms at d = {dim:,}, ε = {epsilon:g}, {clients:,} clients",
        columns,
        [
            [
                row.label,
                row.name,
                f"{row.bits:,}",
                error_figure(row.bias2),
                error_figure(row.mse),
                row.trust,
                row.coin,
                row.exact,
                unbiased_cell(row.unbiased, row.bias2),
            ]
            for row in rows
        ],
        caption=f"Sorted by MSE. trust: who must be trusted. exact: private integer by integer. {_CENTRAL}",
    )


def compare(
    dim: Annotated[int, typer.Option(help="The length of the vectors.")],
    epsilon: Annotated[float, typer.Option(help="The ε of one message.")],
    clients: Annotated[int, typer.Option(help="The number of clients.")] = 1000,
    csv: CsvOption = None,
    json: JsonOption = None,
    png: PngOption = None,
    force: ForceOption = False,
) -> None:
    """Compare all mechanisms on a typical unit vector by bits, bias², variance, error of the mean and time.

    Times are milliseconds per client on this machine, with all its cores.

    Example: sstq compare --dim 25450 --epsilon 3 --clients 1000 --png compare.png
    """
    check_outputs(csv, json, png, force)
    rows = _compare(dim, epsilon, clients, timed=True)
    columns = ["mechanism", "bits", "bias²", "variance", "MSE", "encode ms", "decode ms", "trust", "coin"]
    show_table(
        f"The mean of {clients:,} clients' unit vectors, d = {dim:,}, ε = {epsilon:g}",
        columns,
        [
            [
                row.label,
                f"{row.bits:,}",
                error_figure(row.bias2),
                figure(row.variance),
                error_figure(row.mse),
                figure(row.encode_ms or 0.0),
                figure(row.decode_ms or 0.0),
                row.trust,
                row.coin,
            ]
            for row in rows
        ],
        caption=f"Sorted by MSE. bias²: more clients do not reduce it. variance: of the mean. {_CENTRAL}",
    )
    numbers = [_numbers(row) for row in rows]
    write_numbers(numbers, csv, json, {"dim": dim, "epsilon": epsilon, "clients": clients}, "mechanisms")
    if png is not None:
        from sstq.plots import draw_comparison

        draw_comparison(rows, png, dim=dim, epsilon=epsilon, clients=clients)
        note(f"wrote {png}")


def _compare(dim: int, epsilon: float, clients: int, *, timed: bool) -> list[Comparison]:
    from sstq.checks import check_number
    from sstq.planning.comparison import all_variants
    from sstq.planning.comparison import compare as compare_mechanisms

    with check_usage():
        check_number("dim", dim, 1, 2**30, integer=True)
        check_number("epsilon", epsilon, 0.01, 20)
        check_number("clients", clients, 1, 2**32, integer=True)
    left_out: list[str] = []
    rows = []
    variants = all_variants()
    with progress("Comparing", len(variants)) as advance:
        for row in compare_mechanisms(
            dim,
            epsilon,
            clients,
            timed=timed,
            variants=variants,
            skipped=lambda variant, reason: left_out.append(f"{variant.label}: {reason}"),
        ):
            rows.append(row)
            advance(1)
    if not rows:
        raise ValueError(left_out[0])
    for reason in left_out:
        note(f"left out: {reason}")
    return sorted(rows, key=lambda row: row.mse)


def _numbers(row: Comparison) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(row) | {"mse": row.mse}
