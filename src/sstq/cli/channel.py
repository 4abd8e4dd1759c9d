"""The channel of a mechanism: its probabilities, its exact ε, and a picture (`sstq inspect --output`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sstq.cli.numbers import PICTURES
from sstq.cli.terminal import note, show_table
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import SSTQ

__all__ = ["describe_channel", "show_probabilities", "write_channel"]

# A table shows at most this many tokens and codes: the first half and the last half.
_SHOWN = 8


def describe_channel(mechanism: SSTQ) -> list[tuple[str, object]]:
    """Return facts about the channel; the ratio is the largest of two integers of a column, in rational arithmetic."""
    channel, ratio = mechanism.channel, mechanism.channel.ratio()
    return [
        ("tokens", channel.inputs),
        ("codes in use", f"{int(channel.used.sum())} of {channel.outputs}"),
        ("largest ratio, exactly", ratio),
        ("largest ratio", f"{float(ratio):.12g}"),
        *_flat_integers(mechanism),
    ]


def write_channel(mechanism: SSTQ, output: Path) -> None:
    """Draw the channel, or write its exact integers (.csv)."""
    if output.suffix.lower() == ".csv":
        _write_integers(mechanism, output)
    elif output.suffix.lower() in PICTURES:
        from sstq.plots import draw_channel

        draw_channel(mechanism, output)
    else:
        raise WrongUsage(f"--output {output}: the name must end in {', '.join(('.csv', *PICTURES))}")
    note(f"wrote {output}")


def _flat_integers(mechanism: SSTQ) -> list[tuple[str, object]]:
    from sstq.scalar.channels import FlatChannel

    channel = mechanism.channel
    if not isinstance(channel, FlatChannel):
        return []
    return [("weight of the token itself", channel.own), ("weight of each other token", channel.other)]


def show_probabilities(mechanism: SSTQ) -> None:
    """Print the probability of each code for each token."""
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
