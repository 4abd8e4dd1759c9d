"""Time and memory against dimension, frame size, clients, bits and messages; draws docs/growth.png.

    python -m benchmarks.growth --output docs/growth.png --json growth.json     # about seven minutes
    python -m benchmarks.growth --quick --output growth.png                     # two small sizes a curve, a minute

Every point is measured in a process of its own (`benchmarks.growth_points`); this one stays small, because a child
begins with its parent's peak.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from sstq.cli.terminal import live_line, note, show_table

MECHANISMS = {"frameunit": "FrameUnit", "sstq": "SSTQ, certified", "vqsgd": "vqSGD", "privunitg": "PrivUnitG"}
FORMS = {"sstq": "framed files", "parquet": "Parquet"}
AXES = {
    "d": "dimension d, one client",
    "N": "frame size N, d = 1,000, one client",
    "n": "clients n, streamed, d = 1,000",
    "b": "bits b, 1,000 clients, d = 1,000",
    "messages": "messages of 20 bits, from shards",
}
MOST_MESSAGES_COMPUTED = 10**9


@dataclass(frozen=True)
class Point:
    """One measurement: `value` on an axis, on the curve of that label."""

    axis: str
    label: str
    value: int
    task: dict[str, Any] = field(repr=False)
    seconds: float = math.nan
    peak_bytes: float = math.nan


def plan(quick: bool) -> Iterator[Point]:
    """All points but those of messages, whose files have to be written first."""
    for name, label in MECHANISMS.items():
        for dim in (100, 1000) if quick else (10**k for k in range(2, 8)):
            yield Point("d", label, dim, {"task": "encode_one", "mechanism": name, "dim": dim})
        for clients in (1, 10) if quick else (10**k for k in range(6)):
            yield Point("n", label, clients, {"task": "encode_many", "mechanism": name, "clients": clients})
    for name in ("frameunit", "sstq"):
        for bits in (11, 12) if quick else range(11, 24, 2):
            task = {"task": "encode_one", "mechanism": name, "frame_size": 1 << bits}
            yield Point("N", MECHANISMS[name], 1 << bits, task)
        label = MECHANISMS[name] + (", public coin" if name == "frameunit" else "")
        for bits in (1, 2) if quick else range(1, 9):
            yield Point("b", label, bits, {"task": "encode_many", "mechanism": name, "bits": bits, "clients": 1000})


def message_plan(quick: bool) -> Iterator[Point]:
    """The points of messages, in both forms of files."""
    for form, label in FORMS.items():
        for messages in (10**3, 10**4) if quick else (10**k for k in range(4, 9)):
            yield Point("messages", label, messages, {"task": "aggregate", "form": form, "messages": messages})


def run_task(task: dict[str, Any]) -> dict[str, float]:
    """What `benchmarks.growth_points` measures in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth_points", json.dumps(task)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def measure(point: Point) -> Point:
    """The point with its figures."""
    if point.axis != "messages":
        return Point(**vars(point) | run_task(point.task))
    with tempfile.TemporaryDirectory() as folder:
        task = point.task | {"folder": folder}
        run_task(task | {"task": "write_shards"})
        return Point(**vars(point) | run_task(task))


def slope(points: list[Point], figure: str) -> float:
    """The exponent of a power law through the upper half of a curve, where constant costs no longer count."""
    upper = sorted(points, key=lambda point: point.value)[-max(2, len(points) // 2 + 1) :]
    x = [math.log(point.value) for point in upper]
    y = [math.log(getattr(point, figure)) for point in upper]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def memory_growth(points: list[Point]) -> float:
    """How many times the least peak of a curve the largest is; the libraries are part of both."""
    peaks = [point.peak_bytes for point in points]
    return max(peaks) / min(peaks)


def curves(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    """The points by axis and label."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        found.setdefault((point.axis, point.label), []).append(point)
    return found


def summary(points: list[Point]) -> list[dict[str, Any]]:
    """The slope and the growth of memory of every curve; the seconds of 10⁹ messages, computed from its last point."""
    rows = []
    for (axis, label), curve in curves(points).items():
        last = max(curve, key=lambda point: point.value)
        row = {"axis": axis, "label": label, "largest": last.value, "seconds": last.seconds}
        row |= {"peak_bytes": last.peak_bytes, "time_slope": slope(curve, "seconds")}
        row |= {"memory_growth": memory_growth(curve)}
        if axis == "messages":
            row["computed_seconds_of_1e9"] = last.seconds * MOST_MESSAGES_COMPUTED / last.value
        rows.append(row)
    return rows


def main(
    output: Annotated[Path, typer.Option(help="The picture.")],
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all points and slopes.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two small sizes a curve.")] = False,
) -> None:
    """Measure how time and memory grow, print the slopes and draw them."""
    # No point shall wait for a compiler.
    subprocess.run([sys.executable, "-m", "sstq.kernels"], check=True, capture_output=True)
    planned = [*plan(quick), *message_plan(quick)]
    points: list[Point] = []
    with live_line("Measuring", len(planned)) as show:
        for point in planned:
            show(len(points), f"{point.label}, {point.axis} = {point.value:,}")
            points.append(measure(point))
    rows = summary(points)
    show_table(
        "Growth: exponents fitted to the upper half of each curve",
        ["against", "curve", "up to", "seconds", "peak MiB", "time ~", "memory ×", "10⁹ messages, computed"],
        [
            [
                row["axis"],
                row["label"],
                f"{row['largest']:,}",
                f"{row['seconds']:.3g}",
                f"{row['peak_bytes'] / 2**20:.0f}",
                f"{row['time_slope']:.2f}",
                f"{row['memory_growth']:.2f}",
                f"{row['computed_seconds_of_1e9']:.0f} s" if "computed_seconds_of_1e9" in row else "",
            ]
            for row in rows
        ],
        caption="",
    )
    # Not before: the children's peaks would begin with the libraries that these load.
    from benchmarks.growth_picture import draw_growth
    from benchmarks.harness import machine_facts
    from sstq.files.atomic import atomic_file

    draw_growth(points, output)
    note(f"wrote {output}")
    if json_path is not None:
        document = {"machine": machine_facts(), "curves": rows, "points": [asdict(point) for point in points]}
        with atomic_file(json_path) as file:
            file.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
        note(f"wrote {json_path}")


if __name__ == "__main__":
    typer.run(main)
