"""Helpers of several commands: reading and describing mechanisms, and checking output paths."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.terminal import warn
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import SSTQ, ExpectedError, Mechanism
    from sstq.mechanisms import FrameUnit
    from sstq.messages.vectors import VectorFile

__all__ = [
    "ColumnOption",
    "ForceOption",
    "MechanismOption",
    "VerboseOption",
    "check_output",
    "describe_mechanism",
    "open_columns",
    "privacy_of",
    "randomness_of",
    "read_mechanism",
    "several_messages",
    "summarize_mechanism",
    "warn_of_seed",
]

_PRIVACY = {
    "local": "yes, every single message",
    "aggregator": "no: only the trusted aggregator may see a message; the mean it releases is private",
    "none": "no: this mechanism has no privacy",
}

MechanismOption = Annotated[
    Path,
    typer.Option(
        "--mechanism", "-m", help="Use the mechanism in this JSON file, which clients and server share (sstq spec)."
    ),
]

ColumnOption = Annotated[
    str | None, typer.Option(help="Read this list column of Parquet files, or this array of .npz files.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show all facts.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def open_columns(path: Path, dim: int, column: str | None = None, **others: Any) -> VectorFile:
    """Open a file of vectors; `column` is a list column of Parquet files, or an array of .npz files."""
    from sstq.messages.vectors import open_vectors

    others["key" if path.suffix == ".npz" else "column"] = column
    return open_vectors(path, dim, **others)


def read_mechanism(path: Path) -> Mechanism:
    """Read a mechanism from its JSON file; ValueError, naming the file, if it is not one."""
    from sstq.mechanisms import from_json

    try:
        return from_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a mechanism's JSON file: it is not text") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def describe_mechanism(mechanism: Mechanism, clients: int | None = None) -> list[tuple[str, object]]:
    """Return facts about a mechanism as names and values; with clients, also about the error of their mean."""
    from sstq.mechanisms import SSTQ, FrameUnit

    error = mechanism.typical_error()
    facts: list[tuple[str, object]] = [
        ("mechanism", mechanism.name),
        ("dimension", mechanism.dim),
        ("clip", f"{mechanism.clip:g}"),
        ("epsilon", f"{mechanism.epsilon!r}"),
        ("epsilon spent, rounded up", f"{mechanism.privacy_loss()!r}"),
        ("exact", "yes, integer by integer" if mechanism.exact else "no, up to floating point"),
        ("trust", mechanism.trust),
        ("coin", mechanism.coin),
        ("bits per message", mechanism.message_bits),
        *several_messages(mechanism),
        ("unbiased", _unbiased_in_words(mechanism)),
    ]
    if isinstance(mechanism, SSTQ):
        facts += _describe_parts(mechanism)
    if isinstance(mechanism, FrameUnit):
        facts += _describe_frames(mechanism)
    facts.append(
        ("error of one client", f"{math.sqrt(error.total) / mechanism.clip:.4g} of clip (typical vector of norm clip)")
    )
    clients = mechanism.clients or clients
    if clients is not None:
        total = mechanism.typical_error(clients).total
        facts.append((f"error of the round of {clients:,}", f"{math.sqrt(total) / mechanism.clip:.4g} of clip"))
    if mechanism.clients is None:
        facts.append(("clients for an error of 10 %", _clients_for_a_tenth(mechanism, error)))
    facts.append(("digest", mechanism.digest()))
    return facts


def several_messages(mechanism: Mechanism) -> list[tuple[str, object]]:
    """Return the totals of several messages per person; empty for one message."""
    if mechanism.messages == 1:
        return []
    without = f"{mechanism.bundle_epsilon:g} ({mechanism.messages} x {mechanism.epsilon:g})"
    return [
        ("messages per person", mechanism.messages),
        ("bits per person", mechanism.bundle_bits),
        ("epsilon per person without a shuffler", without),
    ]


def summarize_mechanism(mechanism: Mechanism, count: int) -> dict[str, Any]:
    """Return the part of a result's summary about the mechanism and the cost of this many messages."""
    private = math.isfinite(mechanism.epsilon)
    return {
        "message_bits": mechanism.message_bits,
        "bits_received": count * mechanism.message_bits,
        "epsilon": mechanism.epsilon if private else None,
        "delta": mechanism.delta,
        "privacy_loss": mechanism.privacy_loss() if private else None,
        "trust": mechanism.trust,
        "unbiased": mechanism.unbiased,
    }


def _unbiased_in_words(mechanism: Mechanism) -> str:
    if mechanism.unbiased:
        return "yes"
    over_frames = mechanism.unbiased == "over frames"
    return "over frame seeds, not for one frame: use a fresh frame every round" if over_frames else "no"


def _clients_for_a_tenth(mechanism: Mechanism, error: ExpectedError) -> str:
    """Return how many clients reach an error of 10 % of clip, or why no number does."""
    from sstq.mechanisms import FrameUnit

    room = (0.1 * mechanism.clip) ** 2 - error.bias2
    if room > 0:
        return f"{max(1, math.ceil(error.variance / room)):,}"
    bias = f"out of reach: the bias is {math.sqrt(error.bias2) / mechanism.clip:.3g} of clip"
    return f"{bias}{_frames_for_a_tenth(mechanism) if isinstance(mechanism, FrameUnit) else ''}"


def _frames_for_a_tenth(mechanism: FrameUnit) -> str:
    """Return the option that gives enough frames for an error of a tenth of clip."""
    variance = mechanism.typical_error().total / mechanism.clip**2
    clients = math.ceil(1.1 * variance / 0.1**2)
    return f"; pass --clients {clients} instead"


def _describe_frames(mechanism: FrameUnit) -> list[tuple[str, object]]:
    allowed = mechanism.clients_allowed
    return [
        ("frames", mechanism.frames),
        ("clients for which these frames suffice", f"up to {allowed:,} in a round" if allowed else "none"),
    ]


def _describe_parts(mechanism: SSTQ) -> list[tuple[str, object]]:
    return [
        ("channel", f"{mechanism.channel.name}, {mechanism.bits} bits"),
        ("codebook", mechanism.codebook.name),
        ("decoder", mechanism.decoder.name),
        ("frame", f"{mechanism.frame.name}, N = {mechanism.frame.size}, seed {mechanism.frame.seed}"),
        ("kashin", f"{mechanism.kashin.name}, K = {mechanism.kashin.level:.6g}, {mechanism.kashin.steps} steps"),
    ]


def privacy_of(mechanism: Mechanism, simulated: bool) -> str:
    """Return whether messages of this mechanism are private, in words."""
    return "no: simulated with a seed" if simulated else _PRIVACY[mechanism.trust]


def randomness_of(simulated: bool) -> str:
    """Return the source of the messages' randomness, in words."""
    return "a seed: simulated, not private" if simulated else "secret"


def warn_of_seed(what: str) -> None:
    """Warn that a seed replaced secret randomness."""
    warn(f"NOT PRIVATE: {what}")


def check_output(path: Path | None, force: bool, option: str = "--output") -> None:
    """Refuse an existing file (unless forced) or a missing folder, before any work is done."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise WrongUsage(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise WrongUsage(f"{option} must be a file, got the folder {path}")
    if path.exists() and not force:
        raise WrongUsage(f"{option} {path} already exists; pass --force to overwrite it")
