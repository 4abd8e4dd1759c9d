"""`sstq spec`: write the JSON of a mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sstq.cli.common import describe_mechanism, require_folder_of
from sstq.cli.terminal import note, show_facts

__all__ = ["spec"]


def spec(
    dim: Annotated[int, typer.Option(help="d, the length of the vectors.")],
    epsilon: Annotated[float | None, typer.Option(help="ε of the local differential privacy of one message.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSON file to write.")] = Path("mechanism.json"),
    name: Annotated[str, typer.Option(help="The mechanism; `sstq mechanisms` lists them.")] = "sstq",
    bits: Annotated[
        int | None, typer.Option(help="b, the bits of the code; more is not always better. [dim]\\[default: 4][/dim]")
    ] = None,
    clip: Annotated[float, typer.Option(help="Vectors longer than this are scaled down to it.")] = 1.0,
    channel: Annotated[
        str | None,
        typer.Option(metavar="flat|metric-aware", help="How a code is randomized. [dim]\\[default: flat][/dim]"),
    ] = None,
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
        str | None,
        typer.Option(
            metavar="certified|paper",
            help="The bounded representation; the paper's is biased. [dim]\\[default: certified][/dim]",
        ),
    ] = None,
    level: Annotated[float | None, typer.Option(help="The Kashin level K. [dim]\\[default: feasible][/dim]")] = None,
    steps: Annotated[int | None, typer.Option(help="The steps of the representation.")] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="private|assigned",
            help="Who picks the coordinate: the client in secret, or a public coin. [dim]\\[default: private][/dim]",
        ),
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(metavar="hadamard|orthogonal|fourier", help="The tight frame. [dim]\\[default: hadamard][/dim]"),
    ] = None,
    frame_size: Annotated[
        int | None, typer.Option(help="N, the vectors of the frame. [dim]\\[default: 2^⌈log₂ 2.5d⌉][/dim]")
    ] = None,
    frame_seed: Annotated[
        int | None, typer.Option(help="The public seed; a fresh one for every round. [dim]\\[default: 0][/dim]")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="ARGUMENT=VALUE", help="Any other argument of another mechanism; repeatable."),
    ] = None,
) -> None:
    """Write the mechanism that clients and server share, and say what it costs.

    The file holds everything public: options, integers and decoding values. Two parties hold the same mechanism exactly
    when its digest is the same. An option that means nothing to the mechanism is refused.

    Example: sstq spec --dim 25450 --epsilon 3 --bits 2 --clip 0.1 --output mechanism.json

    Example: sstq spec --name privunit --dim 1000 --epsilon 3 --set split=hemisphere
    """
    from sstq import mechanism
    from sstq.atomic import atomic_file

    require_folder_of(output)
    options = {
        "epsilon": epsilon,
        "bits": bits,
        "channel": channel,
        "codebook": codebook,
        "decoder": decoder,
        "rate": rate,
        "kashin": kashin,
        "level": level,
        "steps": steps,
        "index": index,
        "frame": frame,
        "frame_size": frame_size,
        "frame_seed": frame_seed,
    }
    given = {option: value for option, value in options.items() if value is not None}
    built = mechanism(name, dim=dim, clip=clip, **given, **_settings(setting or [], {"dim", "clip", *options}))
    facts = describe_mechanism(built)
    with atomic_file(output) as file:
        file.write(built.to_json().encode() + b"\n")
    show_facts(str(output), facts)
    note(f"wrote {output}")


def _settings(texts: list[str], options: set[str]) -> dict[str, Any]:
    """Read ARGUMENT=VALUE pairs; values are numbers where they look like numbers."""
    settings: dict[str, Any] = {}
    for text in texts:
        argument, separator, value = text.partition("=")
        if not separator or not argument:
            raise ValueError(f"--set takes ARGUMENT=VALUE, got {text!r}")
        argument = argument.replace("-", "_")
        if argument in options:
            raise ValueError(f"--set {argument}: use --{argument.replace('_', '-')}")
        if argument in settings:
            raise ValueError(f"--set {argument} is given twice")
        settings[argument] = _number_or_word(value)
    return settings


def _number_or_word(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
