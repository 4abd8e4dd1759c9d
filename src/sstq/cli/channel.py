"""`sstq channel`: shows the transition matrix of a mechanism and its exact ε."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import ForceOption, check_output, read_mechanism
from sstq.cli.solving import solving_shown
from sstq.cli.terminal import note, show_facts, show_table
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    from sstq import SSTQ

__all__ = ["channel"]

# A table shows at most this many tokens and codes: the first half and the last half.
_SHOWN = 8
_PICTURES = (".png", ".svg", ".pdf")


def channel(
    mechanism: Annotated[
        Path | None,
        typer.Option(
            "--mechanism",
            "-m",
            help="Show the channel of the mechanism in this JSON file, instead of the options below.",
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The ε of the channel.")] = None,
    bits: Annotated[
        int | None, typer.Option(help="The bits b of a code: the channel has 2^b tokens. [dim]\\[default: 4][/dim]")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--channel", metavar="flat|metric-aware|optimal", help="[dim]\\[default: flat][/dim]")
    ] = None,
    codebook: Annotated[
        str | None,
        typer.Option(
            metavar="optimized|uniform|panter-dite|loss-optimal",
            help="The codebook; the last two, like the optimal channel, are made for typical vectors, dim = 1000.",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="calibrated|paper", help="The rate of the metric-aware channel.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Draw the channel (.png, .svg, .pdf), or write its exact integers (.csv)."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Show the transition probabilities of a channel and the exact ε that they spend.

    The channel is a matrix of integers whose rows sum to 2^62; the ratio shown is the largest one
    between two integers of a column, computed in rational arithmetic from the integers that are sampled.

    Example: sstq channel --epsilon 3 --bits 2 --output channel.png
    """
    check_output(output, force)
    if output is not None and output.suffix.lower() not in (".csv", *_PICTURES):
        raise WrongUsage(f"--output {output}: the name must end in {', '.join(('.csv', *_PICTURES))}")
    shown = _chosen(mechanism, epsilon, bits, kind, codebook, rate)
    ratio = shown.channel.ratio()
    facts: list[tuple[str, object]] = [
        ("channel", shown.channel.name),
        ("tokens", shown.channel.inputs),
        ("codes", shown.channel.outputs),
        ("codes in use", int(shown.channel.used.sum())),
        ("epsilon", f"{shown.epsilon!r}"),
        ("epsilon spent, rounded up", f"{shown.privacy_loss()!r}"),
        ("largest ratio, exactly", ratio),
        ("largest ratio", f"{float(ratio):.12g}"),
        *_flat_integers(shown),
    ]
    show_facts("channel", facts)
    _show_probabilities(shown)
    if output is None:
        return
    if output.suffix.lower() == ".csv":
        _write_integers(shown, output)
    else:
        from sstq.plots import draw_channel

        draw_channel(shown, output)
    note(f"wrote {output}")


def _chosen(
    path: Path | None, epsilon: float | None, bits: int | None, kind: str | None, codebook: str | None, rate: str | None
) -> SSTQ:
    from sstq import SSTQ

    if path is not None:
        if any(option is not None for option in (epsilon, bits, kind, codebook, rate)):
            raise WrongUsage("--mechanism cannot be combined with --epsilon, --bits, --channel, --codebook or --rate")
        mechanism = read_mechanism(path)
        if not isinstance(mechanism, SSTQ):
            raise ValueError(f"{path}: mechanism must be sstq, got {mechanism.name}, which has no scalar channel")
        return mechanism
    if epsilon is None:
        raise WrongUsage("pass --mechanism or --epsilon")
    with solving_shown(kind), check_usage():
        options: dict[str, Any] = {"channel": kind or "flat", "codebook": codebook, "rate": rate}
        return SSTQ(1000, epsilon, bits=4 if bits is None else bits, **options)


def _flat_integers(mechanism: SSTQ) -> list[tuple[str, object]]:
    from sstq.scalar.channels import FlatChannel

    channel = mechanism.channel
    if not isinstance(channel, FlatChannel):
        return []
    return [("weight of the token itself", channel.own), ("weight of each other token", channel.other)]


def _show_probabilities(mechanism: SSTQ) -> None:
    probabilities = mechanism.channel.probabilities()
    tokens, places = _ends(mechanism.channel.inputs), _ends(mechanism.channel.outputs)

    def cells(values: list[str]) -> list[str]:
        return [values[place] if place is not None else "…" for place in places]

    codes = cells([str(code) for code in range(mechanism.channel.outputs)])
    rows = [
        [f"{token}", f"{mechanism.codebook.values[token]:+.4f}", *cells([f"{p:.3g}" for p in probabilities[token]])]
        if token is not None
        else ["…"] * (2 + len(places))
        for token in tokens
    ]
    rows.append(["decoded", "", *cells([f"{value:+.4g}" for value in mechanism.decoder.values])])
    show_table(
        "Probability of each code",
        ["token", "codeword", *codes],
        rows,
        caption="Codewords and decoded values are in units of the bound B.",
    )


def _ends(count: int) -> list[int | None]:
    """Return all positions, or the first and last of many with None for the gap."""
    if count <= _SHOWN:
        return list(range(count))
    half = _SHOWN // 2
    return [*range(half), None, *range(count - half, count)]


def _write_integers(mechanism: SSTQ, output: Path) -> None:
    from sstq.files.atomic import atomic_file

    matrix = mechanism.channel.matrix
    with atomic_file(output) as file:
        file.write(",".join(["token", *(f"code_{code}" for code in range(matrix.shape[1]))]).encode() + b"\n")
        for token, weights in enumerate(matrix):
            file.write(",".join(map(str, [token, *weights.tolist()])).encode() + b"\n")
