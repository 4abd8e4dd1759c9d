"""Numbers for people, rounded, and for programs, in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sstq.cli.terminal import note

__all__ = ["PICTURES", "error_figure", "figure", "safe_figure", "write_json"]

PICTURES = (".png", ".svg", ".pdf")
_ROUNDING = 1e-12


def figure(value: float) -> str:
    """Return a number with three digits, as short as possible."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.1e}"


def error_figure(error: float, over: float = 1.0) -> str:
    """Return a squared error of unit vectors divided by a number; rounding errors count as zero."""
    return figure(error / over if error > _ROUNDING else 0.0)


def safe_figure(value: float, *, up: bool = True) -> str:
    """Return a number rounded conservatively to six digits, allowing for the rounding error of a double."""
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

    if up:
        return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(Decimal(f'{value:.12g}'))):g}"
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).plus(Decimal(value))):g}"


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document as JSON, completely or not at all."""
    import json

    from sstq.files.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(json.dumps(document, indent=2, allow_nan=False).encode() + b"\n")
    note(f"wrote {path}")
