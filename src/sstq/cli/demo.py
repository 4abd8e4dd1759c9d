"""`sstq demo`: class means of images, recovered from a few bits per client."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.common import ForceOption, check_output
from sstq.cli.numbers import safe_figure
from sstq.cli.terminal import note, progress, show_table, warn

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the pictures and numbers.")] = Path(
        "demo"
    ),
    seed: Annotated[
        int | None, typer.Option(min=0, help="A seed instead of secret randomness, for the same picture again.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Recover the mean image of each digit from about 10 bits per client, then train a network on private gradients.

    1,797 images of 8×8 pixels ship with scikit-learn. Each is first one client; then each stands for 100 clients that
    hold it, to show what a larger crowd gains. The table compares the error that the library predicts with the error
    that came out. Then 100 clients train a network together, each gradient sent as one private message, with several
    mechanisms. Needs the [demo] extra; takes about a minute.

    Example: sstq demo --output demo
    """
    from sstq.lab.demo import planned_clients, run_demo, save_results
    from sstq.lab.plots import draw_digits

    output.mkdir(parents=True, exist_ok=True)
    for name in ("digits.png", "results.json", "training.png"):
        check_output(output / name, force)
    with progress("Clients", planned_clients()) as advance:
        result = run_demo(rng=seed, advance=advance)
    picture = output / "digits.png"
    draw_digits(result, picture)
    save_results(result, output / "results.json")
    columns = [
        "ε",
        "exact ε",
        "clients per image",
        "clients",
        "bits",
        "bytes sent",
        "as floats",
        "predicted",
        "measured",
    ]
    rows = [
        [
            f"{row.epsilon:g}",
            safe_figure(row.privacy_loss),
            row.copies,
            f"{row.clients:,}",
            row.message_bits,
            f"{row.bytes_sent:,}",
            f"{row.bytes_as_floats:,}",
            f"{row.predicted:.1%}",
            f"{row.measured:.1%}",
        ]
        for row in result.rows
    ]
    show_table(
        "Mean images of ten digits under local differential privacy",
        columns,
        rows,
        caption=(
            "exact ε: of the integers that are sampled, rounded up; bits: of one message; as floats: the bytes of the "
            "plain images. Errors, predicted and measured, are relative: the distance of the ten estimated means from "
            "the true ones, over the norm of these. Crowds of 100 per image are simulated: 100 clients hold the same."
        ),
    )
    _train(output, seed)
    if seed is not None:
        warn("NOT PRIVATE: --seed replaced secret randomness, which is for reproducible pictures only")
    note(f"wrote {output / 'results.json'}")
    typer.echo(picture)
    typer.echo(output / "training.png")


def _train(output: Path, seed: int | None) -> None:
    """Train on the digits with several mechanisms; a table and a picture."""
    from sstq.lab.demo_training import EPSILON, METHODS, ROUNDS, run_training
    from sstq.lab.plots import draw_training

    with progress("Rounds", len(METHODS) * (ROUNDS + 1)) as advance:
        histories = run_training(seed, advance=advance)
    total = max(rows[-1]["epsilon"] for rows in histories.values() if math.isfinite(rows[-1]["epsilon"]))
    title = f"A network learns the digits: 100 clients, total ε = {total:g} ({EPSILON:g} per round)"
    draw_training(histories, output / "training.png", title=title)
    show_table(
        f"A network after {ROUNDS} rounds of private training",
        ["mechanism", "bits per round", "total ε", "accuracy", "loss"],
        [
            [
                label,
                f"{rows[-1]['bits'] // rows[-1]['number']:,}",
                f"{rows[-1]['epsilon']:g}",
                f"{rows[-1]['accuracy']:.1%}",
                f"{rows[-1]['loss']:.3g}",
            ]
            for label, rows in histories.items()
        ],
        caption="100 clients hold 14 or 15 images each. total ε: of a client over all rounds, by plain addition. "
        "Accuracy and loss are those of 360 test images.",
    )
