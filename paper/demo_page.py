"""The demo's tables, its picture of digits, and the page with everything."""

from __future__ import annotations

import base64
import html
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.demo import Crowd, Demo, Year
from paper.reproduction.figures import PHONE_WIDTH, draw_networks
from paper.reproduction.methods import METHODS
from sstq.files.atomic import atomic_file
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

# An accuracy that is known less well than this is not worth printing.
_WIDEST = 0.05
_HABITS = ("with a season", "with a jump in week 30")


def _plus_minus(accuracy: float, stderr: float) -> str:
    """Format an accuracy with its standard error; a dash if it says next to nothing.

    Examples:
        >>> _plus_minus(0.912, 0.021), _plus_minus(0.6, 0.08)
        ('91.2 ± 2.1 %', '–')
    """
    return (
        "–" if not stderr <= _WIDEST else f"{100 * accuracy:.1f} ± {100 * stderr:.1f} %"
    )


@dataclass(frozen=True)
class Table:
    """A table of the demo, for the terminal and the page."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    caption: str


def demo_tables(demo: Demo) -> list[Table]:
    """Return the three tables of the demo."""
    ends = [row for row in demo.training if row["round"] == demo.training[-1]["round"]]
    rounds = ends[-1]["round"] if ends else 0
    trained = [
        [
            METHODS[row["method"]].label,
            _plus_minus(
                row["accuracy"] / 100, _binomial(row["accuracy"] / 100, demo.tested)
            ),
            "not private" if math.isinf(row["epsilon"]) else f"{row['epsilon']:g}",
            f"{row['bits'] // rounds:,}",
            f"{row['train_loss']:.3g}",
        ]
        for row in ends
    ]
    asked = [["not private", "", "", _plus_minus(*demo.exact), "", "", ""]]
    for row in demo.crowds:
        accuracies = (
            _plus_minus(row.predicted, row.predicted_stderr),
            _plus_minus(row.accuracy, row.accuracy_stderr),
        )
        sizes = (str(row.copies), f"{row.bits_per_person:.0f}", f"{row.bytes_sent:,}")
        asked.append([f"{row.epsilon:g}", f"{row.people:,}", *accuracies, *sizes])
    return [
        Table(
            f"The paper's Figure 1 on digits: 100 clients, {rounds} rounds, ε = 3 per round",
            ("method", "accuracy", "total ε", "bits per round", "loss"),
            trained,
            f"total ε: per client, who answers in every round. accuracy: on {demo.tested} images that nobody holds. "
            "±: standard error of the test.",
        ),
        Table(
            f"Digits from one private message per person; without privacy {_plus_minus(*demo.exact)} accurate",
            (
                "total ε",
                "people",
                "predicted",
                "accuracy",
                "people per image",
                "bits per person",
                "total bytes",
            ),
            asked,
            "total ε: per person, who answers once. predicted: what people who hold other images report, each "
            f"privately. accuracy: on {demo.tested} images that nobody holds. ±: standard error; “–” where it exceeds "
            "5 points. All rows share their images, so that their errors are alike. 100 people per image are "
            "simulated: they hold the same image. An image as 64 floats would take "
            "2,048 bits.",
        ),
        _year_table(demo.year),
    ]


def _year_table(year: Year) -> Table:
    """How far each week by itself, and the smoothed curves, are from the truth."""
    rows = []
    for habit, truth in enumerate(year.truth):
        curve = year.result.curve(item=habit)
        low, high = curve.band()
        errors = [
            100 * math.sqrt(np.nanmean((values - truth) ** 2))
            for values in (curve.raw, curve.value)
        ]
        inside = np.mean((low <= truth) & (truth <= high))
        rows.append(
            [
                _HABITS[habit],
                *(f"{error:.1f}" for error in errors),
                f"{inside:.0%}",
                curve.changed or "–",
            ]
        )
    people = f"{sum(year.result.people):,}"
    return Table(
        f"A year of weeks from one private message per person: {people} people, total ε = {year.result.epsilon:g}",
        (
            "habit",
            "error of one week, in points",
            "smoothed",
            "weeks within the band",
            "told",
        ),
        rows,
        "Everybody answers once, in a week drawn before looking. band: 95 %. The people are invented.",
    )


def _binomial(accuracy: float, count: int) -> float:
    return math.sqrt(max(accuracy * (1 - accuracy), 0) / count)


def write_demo(demo: Demo, folder: Path) -> Path:
    """Write the pictures, the numbers as JSON, and report.html with everything; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for narrow, names in ((False, _PICTURES), (True, _NARROW_PICTURES)):
        networks = {"handwritten digits, d = 2,410": demo.training}
        save(draw_networks(networks, narrow=narrow), folder / names[0])
        draw_demo(demo, folder / names[1], narrow=narrow)
        save(_draw_year(demo.year, narrow), folder / names[2])
    rows = [
        asdict(row) | {"shares": row.shares.tolist(), "images": None}
        for row in demo.crowds
    ]
    numbers = {"simulated": demo.simulated, "exact": demo.exact, "tested": demo.tested}
    document = numbers | {"crowds": rows, "training": demo.training}
    with atomic_file(folder / "results.json") as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")
    page = folder / "report.html"
    with atomic_file(page) as file:
        file.write(_page(demo, folder).encode())
    return page


