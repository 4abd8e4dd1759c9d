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
        raise ImportError(
            "pictures need matplotlib: pip install 'sstq[plots]'"
        ) from error


def new_figure(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained"
) -> Any:
    """Return an empty figure that notebooks show, without a window and without global state."""
    require_matplotlib()
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # Notebooks show the figures of pyplot, which keeps them until they are closed, and takes their canvas then.
    figure = pyplot.figure(
        figsize=(width, height), dpi=160, facecolor="white", layout=layout
    )
    pyplot.close(figure)
    FigureCanvasAgg(figure)
    return figure


def new_panels(rows: int, height: float) -> Any:
    """Return the axes of so many panels below each other."""
    return new_figure(7.0, height * rows).subplots(rows, squeeze=False)[:, 0]


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure to a file, completely or not at all, in the format of its extension."""
    with atomic_file(path) as file:
        figure.savefig(file, format=Path(path).suffix.lower().removeprefix("."))


def tidy(axes: Any) -> None:
    """Remove the upper and right border of the axes."""
    axes.spines[["top", "right"]].set_visible(False)
