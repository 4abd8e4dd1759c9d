"""Numbers of the paper, computed and measured: errors, bits, orders and costs."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from paper.commands.common import OutputOption, show_table


def errors(output: OutputOption = Path("errors")) -> None:
    """Measure the error of a mean against the bits of a message, beside the exact prediction."""
    from paper.errors import draw_errors, measure_errors, write_errors

    rows = []
    for row in measure_errors():
        rows.append(row)
        typer.echo(
            f"{row['label']}: {row['measured']:.3f} measured, {row['predicted']:.3f} predicted",
            err=True,
        )
    output.mkdir(parents=True, exist_ok=True)
    write_errors(rows, output / "errors.csv")
    draw_errors(rows, output / "errors.png")
    show_table(
        "Error of the mean of 20,000 unit vectors, d = 200, ε = 3",
        ["mechanism", "bits", "measured", "predicted", "of it bias"],
        [
            [
                row["label"],
                row["bits"],
                *(f"{row[name]:.3f}" for name in ("measured", "predicted", "bias")),
            ]
            for row in rows
        ],
    )
    typer.echo(output)


def bits() -> None:
    """Compute the exact error of SSTQ against the bit width b at three ε: the abstract's claim."""
    from paper.orders import bit_widths

    show_table(
        "Exact error of one message over d, and what the last bit costs",
        ["variant", "ε", "b", "error/d", "bias²", "× per bit"],
        [
            [
                row["label"],
                row["epsilon"],
                row["bits"],
                f"{row['error']:.3g}",
                f"{row['bias2']:.2g}",
                f"{row['growth']:.2f}",
            ]
            for row in bit_widths()
        ],
    )


def tables() -> None:
    """Measure the orders of the paper's Table 1 on exact errors, and count the bits of Table 2."""
    from paper.orders import measured_orders, sqkr_bits
    from paper.reproduction.methods import METHODS
    from paper.reproduction.printed import paper_number

    show_table(
        "Table 1: the paper's orders, and exponents of exact errors",
        [
            "mechanism",
            "bits per client",
            "the paper's error",
            "exponent of d",
            "exponent of ε",
            "× per bit",
        ],
        [
            [
                row["label"],
                row["bits"],
                row["order"],
                f"{row['dim']:.2f}",
                f"{row['epsilon']:.2f}",
                "–" if math.isnan(row["bit"]) else f"{row['bit']:.2f}",
            ]
            for row in measured_orders()
        ],
        "d from 1,024 to 4,096 at ε = 1; ε from 0.05 to 0.1; b from 9 to 10. SQKR with shared randomness takes k bits: "
        f"{sqkr_bits(4, 65_536, shared=True)} instead of {sqkr_bits(4, 65_536)} for k = 4 and N = 2^16.",
    )
    rows = []
    for key in ("clean", "privunit", "vqsgd", "sqkr", "sstq-uniform", "frameunit"):
        cells = []
        for dim in (25_450, 98_666):
            printed = paper_number("bits", f"d = {dim}", key)
            cells += [
                "" if printed is None else printed.value,
                METHODS[key].build(dim, 1.0, bits=4).message_bits,
            ]
        rows.append([METHODS[key].label, *cells])
    show_table(
        "Table 2: bits per client and round",
        ["method", "Fashion-MNIST", "ours", "CIFAR-10", "ours"],
        rows,
    )


def costs() -> None:
    """Measure what a round of 100 clients costs to compute, as ratios of one run."""
    from paper.costs import CLIENTS, DIMS, measure_costs

    for name, dim in DIMS.items():
        show_table(
            f"{name}, d = {dim:,}: encoding {CLIENTS} vectors and estimating their mean",
            [
                "method",
                "processor seconds per round",
                "× the paper's recipe",
                "of it the representation",
            ],
            [
                [
                    row["label"],
                    f"{row['seconds']:.3g}",
                    f"{row['ratio']:.2g}",
                    f"{row['share']:.0%}" if row["share"] else "",
                ]
                for row in measure_costs(dim)
            ],
            "The paper: 18 s and 65 s per step, 99 % of it the representation; vqSGD 5 to 10 times as fast.",
        )
