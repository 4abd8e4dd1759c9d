"""`sstq inspect`: shows what is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.common import (
    PICTURES,
    Facts,
    ForceOption,
    VerboseOption,
    check_output,
    describe_mechanism,
    output_option,
    privacy_of,
    read_mechanism,
    warn_of_seed,
    write_text,
)
from sstq.cli.terminal import complain, note, progress, show_facts, show_table
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    from sstq import SSTQ, Mechanism

_SECRET, _SEED = "secret", "a seed: simulated, not private"
_UNKNOWN = "unknown: tables of counts do not say it"
# A table shows the probabilities of at most this many tokens and codes.
_SHOWN = 8


def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Inspect this mechanism, message file or aggregator's state.")
    ],
    mechanism: Annotated[
        Path | None,
        typer.Option(
            "--mechanism", "-m", help="Check that the file belongs to this mechanism; the exit code is 1 if not."
        ),
    ] = None,
    output: Annotated[
        Path | None, output_option(help="Draw the channel of an sstq mechanism (.png, .svg or .pdf).")
    ] = None,
    c_header: Annotated[
        Path | None,
        typer.Option("--c-header", help="Write a mechanism's parameters for the C client to this header, as rooms.h."),
    ] = None,
    verbose: VerboseOption = False,
    force: ForceOption = False,
) -> None:
    """Show the content of a mechanism, a message file or an aggregator's state.

    The kind of file is recognised by its content, not by its name. A message file is read completely and its checksums
    are verified; with --mechanism every message is also checked against the mechanism. --verbose also shows the
    probabilities of an sstq mechanism's channel.

    Example: sstq inspect messages.sstq --mechanism mechanism.json

    Example: sstq inspect mechanism.json --verbose --output channel.png

    Example: sstq inspect mechanism.json --c-header rooms.h
    """
    from sstq.mechanisms import SSTQ

    check_output(output, force, suffixes=PICTURES)
    check_output(c_header, force, "--c-header")
    described = None
    shared = None if mechanism is None else read_mechanism(mechanism)
    with open(path, "rb") as file:
        start = file.read(64)
    if start.lstrip()[:1] == b"{":
        described = read_mechanism(path)
        if c_header is not None:
            with check_usage():
                write_text(c_header, _c_header(described, c_header))
        facts = describe_mechanism(described)
    else:
        facts = (_inspect_state if start.startswith(b"PK") else _inspect_messages)(path, shared)
    digest, simulated = str(dict(facts)["digest"]), dict(facts).get("randomness") == _SEED
    if isinstance(described, SSTQ):
        facts += _describe_channel(described)
    elif output is not None:
        raise WrongUsage(f"--output needs an sstq mechanism, which has a channel; {path} is none")
    matches = shared is not None and digest == shared.digest()
    if shared is not None:
        facts.append(("matches the mechanism", matches))
        facts.append(("private", privacy_of(shared, simulated) if matches else None))
    show_facts(str(path), facts, verbose=verbose)
    if isinstance(described, SSTQ) and verbose:
        _show_probabilities(described)
    if isinstance(described, SSTQ) and output is not None:
        from sstq.plots import draw_channel

        draw_channel(described, output)
        note(f"wrote {output}")
    if simulated:
        warn_of_seed("simulated with a seed")
    if shared is not None and not matches:
        complain(f"{path} belongs to another mechanism: digest {digest[:16]}…, expected {shared.digest()[:16]}…")
        raise typer.Exit(1)


def _c_header(mechanism: Mechanism, path: Path) -> str:
    """Return the text of the header; the parameters are named after the file."""
    from sstq.mechanisms.c_header import c_header

    stem = path.stem.replace("-", "_")
    if not stem.isascii() or not stem.isidentifier() or stem.startswith("_"):
        raise WrongUsage(f"--c-header must be a file such as rooms.h, whose name is used in C, got {path}")
    return c_header(mechanism, f"{stem}_params")


def _inspect_messages(path: Path, shared: Mechanism | None) -> Facts:
    from sstq.messages.files import open_messages

    with open_messages(path) as opened, progress("Verifying", opened.info.count) as advance:
        info = opened.info
        # Messages that belong to the mechanism are checked against it; others only by their checksums.
        belong = shared is not None and shared.digest() == info.digest
        for messages in opened.read(shared) if shared and belong else opened.read_any():
            advance(len(messages))
    return [
        ("kind", f"messages, {info.kind}, version {info.version}"),
        ("messages", info.count),
        ("bits per message", info.message_bits),
        ("file bytes", path.stat().st_size),
        ("client identifiers", info.with_clients),
        ("randomness", _SEED if info.simulated else _SECRET),
        ("checksums", "verified"),
        ("digest", info.digest),
    ]


def _inspect_state(path: Path, shared: Mechanism | None) -> Facts:
    from sstq.aggregation import describe_state

    info = describe_state(path)
    if shared is not None and info.digest == shared.digest():
        # Loading refuses a state that this mechanism cannot have.
        shared.load_aggregator(path)
    return [
        ("kind", f"aggregator's state, version {info.version}"),
        ("messages", info.count),
        ("files", info.files),
        ("rows", str(info.rows)),
        ("randomness", _UNKNOWN if info.simulated is None else _SEED if info.simulated else _SECRET),
        ("digest", info.digest),
    ]


def _describe_channel(mechanism: SSTQ) -> Facts:
    """Return facts about the channel; the ratio is the largest of two integers of a column, in rational arithmetic."""
    from sstq.scalar.channels import FlatChannel

    channel, ratio = mechanism.channel, mechanism.channel.ratio()
    facts: Facts = [
        ("tokens", channel.inputs),
        ("codes in use", f"{int(channel.used.sum())} of {channel.outputs}"),
        ("largest ratio, exactly", ratio),
        ("largest ratio", f"{float(ratio):.12g}"),
    ]
    if isinstance(channel, FlatChannel):
        facts += [("weight of the token itself", channel.own), ("weight of each other token", channel.other)]
    return facts


def _show_probabilities(mechanism: SSTQ) -> None:
    """Print the probability of each code for each token, if that fits on a terminal."""
    channel = mechanism.channel
    if max(channel.inputs, channel.outputs) > _SHOWN:
        note(f"the channel has {channel.inputs} tokens and {channel.outputs} codes: --output channel.png draws it")
        return
    rows = [
        [str(token), f"{codeword:+.4f}", *(f"{p:.3g}" for p in row)]
        for token, (codeword, row) in enumerate(zip(mechanism.codebook.values, channel.probabilities(), strict=True))
    ]
    rows.append(["decoded", "", *(f"{value:+.4g}" for value in mechanism.decoding_values)])
    columns = ["token", "codeword", *map(str, range(channel.outputs))]
    caption = "Codewords and decoded values are in units of the bound B."
    show_table("Probability of each code", columns, rows, caption=caption)
