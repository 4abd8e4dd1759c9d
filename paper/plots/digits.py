"""Draws the picture of the demo: ten mean images per crowd, and the accuracy of its classifier."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sstq.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

if TYPE_CHECKING:
    from paper.demo import Demo, DemoRow

__all__ = ["draw_digits"]

# Colours and marks that differ without colour, one per crowd.
_STYLES = ((ACCENT, "o"), (SECOND, "s"), ("#3c7d3c", "^"), (FAINT, "D"))
_WIDTH, _ROW, _HEADING = 11.2, 0.5, 0.34


def draw_digits(demo: Demo, path: str | os.PathLike[str]) -> None:
    """Draw the mean images of every crowd on one grey scale, and accuracy against the total ε per person."""
    crowds = [[row for row in demo.rows if row.copies == copies] for copies in sorted({r.copies for r in demo.rows})]
    heights = [_HEADING, _ROW]
    for crowd in crowds:
        heights += [_HEADING] + [_ROW] * len(crowd)
    height = max(sum(heights) + 1.25, 4.5)
    figure = new_figure(_WIDTH, height)
    title = "Handwritten digits learned from one private message per person"
    figure.text(0.5, 1 - 0.25 / height, title, ha="center", va="center", fontsize=14, color=INK)
    epsilons = ", ".join(f"{row.epsilon:g}" for row in crowds[0])
    subtitle = f"Everybody answers once, so ε is the person's total: {epsilons}. Digit and image are both secret."
    figure.text(0.5, 1 - 0.53 / height, subtitle, ha="center", va="center", fontsize=9.5, color=FAINT)
    grid = figure.add_gridspec(
        len(heights),
        12,
        width_ratios=[1.9] + [1] * 10 + [1.2],
        height_ratios=heights,
        wspace=0.06,
        hspace=0.08,
        left=0.005,
        right=0.61,
        top=1 - 0.72 / height,
        bottom=0.5 / height,
    )
    _write(figure, grid[0, 1:11], "mean image of each digit")
    _write(figure, grid[0, 11], "accuracy")
    exact = f"{demo.exact_accuracy:.0%}"
    _draw_images(figure, grid, 1, demo.truth, ("no privacy", exact, INK), demo)
    line = 2
    for crowd, (colour, _) in zip(crowds, _STYLES, strict=False):
        _write(figure, grid[line, 1:11], _name(crowd[0]), colour)
        for row in crowd:
            line += 1
            words = (f"total ε = {row.epsilon:g}", f"{row.accuracy:.0%}", colour)
            _draw_images(figure, grid, line, row.images, words, demo)
        line += 1
    note = "Images are scaled to length 1 and drawn on one scale. Hatched: the digit's share is estimated as 0."
    figure.text(0.31, 0.2 / height, note, ha="center", va="center", fontsize=8, color=FAINT)
    axes = figure.add_axes((0.675, 1.15 / height, 0.315, 1 - 2.15 / height))
    _draw_accuracy(axes, crowds, demo)
    save(figure, path)


def _draw_accuracy(axes: Any, crowds: list[list[DemoRow]], demo: Demo) -> None:
    """Accuracy against total ε, one line per crowd."""
    epsilons = [row.epsilon for row in crowds[0]]
    axes.axhline(100 * demo.exact_accuracy, color=INK, linestyle="--", linewidth=1.3, label="no privacy")
    for crowd, (colour, marker) in reversed(list(zip(crowds, _STYLES, strict=False))):
        values = [100 * row.accuracy for row in crowd]
        name = f"{crowd[0].people:,} people"
        axes.plot(epsilons, values, marker=marker, color=colour, linewidth=1.8, markersize=7, label=name)
    axes.axhline(100 / len(demo.truth), color=FAINT, linestyle=":", linewidth=1.3, label="guessing")
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.set_xlabel("total ε of a person (one message, once)")
    axes.set_title(f"accuracy on {demo.tested} other images, per cent", fontsize=9.5, color=INK)
    axes.figure.legend(loc="lower center", bbox_to_anchor=(0.83, 0.005), ncols=2, frameon=False, fontsize=9)
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)


def _name(row: DemoRow) -> str:
    held = "one person per image" if row.copies == 1 else f"{row.copies} simulated people per image"
    return f"{row.people:,} people: {held}"


def _draw_images(
    figure: Any, grid: Any, line: int, images: NDArray[np.float64], words: tuple[str, str, str], demo: Demo
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
            axes.imshow(image.reshape(side, side), cmap="gray", vmin=0, vmax=demo.truth.max(), interpolation="nearest")


def _write(figure: Any, place: Any, text: str, color: str = INK, align: str = "center") -> None:
    axes = figure.add_subplot(place)
    axes.set_axis_off()
    x = {"center": 0.5, "right": 0.94}[align]
    axes.text(x, 0.45, text, ha=align, va="center", fontsize=9.5, color=color, transform=axes.transAxes)
