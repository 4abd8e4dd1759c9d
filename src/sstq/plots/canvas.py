"""Helpers of pictures: figures without a window, colours, names next to marks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sstq.files.atomic import atomic_file

INK, FAINT, ACCENT, SECOND = "#222222", "#777777", "#b3400f", "#1f5fa8"

# The height of a line and the width of a letter of an eight-point font, in inches.
_LINE_HEIGHT, _LETTER_WIDTH = 0.145, 0.065


def require_matplotlib() -> None:
    """Raise ImportError if pictures cannot be drawn, before anything is computed for them."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'sstq[plots]'") from error


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = None) -> Any:
    """Return an empty figure with its own canvas: no window, no global state."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=160, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure to a file, completely or not at all, in the format of its extension."""
    with atomic_file(path) as file:
        figure.savefig(file, format=Path(path).suffix.lower().removeprefix("."))


def tidy(axes: Any) -> None:
    """Remove the upper and right border of the axes."""
    axes.spines[["top", "right"]].set_visible(False)


def label_marks(axes: Any, marks: Sequence[tuple[float, float, str]], *, width: float, height: float) -> None:
    """Write names to the right of the marks, each at the nearest height where it touches no other name and no mark.

    Places are fractions of the (logarithmic) axes, so the limits must be final.

    Args:
        axes: the axes to write on.
        marks: the positions, in data units, and their names; an empty name only keeps the position clear.
        width: the approximate width of the axes in inches.
        height: the approximate height of the axes in inches.
    """
    style = {"textcoords": "axes fraction", "fontsize": 8, "color": INK, "va": "center"}
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # over the lines of the axes
    arrow = {"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6, "relpos": (0.0, 0.5), "shrinkA": 1}
    line, letter = _LINE_HEIGHT / height, _LETTER_WIDTH / width
    places = axes.transAxes.inverted().transform(axes.transData.transform([mark[:2] for mark in marks]))
    taken = [(across - 0.006, across + 0.006, up) for across, up in places]
    named = [(place, mark) for place, mark in zip(places.tolist(), marks, strict=True) if mark[2]]
    for (across, up), (bits, error, label) in sorted(named):
        left, right = across + 0.02, across + 0.02 + letter * len(label)
        near = [level for start, stop, level in taken if left < stop and start < right]
        heights = (up + step * line / 4 for step in sorted(range(-80, 81), key=abs))
        level = next((h for h in heights if 0 < h < 1 and all(abs(h - other) >= line for other in near)), up)
        taken.append((left, right, level))
        axes.annotate(label, (bits, error), xytext=(left, level), bbox=box, arrowprops=arrow, **style)