_PICTURES = ("figure-1.png", "digits.png", "year.png")
_NARROW_PICTURES = tuple(name.replace(".", "-narrow.") for name in _PICTURES)
_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: #fafaf8; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 48px; }
h2 { margin: 40px 0 8px; }
img { display: block; width: 100%; border: 1px solid #e5e5e5; }
table { border-collapse: collapse; margin: 12px 0; font-size: 14px; background: #fff; }
th, td { padding: 5px 10px; border-bottom: 1px solid #e9e9e6; text-align: left; }
td { white-space: nowrap; }
p { max-width: 820px; }
.warning { background: #fff3cd; padding: 8px 12px; }
@media (max-width: 700px) {
  main { padding: 16px 10px 32px; }
  h1, h2 { line-height: 1.25; }
  table { font-size: 12px; }
  th, td { padding: 5px 2px; vertical-align: top; white-space: normal; }
}
"""
_INTRODUCTION = (
    "SSTQ, by Javanmard, Woodruff and Mirrokni, beside its baselines and FrameUnit, on 1,797 handwritten digits. "
    "Everything on this page was just computed from private messages by this machine."
)
_EXPLANATIONS = (
    (
        "Every client sends one private message per round about its gradient. ε adds up over the rounds, so the totals "
        "are large: the picture compares mechanisms, and is no advice on how to train. vqSGD diverges, as in the paper."
    ),
    (
        "Here everybody answers once. Each person sends one message about an image and its digit, both secret, and the "
        "server learns the mean image of every digit and a classifier. Those who predict the accuracy hold other "
        "images than those who teach."
    ),
    (
        "Each person draws a week before looking, answers in that week, and never again. The server has a rough "
        "estimate per week, the dots, and averages over how the curve may drift and where it may jump."
    ),
)


def _page(demo: Demo, folder: Path) -> str:
    parts = []
    for table, picture, narrow, text in zip(
        demo_tables(demo), _PICTURES, _NARROW_PICTURES, _EXPLANATIONS, strict=True
    ):
        header, *body = (
            "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in row) + "</tr>"
            for tag, row in [
                ("th", table.columns),
                *(("td", row) for row in table.rows),
            ]
        )
        source = f'media="(max-width: 700px)" srcset="{_inline(folder / narrow)}"'
        wide = f'alt="{html.escape(table.title)}" src="{_inline(folder / picture)}"'
        parts += [
            f"<h2>{html.escape(table.title)}</h2><p>{html.escape(text)}</p>",
            f"<picture><source {source}><img {wide}></picture>",
            f"<table>{header}{''.join(body)}</table><p>{html.escape(table.caption)}</p>",
        ]
    warning = (
        '<p class="warning">Made with a seed: not private.</p>'
        if demo.simulated
        else ""
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>SSTQ demo</title><style>{_STYLE}</style></head><body><main><h1>SSTQ on handwritten digits</h1>"
        f"<p>{html.escape(_INTRODUCTION)}</p>{warning}"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _cell(text: str) -> str:
    """HTML, with the unit on the line of its number."""
    return html.escape(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _inline(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _draw_year(year: Year, narrow: bool) -> Any:
    figure = year.result.plot(items=[0, 1], truth=year.truth)
    for axes, habit in zip(figure.axes, _HABITS, strict=True):
        axes.set_title(f"share with a habit {habit}", fontsize=10, color=INK)
    if narrow:
        figure.set_size_inches(PHONE_WIDTH, 5.2)
        figure.legends[0].remove()
        named = figure.axes[0].get_legend_handles_labels()
        figure.legend(*named, loc="outside lower center", ncols=2, frameon=False)
    return figure


# Colours and marks that differ without colour, one per crowd.
_STYLES = ((ACCENT, "o"), (SECOND, "s"), ("#3c7d3c", "^"), (FAINT, "D"))


@dataclass(frozen=True)
class _Layout:
    """Where the parts of the picture are: lengths in inches, `axes` and its legend's place as shares of the width.

    Attributes:
        columns: the widths of a label, an image and an accuracy, in proportion.
        right: where the images end.
        below: the room below the images.
        axes: where accuracy against ε begins, and how wide it is.
        axes_height: how high it is; None for all that is left.
    """

    width: float
    row: float
    heading: float
    columns: tuple[float, float, float]
    right: float
    below: float
    axes: tuple[float, float]
    axes_height: float | None


_WIDE = _Layout(11.2, 0.5, 0.34, (1.9, 1, 1.2), 0.61, 0.5, (0.675, 0.315), None)
_NARROW = _Layout(PHONE_WIDTH, 0.27, 0.3, (4.0, 1, 2.6), 0.99, 4.5, (0.13, 0.84), 2.6)


def draw_demo(
    demo: Demo, path: str | os.PathLike[str], *, narrow: bool = False
) -> None:
    """Draw the mean images of every crowd on one grey scale, and accuracy against the total ε per person."""
    layout = _NARROW if narrow else _WIDE
    crowds = [
        [row for row in demo.crowds if row.copies == copies]
        for copies in sorted({r.copies for r in demo.crowds})
    ]
    heights = [layout.heading, layout.row]
    for crowd in crowds:
        heights += [layout.heading] + [layout.row] * len(crowd)
    height = max(sum(heights) + layout.below + 0.47, 4.5)
    figure = new_figure(layout.width, height, layout=None)
    epsilons = ", ".join(f"{row.epsilon:g}" for row in crowds[0])
    subtitle = [
        f"Everybody answers once, so ε is the person's total: {epsilons}.",
        "Digit and image are both secret.",
    ]
    size = {"fontsize": 8 if narrow else 10.5}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "color": FAINT}
    break_line = "\n" if narrow else " "
    figure.text(0.5, 1 - 0.25 / height, break_line.join(subtitle), **middle, **size)
    grid = figure.add_gridspec(
        len(heights),
        12,
        width_ratios=[layout.columns[0]]
        + [layout.columns[1]] * 10
        + [layout.columns[2]],
        height_ratios=heights,
        wspace=0.06,
        hspace=0.08,
        left=0.005,
        right=layout.right,
        top=1 - 0.44 / height,
        bottom=layout.below / height,
    )
    _write(figure, grid[0, 1:11], "mean image of each digit")
    _write(figure, grid[0, 11], "accuracy")
    exact = f"{demo.exact[0]:.0%}"
    _draw_images(figure, grid, 1, demo.truth, ("no privacy", exact, INK), demo)
    line = 2
    for crowd, (colour, _) in zip(crowds, _STYLES, strict=False):
        _write(figure, grid[line, 1:11], _name(crowd[0]), colour)
        for row in crowd:
            line += 1
            words = (f"total ε = {row.epsilon:g}", f"{row.accuracy:.0%}", colour)
            _draw_images(figure, grid, line, row.images, words, demo)
        line += 1
    note = [
        "Images are scaled to length 1 and drawn on one scale.",
        "Hatched: the digit's share is within two errors of 0.",
    ]
    place = (layout.right / 2, (layout.below - 0.3) / height)
    figure.text(*place, break_line.join(note), **middle, fontsize=8 if narrow else 9)
    left, width = layout.axes
    tall = layout.axes_height
    axes_height = 1 - 1.87 / height if tall is None else tall / height
    axes = figure.add_axes((left, 1.15 / height, width, axes_height))
    _draw_accuracy(axes, crowds, demo)
    figure.legend(
        loc="lower center",
        bbox_to_anchor=(left + width / 2, 0.005),
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    save(figure, path)


def _draw_accuracy(axes: Any, crowds: list[list[Crowd]], demo: Demo) -> None:
    """Accuracy against total ε, one line per crowd."""
    epsilons = [row.epsilon for row in crowds[0]]
    axes.axhline(
        100 * demo.exact[0],
        color=INK,
        linestyle="--",
        linewidth=1.3,
        label="no privacy",
    )
    for crowd, (colour, marker) in reversed(list(zip(crowds, _STYLES, strict=False))):
        values = [100 * row.accuracy for row in crowd]
        name = f"{crowd[0].people:,} people"
        errors = [100 * row.accuracy_stderr for row in crowd]
        axes.errorbar(
            epsilons,
            values,
            errors,
            marker=marker,
            color=colour,
            linewidth=1.8,
            markersize=7,
            capsize=3,
            label=name,
        )
    axes.axhline(
        100 / len(demo.truth),
        color=FAINT,
        linestyle=":",
        linewidth=1.3,
        label="guessing",
    )
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.set_xlabel("total ε of a person (one message, once)")
    axes.set_title(
        f"accuracy on {demo.tested} other images, % ± standard error",
        fontsize=8.5,
        color=INK,
    )
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)


def _name(row: Crowd) -> str:
    held = (
        "one person per image"
        if row.copies == 1
        else f"{row.copies} simulated people per image"
    )
    return f"{row.people:,} people: {held}"


def _draw_images(
    figure: Any,
    grid: Any,
    line: int,
    images: NDArray[np.float64],
    words: tuple[str, str, str],
    demo: Demo,
) -> None:
    """Draw a row: its label, ten images, the accuracy; `words` has both texts and their colour."""
    side = round(images.shape[1] ** 0.5)
    _write(figure, grid[line, 0], words[0], align="right")
    _write(figure, grid[line, 11], words[1], words[2])
    for place, image in enumerate(images):
        axes = figure.add_subplot(grid[line, 1 + place])
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        if np.isnan(image).any():
            axes.patch.set(facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="///")
        else:
            axes.imshow(
                image.reshape(side, side),
                cmap="gray",
                vmin=0,
                vmax=demo.truth.max(),
                interpolation="nearest",
            )


def _write(
    figure: Any, place: Any, text: str, color: str = INK, align: str = "center"
) -> None:
    axes = figure.add_subplot(place)
    axes.set_axis_off()
    x = {"center": 0.5, "right": 0.94}[align]
    axes.text(
        x,
        0.45,
        text,
        ha=align,
        va="center",
        fontsize=9.5,
        color=color,
        transform=axes.transAxes,
    )
