"""`sstq demo`: learns mean images and a classifier of handwritten digits from one private message per person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.common import ForceOption, check_output
from sstq.cli.terminal import note, progress, show_table, warn

__all__ = ["demo"]


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the picture and the numbers to this folder.")
    ] = Path("demo"),
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Use this seed instead of secret randomness, to get the same picture again."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Learn the mean image of each digit and a classifier from one private message per person.

    The data are 1,797 images of 8×8 pixels from scikit-learn. The last 360, by other writers, are the test set. Each of
    the others is held by one person, who sends one message about image and digit: ε is the person's total. Then
    100 people hold each image, to show the effect of a larger crowd. The table compares the accuracy that some of
    the people predict privately with the accuracy on the test images. Needs the [demo] extra; takes about half a
    minute.

    Example: sstq demo --output demo
    """
    from sstq.canvas import require_matplotlib
    from paper.demo import planned_people, run_demo, save_results
    from paper.plots import draw_digits

    require_matplotlib()
    output.mkdir(parents=True, exist_ok=True)
    picture, numbers = output / "digits.png", output / "results.json"
    for path in (picture, numbers):
        check_output(path, force)
    with progress("People", planned_people()) as advance:
        result = run_demo(rng=seed, advance=advance)
    draw_digits(result, picture)
    save_results(result, numbers)
    show_table(
        f"Digits from one private message per person; {result.exact_accuracy:.1%} accurate without privacy",
        ["total ε", "people per image", "people", "bits per person", "total bytes", "predicted", "accuracy"],
        [
            [
                f"{row.epsilon:g}",
                row.copies,
                f"{row.people:,}",
                f"{row.bits_per_person:.0f}",
                f"{row.bytes_sent:,}",
                f"{row.predicted_accuracy:.1%} ± {row.predicted_stderr:.1%}",
                f"{row.accuracy:.1%}",
            ]
            for row in result.rows
        ],
        caption=(
            "total ε: per person, who answers once. predicted: the accuracy that a twentieth of the people report, "
            f"privately, with its standard error. accuracy: on {result.tested} images that nobody holds. 100 people "
            "per image are simulated: they hold the same image. An image as 64 floats would take 2,048 bits."
        ),
    )
    if seed is not None:
        warn("NOT PRIVATE: --seed replaced secret randomness, which is for reproducible pictures only")
    note(f"wrote {numbers}")
    typer.echo(picture)
