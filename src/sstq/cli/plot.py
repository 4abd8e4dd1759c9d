"""`sstq plot`: draws the results of `sstq aggregate`."""

from pathlib import Path
from typing import Annotated

from sstq.cli.common import ForceOption, argument, check_output, option
from sstq.cli.terminal import note


def plot(
    result: Annotated[Path, argument("Draw the results in this folder, which sstq aggregate wrote.", metavar="RESULT")],
    output: Annotated[
        Path | None,
        option("Write this picture: .png, .svg or .pdf.", "--output", "-o", show_default="result.png in the folder"),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Draw the mean, the groups or every question of a survey, with their intervals.

    Example: sstq plot result
    """
    from sstq.plots.canvas import save
    from sstq.plots.results import draw_result

    path = result / "result.png" if output is None else output
    check_output(path, force, suffixes=(".png", ".svg", ".pdf"))
    save(draw_result(result), path)
    note(f"wrote {path}")
