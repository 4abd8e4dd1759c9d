"""`sstq inspect`: shows what is in a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.channel import describe_channel, show_probabilities, write_channel
from sstq.cli.common import (
    ForceOption,
    VerboseOption,
    check_output,
    describe_mechanism,
    privacy_of,
    randomness_of,
    read_mechanism,
    warn_of_seed,
)
from sstq.cli.terminal import complain, progress, show_facts
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import Mechanism, Messages
    from sstq.messages.framed import MessageFileInfo
    from sstq.messages.layouts import Column, Layout

__all__ = ["inspect"]

Facts = list[tuple[str, object]]


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
        Path | None,
        typer.Option(
            "--output", "-o", help="Draw the channel of an sstq mechanism (.png) or write its integers (.csv)."
        ),
    ] = None,
    verbose: VerboseOption = False,
    force: ForceOption = False,
) -> None:
    """Show the content of a mechanism, a message file or an aggregator's state.

    The kind of file is recognised by its content, not by its name. A message file is read completely and its checksums
    are verified; with --mechanism every message is also checked against the mechanism. With --verbose the probabilities
    of an sstq mechanism's channel are shown, too.

    Example: sstq inspect messages.sstq --mechanism mechanism.json

    Example: sstq inspect mechanism.json --verbose --output channel.png
    """
    from sstq.mechanisms import SSTQ
    from sstq.messages.files import FORMATS

    check_output(output, force)
    described = None
    shared = None if mechanism is None else read_mechanism(mechanism)
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(tuple(form.magic for form in FORMATS.values())):
        facts, digest = _inspect_messages(path, shared)
    elif start.startswith(b"PK"):
        facts, digest = _inspect_state(path, shared)
    elif start.lstrip()[:1] == b"{":
        described = read_mechanism(path)
        facts, digest = describe_mechanism(described), described.digest()
        if isinstance(described, SSTQ):
            facts += describe_channel(described)
    else:
        raise ValueError(f"{path} must be a mechanism, a message file or an aggregator's state")
    if shared is not None:
        facts.append(("matches the mechanism", "yes" if digest == shared.digest() else "no"))
        if digest == shared.digest():
            facts.append(("private", privacy_of(shared, ("randomness", randomness_of(simulated=True)) in facts)))
    if output is not None and not isinstance(described, SSTQ):
        raise WrongUsage(f"--output needs an sstq mechanism, which has a channel; {path} is none")
    show_facts(str(path), facts, verbose=verbose)
    if isinstance(described, SSTQ) and verbose:
        show_probabilities(described)
    if isinstance(described, SSTQ) and output is not None:
        write_channel(described, output)
    if ("randomness", randomness_of(simulated=True)) in facts:
        warn_of_seed("simulated with a seed")
    if shared is not None and digest != shared.digest():
        complain(f"{path} belongs to another mechanism: digest {digest[:16]}…, expected {shared.digest()[:16]}…")
        raise typer.Exit(1)


def _inspect_messages(path: Path, shared: Mechanism | None) -> tuple[Facts, str]:
    from sstq import read_messages
    from sstq.messages.files import describe_messages

    info = describe_messages(path)
    # Messages that belong to the mechanism are checked against it; others only by their checksums.
    reader = shared if shared is not None and shared.digest() == info.digest else _AnyMessages(path, info)
    with progress("Verifying", info.count) as advance:
        for messages in read_messages(path, reader):
            advance(len(messages))
    facts: Facts = [
        ("kind", f"messages, {info.kind}, version {info.version}"),
        ("messages", info.count),
        ("bits per message", info.message_bits),
        ("file bytes", os.path.getsize(path)),
        ("client identifiers", "yes" if info.with_clients else "no"),
        ("public labels", info.label_column),
        ("randomness", randomness_of(info.simulated)),
        ("checksums", "verified"),
        ("digest", info.digest),
    ]
    return facts, info.digest


def _inspect_state(path: Path, shared: Mechanism | None) -> tuple[Facts, str]:
    from sstq.aggregation import describe_state
    from sstq.runs.group_states import is_grouped_state

    if is_grouped_state(path):
        return _inspect_groups(path, shared)
    info = describe_state(path)
    if shared is not None and info.digest == shared.digest():
        shared.load_aggregator(path)  # refuses a state that this mechanism cannot have
    facts: Facts = [
        ("kind", f"aggregator's state, version {info.version}"),
        ("messages", info.count),
        ("files", info.files),
        ("rows", info.rows),
        ("randomness", randomness_of(info.simulated)),
        ("digest", info.digest),
    ]
    return facts, info.digest


def _inspect_groups(path: Path, shared: Mechanism | None) -> tuple[Facts, str]:
    from sstq.runs.group_states import describe_groups
    from sstq.runs.groups import GroupedAggregator

    info = describe_groups(path)
    if shared is not None and info.digest == shared.digest():
        GroupedAggregator.load(path, shared)  # refuses a state that this mechanism cannot have
    facts: Facts = [
        ("kind", f"state of groups, version {info.version}"),
        ("public labels", info.column),
        ("groups", info.groups),
        ("messages", info.count),
        ("files", info.files),
        ("randomness", randomness_of(info.simulated)),
        ("digest", info.digest),
    ]
    return facts, info.digest


@dataclass(frozen=True)
class _AnyMessages:
    """A reader that accepts any values of the right width, which suffices to verify a file without its mechanism."""

    path: Path
    info: MessageFileInfo

    @property
    def layout(self) -> Layout:
        from sstq.messages.layouts import Field, FloatField, Layout

        if self.info.kind != "parquet":
            return Layout((Field("bit", 1, 2, count=self.info.message_bits),))
        import pyarrow as pa
        from pyarrow.parquet import read_schema

        from sstq.messages.parquet import LABEL

        beside = {"client"} if self.info.label_column is None else {"client", LABEL}
        fields: list[Field] = []
        for column in read_schema(self.path):
            if column.name in beside:
                continue
            several = pa.types.is_fixed_size_list(column.type)
            entry, count = (column.type.value_type, column.type.list_size) if several else (column.type, 1)
            if pa.types.is_floating(entry):
                fields.append(FloatField(column.name, count=count))
            else:
                fields.append(Field(column.name, entry.bit_width, 1 << entry.bit_width, count))
        return Layout(tuple(fields))

    def digest(self) -> str:
        return self.info.digest

    def messages_from_columns(
        self, columns: tuple[Column, ...], clients: NDArray[np.uint64] | None, simulated: bool
    ) -> Messages:
        from sstq import Messages

        return Messages(self.layout, columns, self.info.digest, clients=clients, simulated=simulated)
