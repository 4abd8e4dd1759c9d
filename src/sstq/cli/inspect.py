"""`sstq inspect`: shows what is in a file."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sstq.cli.common import (
    FORCE,
    VERBOSE,
    argument,
    check_output,
    describe_mechanism,
    option,
    privacy_of,
    read_mechanism,
    write_text,
)
from sstq.cli.terminal import Facts, complain, progress, show_facts, warn

if TYPE_CHECKING:
    from sstq import Mechanism

_SECRET = "secret"  # noqa: S105
_SEED = "a seed: simulated, not private"
_UNKNOWN = "unknown: tables of counts do not say it"


def inspect(
    path: Path = argument(
        "Inspect this mechanism, campaign, message file or aggregator's state.",
        metavar="FILE",
    ),
    mechanism: Path | None = option(
        "Check that the file belongs to this mechanism.", "--mechanism", "-m"
    ),
    header: Path | None = option(
        "Write the parameters of the mechanism for the client in C to this file.",
        "--c-header",
    ),
    force: bool = FORCE,
    verbose: bool = VERBOSE,
) -> None:
    """Show the content of a mechanism, a campaign's document, a message file or an aggregator's state.

    The kind of file is recognised by its content, not by its name. With --mechanism a message file is read completely:
    its checksums are verified and every message is checked. `python -m sstq.clients` writes the client in C that
    includes a header.

    Example: sstq inspect messages.sstq --mechanism mechanism.json

    Example: sstq inspect rooms.json --c-header rooms.h
    """
    if header is not None:
        check_output(header, force, "--c-header", inputs=[path])
        _write_header(path, header)
    shared = None if mechanism is None else read_mechanism(mechanism)
    with open(path, "rb") as file:
        start = file.read(64)
    if start.lstrip()[:1] == b"{":
        facts = describe_mechanism(read_mechanism(path))
    else:
        facts = (_inspect_state if start.startswith(b"PK") else _inspect_messages)(
            path, shared
        )
    digest = str(facts["digest"])
    simulated = facts.get("randomness") == _SEED
    matches = shared is not None and digest == shared.digest()
    if shared is not None:
        facts["matches the mechanism"] = matches
        facts["private"] = privacy_of(simulated) if matches else None
    show_facts(str(path), facts, verbose=verbose)
    if simulated:
        warn("NOT PRIVATE: simulated with a seed")
    if shared is not None and not matches:
        complain(
            f"{path} belongs to another mechanism: digest {digest[:16]}…, expected {shared.digest()[:16]}…"
        )
        raise typer.Exit(1)


def _write_header(path: Path, header: Path) -> None:
    """Write a C header whose parameters are named after it: rooms.h defines rooms_params."""
    from sstq.clients.c_header import c_header

    write_text(
        header,
        c_header(read_mechanism(path), f"{header.stem.replace('-', '_')}_params"),
    )


def _inspect_messages(path: Path, shared: "Mechanism | None") -> Facts:
    from sstq.messages.files import open_messages

    with (
        open_messages(path) as opened,
        progress("Verifying", opened.info.count) as advance,
    ):
        info = opened.info
        verified = shared is not None and shared.digest() == info.digest
        for messages in opened.read(shared) if shared and verified else ():
            advance(len(messages))
    return {
        "kind": f"messages, {info.kind}, version {info.version}",
        "messages": info.count,
        "bits per message": info.message_bits,
        "file bytes": path.stat().st_size,
        "randomness": _SEED if info.simulated else _SECRET,
        "checksums": (
            "verified"
            if verified
            else "of the messages: pass --mechanism to verify them"
        ),
        "digest": info.digest,
    }


def _inspect_state(path: Path, shared: "Mechanism | None") -> Facts:
    from sstq.aggregation import describe_state

    info = describe_state(path)
    if shared is not None and info.digest == shared.digest():
        # Loading refuses a state that this mechanism cannot have.
        shared.load_aggregator(path)
    return {
        "kind": f"aggregator's state, version {info.version}",
        "messages": info.count,
        "files": info.files,
        "rows": str(info.rows),
        "randomness": (
            _UNKNOWN if info.simulated is None else _SEED if info.simulated else _SECRET
        ),
        "digest": info.digest,
    }
