"""How much trust buys how much accuracy: the error against the people, for local, shuffled and central privacy.

`python -m benchmarks trust` prints the numbers, `python -m benchmarks.trust --output docs/trust.png` draws them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import Result, benchmark
from sstq.mechanisms import FrameUnit
from sstq.planning import shuffled_mechanism
from sstq.planning.shuffled_draw import MESSAGE_BITS
from sstq.planning.shuffler import central_error
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

DIM, EPSILON, DELTA = 1000, 1.0, 1e-6
PEOPLE = (10**3, 10**4, 10**5, 10**6, 10**7)
MESSAGES = (1, 16, 256)
LONG_BITS = 40

LOCAL, CENTRAL = "trust nobody: local ε = 1", "trust the server: central Gaussian"


@dataclass(frozen=True)
class Point:
    """The root mean square error of a mean over clip, and the local ε that is left if the promise is broken."""

    error: float
    left: float
    sent: str


def label(messages: int) -> str:
    """What a curve behind a shuffler is called."""
    return f"trust a shuffler: {messages} message{'s' * (messages > 1)}"


@cache
def point(curve: str, people: int, bits: int = MESSAGE_BITS) -> Point:
    """The point of a curve; behind a shuffler with messages of at most so many bits."""
    if curve == CENTRAL:
        return Point(central_error(DIM, EPSILON, DELTA, people), float("inf"), "the vector itself")
    if curve == LOCAL:
        mechanism = FrameUnit(DIM, EPSILON, clients=people)
    else:
        messages = next(m for m in MESSAGES if label(m) == curve)
        mechanism = shuffled_mechanism(DIM, EPSILON, DELTA, people, messages=messages, bits=bits)
    sent = f"{mechanism.messages} × {mechanism.message_bits} bits"
    return Point(mechanism.typical_error(people).total ** 0.5, mechanism.bundle_epsilon, sent)


CURVES = (LOCAL, *map(label, MESSAGES), CENTRAL)


@benchmark
def trust() -> Iterator[Result]:
    """Error of a mean of 1,000 dimensions over clip at (1, 1e-6), by whom people trust and how many there are."""
    for curve in CURVES:
        for people in PEOPLE:
            yield _result(curve, people)
    # Where 32 bits hold too few frames.
    for messages in MESSAGES:
        yield _result(label(messages), PEOPLE[-1], LONG_BITS)


def _result(curve: str, people: int, bits: int = MESSAGE_BITS) -> Result:
    found = point(curve, people, bits)
    return Result(f"{curve}, n = {people:,}", found.error, "× clip", f"{found.sent}, {_left(found)}")


def _left(found: Point) -> str:
    return "nothing is left if trust is broken" if found.left == float("inf") else f"local ε = {found.left:.3g} is left"


def draw(path: Path) -> None:
    """Draw all curves with their names at their ends."""
    figure = new_figure(8.6, 5.2, layout="constrained")
    axes = figure.subplots()
    colours = (SECOND, "#d68a5c", ACCENT, "#7a2606", INK)
    for curve, colour in zip(CURVES, colours, strict=True):
        errors = [point(curve, people).error for people in PEOPLE]
        axes.plot(PEOPLE, errors, "o-", color=colour, linewidth=2, markersize=5)
        axes.annotate(curve, (PEOPLE[-1], errors[-1]), (10, 0), textcoords="offset points", va="center", color=colour)
    axes.axhline(1, color=FAINT, linewidth=1, linestyle="--")
    axes.annotate("as long as a vector: nothing is learned above", (PEOPLE[-1], 1), (0, 5), color=FAINT,
                  textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
    _finish(axes)
    figure.suptitle("Error of a mean of 1,000 dimensions; (ε, δ) = (1, 10⁻⁶) behind a shuffler and for the server",
                    color=INK, fontsize=11)  # fmt: skip
    save(figure, path)


def _finish(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    axes.set(xscale="log", yscale="log", xlabel="people", ylabel="error of the mean over clip")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)


def main(output: Annotated[Path, typer.Option(help="The picture, .png, .svg or .pdf.")]) -> None:
    """Draw the error against the people, one curve per kind of trust."""
    draw(output)


if __name__ == "__main__":
    typer.run(main)
