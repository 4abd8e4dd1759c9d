"""What several commands share: reading a mechanism, describing one, and small things about outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.terminal import warn
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import SSTQ, ExpectedError, Mechanism

__all__ = [
    "ForceOption",
    "MechanismOption",
    "check_output",
    "describe_mechanism",
    "privacy_of",
    "randomness_of",
    "read_mechanism",
    "typical_error",
    "warn_of_seed",
]

_PRIVACY = {
    "local": "yes: every message on its own",
    "aggregator": "no: a message is for the trusted aggregator's eyes only; the mean it releases is private",
    "none": "no: this mechanism has no privacy",
}

MechanismOption = Annotated[
    Path,
    typer.Option("--mechanism", "-m", help="The JSON file of the mechanism that clients and server share (sstq spec)."),
]

ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")]


def read_mechanism(path: Path) -> Mechanism:
    """Read a mechanism from its JSON file; ValueError, naming the file, if it is not one."""
    from sstq import from_json

    try:
        return from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def typical_error(mechanism: Mechanism, clients: int = 1) -> ExpectedError:
    """Return the expected error of clients that all hold a typical vector of norm clip: a fixed Gaussian direction."""
    from sstq.structured import typical_vector

    return mechanism.expected_mse(typical_vector(mechanism.dim, mechanism.clip), clients=clients)


def describe_mechanism(mechanism: Mechanism) -> list[tuple[str, object]]:
    """Return what a user wants to know of a mechanism, as names and values."""
    from sstq import SSTQ

    error = typical_error(mechanism)
    facts: list[tuple[str, object]] = [
        ("mechanism", mechanism.name),
        ("dimension", mechanism.dim),
        ("clip", f"{mechanism.clip:g}"),
        ("epsilon", f"{mechanism.epsilon!r}"),
        ("epsilon spent, rounded up", f"{mechanism.privacy_loss()!r}"),
        ("exact", "yes, integer by integer" if mechanism.exact else "no, up to floating point"),
        ("trust", mechanism.trust),
        ("coin", mechanism.coin),
        ("bits a message", mechanism.message_bits),
        ("unbiased", _unbiased_in_words(mechanism)),
    ]
    if isinstance(mechanism, SSTQ):
        facts += _describe_parts(mechanism)
    facts.append(
        ("error of one client", f"{math.sqrt(error.total) / mechanism.clip:.4g} of clip (a typical vector that long)")
    )
    if error.bias2 > 1e-6 * mechanism.clip**2 and not _over_frames(mechanism):
        facts.append(("error of any crowd", f"{math.sqrt(error.bias2) / mechanism.clip:.4g} of clip (the bias)"))
    else:
        facts.append(_error_of_crowd(mechanism, error))
    facts.append(("digest", mechanism.digest()))
    return facts


def _over_frames(mechanism: Mechanism) -> bool:
    return bool(getattr(mechanism, "unbiased_over_frames", False))


def _unbiased_in_words(mechanism: Mechanism) -> str:
    if mechanism.unbiased:
        return "yes"
    return "over frame seeds, not for one frame: use a fresh frame every round" if _over_frames(mechanism) else "no"


def _error_of_crowd(mechanism: Mechanism, error: ExpectedError) -> tuple[str, object]:
    """Return what a crowd gains: the clients for an error of 10 %, or the error of the round where that is fixed."""
    clients = getattr(mechanism, "clients", None)
    if clients is not None:
        total = typical_error(mechanism, clients).total
        return f"error of the round of {clients:,}", f"{math.sqrt(total) / mechanism.clip:.4g} of clip"
    return "clients for an error of 10 %", f"{max(1, math.ceil(error.variance / (0.1 * mechanism.clip) ** 2)):,}"


def _describe_parts(mechanism: SSTQ) -> list[tuple[str, object]]:
    return [
        ("channel", f"{mechanism.channel.name}, {mechanism.bits} bits"),
        ("codebook", mechanism.codebook.name),
        ("decoder", mechanism.decoder.name),
        ("index", mechanism.index),
        ("frame", f"{mechanism.frame.name}, N = {mechanism.frame.size}, seed {mechanism.frame.seed}"),
        ("kashin", f"{mechanism.kashin.name}, K = {mechanism.kashin.level:.6g}, {mechanism.kashin.steps} steps"),
    ]


def privacy_of(mechanism: Mechanism, simulated: bool) -> str:
    """Return whether the messages of a mechanism may be seen by anybody, in words."""
    return "no: simulated from a seed" if simulated else _PRIVACY[mechanism.trust]


def randomness_of(simulated: bool) -> str:
    """Return where the randomness of messages came from, in words."""
    return "a seed: simulated, not private" if simulated else "secret"


def warn_of_seed(what: str) -> None:
    """Say loudly that a seed stood in for secret randomness."""
    warn(f"NOT PRIVATE: {what}")


def check_output(path: Path | None, force: bool, option: str = "--output") -> None:
    """Refuse a file that is there already, unless forced, or whose folder is not, before any work is done."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise WrongUsage(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise WrongUsage(f"{option} {path} is a folder; a file is written")
    if path.exists() and not force:
        raise WrongUsage(f"{option} {path} exists already; pass --force to overwrite it")
