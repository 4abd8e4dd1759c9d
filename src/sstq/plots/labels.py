"""Names beside marks, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sstq.plots.canvas import INK

__all__ = ["label_marks"]

# The height of a line and the width of a letter of an eight-point font, in inches.
_LINE_HEIGHT, _LETTER_WIDTH = 0.145, 0.065


def label_marks(axes: Any, marks: Sequence[tuple[float, float, str]], *, width: float, height: float) -> None:
    """Write names to the right of the marks, each at the nearest height where it touches no other name and no mark.

    Places are fractions of the (logarithmic) axes, so the limits must be final.

    Args:
        axes: to write on.
        marks: the places, in the data's units, and their names; empty where there is only a mark to keep clear of.
        width: of the axes, about, in inches.
        height: of the axes, about, in inches.
    """
    line, letter = _LINE_HEIGHT / height, _LETTER_WIDTH / width
    places = axes.transAxes.inverted().transform(axes.transData.transform([mark[:2] for mark in marks]))
    taken = [(across - 0.006, across + 0.006, up) for across, up in places]
    named = [(place, mark) for place, mark in zip(places.tolist(), marks, strict=True) if mark[2]]
    for (across, up), (bits, error, label) in sorted(named):
        left, right = across + 0.02, across + 0.02 + letter * len(label)
        steps = sorted(range(-80, 81), key=abs)
        heights = (up + step * line / 4 for step in steps)
        level = next((h for h in heights if 0 < h < 1 and not _touches(taken, left, right, h, line)), up)
        taken.append((left, right, level))
        axes.annotate(
            label,
            (bits, error),
            xytext=(left, level),
            textcoords="axes fraction",
            fontsize=8,
            color=INK,
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # over the lines of the axes
            arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6, "relpos": (0.0, 0.5), "shrinkA": 1},
        )


def _touches(
    taken: Sequence[tuple[float, float, float]], left: float, right: float, height: float, line: float
) -> bool:
    return any(abs(height - level) < line and left < stop and start < right for start, stop, level in taken)
