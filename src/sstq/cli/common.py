"""What several commands share: reading a mechanism, describing one, and small things about outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sstq import SSTQ, ExpectedError, Mechanism

__all__ = ["MechanismOption", "describe_mechanism", "read_mechanism", "require_folder_of", "typical_error"]

MechanismOption = Annotated[
    Path,
    typer.Option("--mechanism", "-m", help="The JSON file of the mechanism that clients and server share (sstq spec)."),
]


def read_mechanism(path: Path) -> Mechanism:
    """Read a mechanism from its JSON file; ValueError, naming the file, if it is not one."""
    from sstq import from_json

    try:
        return from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def typical_error(mechanism: Mechanism, clients: int = 1) -> ExpectedError:
    """Return the expected error of clients that all hold a typical vector of norm clip: a fixed Gaussian direction."""
    import numpy as np

    direction = np.random.default_rng(0).standard_normal(mechanism.dim)
    return mechanism.expected_mse(direction * (mechanism.clip / np.linalg.norm(direction)), clients=clients)


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
        ("unbiased", "yes" if mechanism.unbiased else "no"),
    ]
    if isinstance(mechanism, SSTQ):
        facts += _describe_parts(mechanism)
    facts.append(
        ("error of one client", f"{math.sqrt(error.total) / mechanism.clip:.4g} of clip (a typical vector that long)")
    )
    if error.bias2 > 1e-6 * mechanism.clip**2:
        facts.append(("error of any crowd", f"{math.sqrt(error.bias2) / mechanism.clip:.4g} of clip (the bias)"))
    else:
        needed = math.ceil(error.variance / (0.1 * mechanism.clip) ** 2)
        facts.append(("clients for an error of 10 %", f"{needed:,}"))
    facts.append(("digest", mechanism.digest()))
    return facts


def _describe_parts(mechanism: SSTQ) -> list[tuple[str, object]]:
    return [
        ("channel", f"{mechanism.channel.name}, {mechanism.bits} bits"),
        ("codebook", mechanism.codebook.name),
        ("decoder", mechanism.decoder.name),
        ("index", mechanism.index),
        ("frame", f"{mechanism.frame.name}, N = {mechanism.frame.size}, seed {mechanism.frame.seed}"),
        ("kashin", f"{mechanism.kashin.name}, K = {mechanism.kashin.level:.6g}, {mechanism.kashin.steps} steps"),
    ]


def require_folder_of(path: Path, option: str = "--output") -> None:
    """Refuse a file to write whose folder does not exist, before any work is done."""
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder; a file is written")
