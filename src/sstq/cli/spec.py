"""`sstq spec`: write the JSON of a mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.common import describe_mechanism, require_folder_of
from sstq.cli.terminal import note, show_facts

__all__ = ["spec"]


def spec(
    dim: Annotated[int, typer.Option(help="d, the length of the vectors.")],
    epsilon: Annotated[float, typer.Option(help="ε of the local differential privacy of one message.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSON file to write.")] = Path("mechanism.json"),
    bits: Annotated[int, typer.Option(help="b, the bits of the code; more is not always better.")] = 4,
    clip: Annotated[float, typer.Option(help="Vectors longer than this are scaled down to it.")] = 1.0,
    channel: Annotated[str, typer.Option(metavar="flat|metric-aware", help="How a code is randomized.")] = "flat",
    codebook: Annotated[
        str | None,
        typer.Option(
            metavar="optimized|uniform|panter-dite|loss-optimal",
            help="The values a coordinate is rounded to. [dim]\\[default: optimized for flat, else uniform][/dim]",
        ),
    ] = None,
    decoder: Annotated[
        str | None,
        typer.Option(
            metavar="unbiased|identity",
            help="What a code stands for. [dim]\\[default: unbiased for flat, else identity][/dim]",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="calibrated|paper",
            help="The metric-aware channel's: spend all of ε, or as in the paper. [dim]\\[default: calibrated][/dim]",
        ),
    ] = None,
    kashin: Annotated[
        str, typer.Option(metavar="certified|paper", help="The bounded representation; the paper's is biased.")
    ] = "certified",
    level: Annotated[float | None, typer.Option(help="The Kashin level K. [dim]\\[default: feasible][/dim]")] = None,
    steps: Annotated[int | None, typer.Option(help="The steps of the representation.")] = None,
    index: Annotated[
        str,
        typer.Option(
            metavar="private|assigned", help="Who picks the coordinate: the client in secret, or a public coin."
        ),
    ] = "private",
    frame: Annotated[str, typer.Option(metavar="hadamard|orthogonal|fourier", help="The tight frame.")] = "hadamard",
    frame_size: Annotated[
        int | None, typer.Option(help="N, the vectors of the frame. [dim]\\[default: 2^⌈log₂ 2.5d⌉][/dim]")
    ] = None,
    frame_seed: Annotated[int, typer.Option(help="The public seed of the frame; a fresh one for every round.")] = 0,
) -> None:
    """Write the mechanism that clients and server share, and say what it costs.

    The file holds everything public: options, channel integers and decoding values. Two parties hold the same mechanism
    exactly when its digest is the same.

    Example: sstq spec --dim 25450 --epsilon 3 --bits 2 --clip 0.1 --output mechanism.json
    """
    from sstq import SSTQ
    from sstq.atomic import atomic_file

    require_folder_of(output)
    mechanism = SSTQ(
        dim=dim,
        epsilon=epsilon,
        bits=bits,
        clip=clip,
        channel=channel,
        codebook=codebook,
        decoder=decoder,
        rate=rate,
        kashin=kashin,
        level=level,
        steps=steps,
        index=index,
        frame=frame,
        frame_size=frame_size,
        frame_seed=frame_seed,
    )
    facts = describe_mechanism(mechanism)
    with atomic_file(output) as file:
        file.write(mechanism.to_json().encode() + b"\n")
    show_facts(str(output), facts)
    note(f"wrote {output}")
