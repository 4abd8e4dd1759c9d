"""Helpers of pictures: figures without a window, colours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from sstq.files.atomic import atomic_file

INK = "#222222"
FAINT = "#777777"
ACCENT = "#b3400f"
SECOND = "#1f5fa8"


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
