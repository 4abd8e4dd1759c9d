"""The pictures of the documentation: from the record in `experiments/`, and computed anew where that takes seconds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from paper.bits import bit_widths, draw_bits
from paper.errors import draw_errors, read_errors
from paper.glance import draw_glance
from paper.reproduction.figures import draw_mse, draw_networks, draw_regressions
from sstq.canvas import save

__all__ = ["draw_gallery", "read_curves"]

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def read_curves(name: str, folder: Path = EXPERIMENTS) -> list[dict[str, Any]]:
    """Read the curves of an experiment: whatever looks like a number is one, and nan if it is missing.

    Examples:
        >>> read_curves("mse")[0]["dim"]
        100
    """
    with (folder / name / "curves.csv").open(encoding="utf-8") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    if text.isdecimal():
        return int(text)
    try:
        return float(text or "nan")
    except ValueError:
        return text


def draw_gallery(folder: Path) -> list[Path]:
    """Draw all pictures to a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    networks = {name: read_curves(name) for name in ("fashion-mnist", "cifar-10")}
    pictures = {
        "figure-1.png": draw_networks(networks),
        "figure-2.png": draw_mse(read_curves("mse")),
        "figure-3.png": draw_regressions("regression", read_curves("regression")),
        "figure-4.png": draw_regressions("bitwidth", read_curves("bitwidth")),
    }
    for name, figure in pictures.items():
        save(figure, folder / name)
    draw_errors(read_errors(), folder / "errors.png")
    draw_bits(bit_widths(), folder / "bits.png")
    draw_glance(folder / "glance.png")
    return [folder / name for name in ("errors.png", "bits.png", "glance.png", *pictures)]
