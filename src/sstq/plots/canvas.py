"""What all pictures share: an empty figure without a window, writing it whole or not at all, and the colours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from sstq.files.atomic import atomic_file

__all__ = ["ACCENT", "FAINT", "INK", "SECOND", "new_figure", "require_matplotlib", "save", "tidy"]

INK = "#222222"
FAINT = "#777777"
ACCENT = "#b3400f"
SECOND = "#1f5fa8"


def require_matplotlib() -> None:
    """Say that pictures cannot be drawn (ImportError), before anything is computed for them."""
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
    """Write the figure to a file, whole or not at all, in the format of its ending."""
    with atomic_file(path) as file:
        figure.savefig(file, format=Path(path).suffix.lower().removeprefix("."))


def tidy(axes: Any) -> None:
    """Leave out the frame's upper and right lines."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
