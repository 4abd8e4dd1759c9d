"""The error of a mean against the bits of a message at one ε: real messages beside exact predictions.

20,000 people hold unit vectors close to one direction, so a bias cannot hide. Every mechanism estimates their mean
from one message per person, five times with frames and messages of its own; `measured` is the root mean square.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sstq
from sstq.files.atomic import write_csv
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

DIM = 200
EPSILON = 3.0
PEOPLE = 20_000
RUNS = 5
RECORD = Path(__file__).parents[1] / "experiments" / "errors" / "errors.csv"
# Messages longer than this have their own panel.
_LONG = 100
_BITS = (1, 2, 3, 4, 6, 8)
_SHORT = {"bits": "b", "k": "k"}

Row = Mapping[str, Any]

# Family: its label, the registered name, the options of each point, its colour and mark. The last are not from the
# paper.
FAMILIES: Mapping[str, tuple[str, str, Sequence[Mapping[str, Any]], str, str]] = {
    "uniform": (
        "SSTQ flat, uniform",
        "sstq",
        [{"bits": b, "codebook": "uniform"} for b in _BITS],
        "#a06cd5",
        "o",
    ),
    "optimized": (
        "SSTQ flat, optimized",
        "sstq",
        [{"bits": b} for b in _BITS],
        "#5b2a86",
        "s",
    ),
    "metric": (
        "SSTQ metric-aware",
        "sstq",
        [{"bits": b, "channel": "metric-aware"} for b in _BITS],
        "#d16d9e",
        "^",
    ),
    "vqsgd": ("vqSGD", "vqsgd", [{}], FAINT, "X"),
    "sqkr": ("SQKR", "sqkr", [{"k": k} for k in (1, 2, 3, 4)], "#3c7d3c", "D"),
    "privunit": ("PrivUnit", "privunit", [{}], "#8c6d31", "P"),
    "optimal": (
        "SSTQ, optimal channel",
        "sstq",
        [{"bits": b, "channel": "optimal"} for b in (2, 4)],
        SECOND,
        "v",
    ),
    "frameunit": ("FrameUnit", "frameunit", [{"clients": PEOPLE}], ACCENT, "*"),
}


def people() -> NDArray[np.float64]:
    """Return the vectors: length 1, at a cosine of about 0.98 to one direction."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(DIM)
    vectors = direction / np.linalg.norm(direction) + 0.2 / math.sqrt(
        DIM
    ) * rng.standard_normal((PEOPLE, DIM))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def measure_errors(
    families: Sequence[str] = tuple(FAMILIES), runs: int = RUNS
) -> Iterator[dict[str, Any]]:
    """Estimate the mean of all people by every mechanism."""
    vectors = people()
    truth = vectors.mean(axis=0)
    for family in families:
        label, name, points, _, _ = FAMILIES[family]
        for options in points:
            mechanism = sstq.mechanism(name, dim=DIM, epsilon=EPSILON, **options)
            squares = []
            for run in range(runs):
                own = mechanism.with_seed(run)
                aggregator = own.aggregator()
                aggregator.update(own.encode(vectors, rng=run))
                squares.append(float(np.sum((aggregator.mean().value - truth) ** 2)))
            predicted = mechanism.typical_error(PEOPLE)
            yield {
                "family": family,
                "label": label
                + "".join(
                    f", {_SHORT[k]} = {v}" for k, v in options.items() if k in _SHORT
                ),
                "bits": mechanism.message_bits,
                "measured": math.sqrt(math.fsum(squares) / runs),
                "predicted": math.sqrt(predicted.total),
                "bias": math.sqrt(predicted.bias2),
            }


def write_errors(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as CSV with four digits."""
    short = [
        {name: f"{v:.4g}" if isinstance(v, float) else v for name, v in row.items()}
        for row in rows
    ]
    write_csv(path, tuple(short[0]), short)


def headline(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of README's table: b = 4, k = 4, and the mechanisms with one point."""
    return [
        row for row in rows if "=" not in row["label"] or row["label"].endswith("= 4")
    ]


def draw_errors(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw errors against bits, PrivUnit with its thousands of bits in a panel of its own."""
    figure = new_figure(8.4, 4.9)
    short, long = figure.subplots(1, 2, width_ratios=(7, 1), sharey=True)
    for family, (label, _, _, colour, mark) in FAMILIES.items():
        own = [row for row in rows if row["family"] == family]
        axes = short if own[0]["bits"] < _LONG else long
        bits = [row["bits"] for row in own]
        size = 14 if family == "frameunit" else 7
        axes.plot(
            bits,
            [row["predicted"] for row in own],
            color=colour,
            linewidth=1.4,
            zorder=2,
        )
        measured = [row["measured"] for row in own]
        axes.plot(
            bits,
            measured,
            mark,
            color=colour,
            markersize=size,
            markeredgecolor="white",
            zorder=3,
            label=label,
        )
    short.set_xlim(7.5, 43)
    short.set_xticks(range(8, 44, 4))
    short.set_xlabel("bits per person")
    long.set_xticks([32 * DIM], [f"{32 * DIM:,}"])
    short.set_ylabel("error of the mean, in units of clip")
    for axes in (short, long):
        axes.set_yscale("log")
        axes.set_yticks((0.1, 0.2, 0.5, 1, 2), ("0.1", "0.2", "0.5", "1", "2"))
        axes.minorticks_off()
        axes.grid(color="#e5e5e5", linewidth=0.8)
        axes.set_axisbelow(True)
        tidy(axes)
    long.spines["left"].set_visible(False)
    long.tick_params(axis="y", length=0)
    figure.suptitle(
        f"The mean of {PEOPLE:,} vectors, d = {DIM}, ε = {EPSILON:g} per person\n"
        "marks: measured from real messages; lines: predicted; lower and further left is better",
        fontsize=10,
        color=INK,
    )
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, path)
